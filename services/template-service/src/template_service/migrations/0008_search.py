"""The words of names in indexes for the search."""

from alembic import op

from identity_common.stores.words import CREATE_SEARCH_WORDS, DROP_SEARCH_WORDS, create_words_index

revision = "0008"
down_revision = "0007"

SEARCHED = ("organizations", "roles", "permissions")


def upgrade() -> None:
    op.execute(CREATE_SEARCH_WORDS)
    for table in SEARCHED:
        op.execute(create_words_index(table, "name", "description"))


def downgrade() -> None:
    for table in SEARCHED:
        op.execute(f"DROP INDEX {table}_by_words")
    op.execute(DROP_SEARCH_WORDS)
