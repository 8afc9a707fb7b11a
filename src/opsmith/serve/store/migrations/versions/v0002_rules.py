"""What a judgement was submitted under, and indices of what waits."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_INDICES = {
    "ix_judgements_waiting": (["suite", "rules", "id"], sa.text("state = 'queued'")),
    "ix_judgements_claimed": (["suite", "rules", "claimed_until_s"], sa.text("state = 'judging'")),
}


def upgrade() -> None:
    """What is there already was submitted under options that nobody wrote down."""
    for table in ("runs", "judgements"):
        op.add_column(table, sa.Column("rules", sa.String(length=32), nullable=False, server_default=""))
    for name, (columns, rows) in _INDICES.items():
        op.create_index(name, "judgements", columns, unique=False, sqlite_where=rows, postgresql_where=rows)
