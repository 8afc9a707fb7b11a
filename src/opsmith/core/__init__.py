"""Plain frozen records that every other layer speaks in; nothing here touches torch."""
