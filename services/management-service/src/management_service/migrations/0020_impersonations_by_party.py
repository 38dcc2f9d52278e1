"""Indexes of the entries about impersonations: the register walked all entries of a user or an application."""

from alembic import op

revision = "0020"
down_revision = "0019"

_COLUMNS = ("user_id", "application_id", "organization_id")


def upgrade() -> None:
    for column in _COLUMNS:
        op.execute(
            f"""CREATE INDEX audit_impersonations_by_{column}
            ON audit_entries (tenant_id, {column}, key, occurred_at, number)
            WHERE {column} IS NOT NULL AND subject_token_id IS NOT NULL"""
        )


def downgrade() -> None:
    for column in _COLUMNS:
        op.execute(f"DROP INDEX audit_impersonations_by_{column}")
