"""What people say of kernels."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Kernels that are there already have no hash to review them by: what they were imported from may be gone."""
    op.add_column("judgements", sa.Column("reviewed_hash", sa.String(length=64), nullable=True))
    op.create_index(op.f("ix_judgements_reviewed_hash"), "judgements", ["reviewed_hash"], unique=False)
    op.create_table(
        "reviews",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("task", sa.String(length=300), nullable=False),
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=True),
        sa.Column("when_utc", sa.String(length=40), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=op.f("fk_reviews_token_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reviews")),
    )
    op.create_index(op.f("ix_reviews_task"), "reviews", ["task"], unique=False)
    op.create_index(op.f("ix_reviews_content_hash"), "reviews", ["content_hash"], unique=False)
