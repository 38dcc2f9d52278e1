"""PostgreSQL and Redis as the services use them: connections, key lookups, coalescing, migrations."""
