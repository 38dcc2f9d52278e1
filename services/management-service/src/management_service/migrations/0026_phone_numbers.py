"""Phone numbers are unique whatever their notation. A number that two users have is logged, and stays with both."""

from alembic import op

from management_service.users.phone_keys import canonicalize_phone_keys

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    canonicalize_phone_keys(op.get_bind())


def downgrade() -> None:
    op.execute("UPDATE users SET primary_phone_key = ltrim(primary_phone, '+') WHERE primary_phone IS NOT NULL")
