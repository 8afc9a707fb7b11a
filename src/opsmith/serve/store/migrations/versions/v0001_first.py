"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables; there is nothing before them."""
    op.create_table(
        "sources",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_sources")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("kernels_a_day", sa.Integer(), nullable=True),
        sa.Column("created_utc", sa.String(length=32), nullable=False),
        sa.Column("revoked_utc", sa.String(length=32), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
        sa.UniqueConstraint("name", name=op.f("uq_tokens_name")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("contender", sa.String(length=300), nullable=False),
        sa.Column("suite", sa.String(length=100), nullable=False),
        sa.Column("device_name", sa.String(length=300), nullable=False),
        sa.Column("tasks_asked", sa.Integer(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("ceilings", sa.Text(), nullable=True),
        sa.Column("owner_id", sa.Integer(), nullable=True),
        sa.Column("origin", sa.String(length=64), nullable=True),
        sa.Column("created_utc", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["tokens.id"], name=op.f("fk_runs_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("origin", name=op.f("uq_runs_origin")),
        sa.UniqueConstraint("owner_id", "suite", "name", name=op.f("uq_runs_owner_id_suite_name")),
    )
    op.create_index(op.f("ix_runs_suite"), "runs", ["suite"], unique=False)
    op.create_table(
        "submissions",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("request_key", sa.String(length=200), nullable=True),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("created_utc", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_submissions_run_id")),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=op.f("fk_submissions_token_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
        sa.UniqueConstraint("token_id", "request_key", name=op.f("uq_submissions_token_id_request_key")),
    )
    op.create_table(
        "judgements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=True),
        sa.Column("token_id", sa.Integer(), nullable=True),
        sa.Column("suite", sa.String(length=100), nullable=False),
        sa.Column("task", sa.String(length=300), nullable=False),
        sa.Column("source_hash", sa.String(length=64), nullable=True),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("claim", sa.String(length=32), nullable=True),
        sa.Column("claimed_until_s", sa.Float(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("created_utc", sa.String(length=32), nullable=False),
        sa.Column("judged_utc", sa.String(length=32), nullable=True),
        sa.Column("kernel_hash", sa.String(length=64), nullable=True),
        sa.Column("dsl", sa.String(length=40), nullable=True),
        sa.Column("outcome", sa.String(length=40), nullable=True),
        sa.Column("accepted", sa.Boolean(), nullable=True),
        sa.Column("cases", sa.Integer(), nullable=True),
        sa.Column("passed", sa.Integer(), nullable=True),
        sa.Column("speedup_k", sa.Float(), nullable=True),
        sa.Column("speedup_e", sa.Float(), nullable=True),
        sa.Column("percent_of_floor", sa.Float(), nullable=True),
        sa.Column("device_s", sa.Float(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_judgements_run_id")),
        sa.ForeignKeyConstraint(["source_hash"], ["sources.hash"], name=op.f("fk_judgements_source_hash")),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name=op.f("fk_judgements_submission_id")),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=op.f("fk_judgements_token_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judgements")),
    )
    op.create_index(op.f("ix_judgements_run_id_task"), "judgements", ["run_id", "task"], unique=False)
    op.create_index(op.f("ix_judgements_state_suite_id"), "judgements", ["state", "suite", "id"], unique=False)
    op.create_index(op.f("ix_judgements_submission_id"), "judgements", ["submission_id"], unique=False)
    op.create_index(op.f("ix_judgements_token_id_created_utc"), "judgements", ["token_id", "created_utc"], unique=False)
    op.create_table(
        "cells",
        sa.Column("judgement_id", sa.Integer(), nullable=False),
        sa.Column("dtype", sa.String(length=40), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("task", sa.String(length=300), nullable=False),
        sa.Column("outcome", sa.String(length=40), nullable=False),
        sa.Column("cases", sa.Integer(), nullable=False),
        sa.Column("passed", sa.Integer(), nullable=False),
        sa.Column("speedup_k", sa.Float(), nullable=True),
        sa.Column("speedup_e", sa.Float(), nullable=True),
        sa.Column("percent_of_floor", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["judgement_id"], ["judgements.id"], name=op.f("fk_cells_judgement_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_cells_run_id")),
        sa.PrimaryKeyConstraint("judgement_id", "dtype", name=op.f("pk_cells")),
    )
    op.create_index(op.f("ix_cells_run_id_task"), "cells", ["run_id", "task"], unique=False)
    op.create_table(
        "verdicts",
        sa.Column("judgement_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=40), nullable=False),
        sa.Column("failing", sa.Boolean(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("work", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["judgement_id"], ["judgements.id"], name=op.f("fk_verdicts_judgement_id")),
        sa.PrimaryKeyConstraint("judgement_id", "number", name=op.f("pk_verdicts")),
    )
    op.create_index(op.f("ix_verdicts_judgement_id_failing"), "verdicts", ["judgement_id", "failing"], unique=False)
