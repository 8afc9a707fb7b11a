"""Browsers that are signed in."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Browsers kept the token itself until now: everybody signs in again."""
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("begun_s", sa.Float(), nullable=False),
        sa.Column("used_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=op.f("fk_sessions_token_id")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sessions")),
    )
