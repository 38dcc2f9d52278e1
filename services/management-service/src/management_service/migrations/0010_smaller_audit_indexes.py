"""Partial indexes of the audit trail, without the entries that lack the member."""

from alembic import op

revision = "0010"
down_revision = "0009"

_FILTERS = (
    *("operation", "application_id", "user_id", "written_user_id"),
    *("actor_id", "organization_id", "subject_token_id"),
)


def upgrade() -> None:
    for column in _FILTERS:
        _replace(column, f" WHERE {column} IS NOT NULL")


def downgrade() -> None:
    for column in _FILTERS:
        _replace(column, "")


def _replace(column: str, condition: str) -> None:
    op.execute(f"DROP INDEX audit_entries_by_{column}")
    op.execute(
        f"CREATE INDEX audit_entries_by_{column} ON audit_entries (tenant_id, {column}, occurred_at, number){condition}"
    )
