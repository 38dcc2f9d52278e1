"""Alembic's environment: runs revisions on the connection, and in the transaction, that ``migrate`` has opened."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
