"""The machine that judges: GPUs, cores, clocks, locks."""
