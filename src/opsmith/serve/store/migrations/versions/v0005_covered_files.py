"""The files that a review covers besides that of the entry."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Kernels that could be reviewed until now have one file; that of what was submitted is called ``kernel.py``."""
    op.add_column("judgements", sa.Column("entry_file", sa.Text(), nullable=True))
    op.execute("UPDATE judgements SET entry_file = 'kernel.py' WHERE reviewed_hash IS NOT NULL")
    op.create_table(
        "covered_files",
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.Column("path", sa.String(length=500), nullable=False),
        sa.Column("source_hash", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["source_hash"], ["sources.hash"], name=op.f("fk_covered_files_source_hash")),
        sa.PrimaryKeyConstraint("content_hash", "path", name=op.f("pk_covered_files")),
    )
