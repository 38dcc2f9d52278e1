"""PostgreSQL and Redis as the services use them: connections, look-ups by key, coalescing, migrations."""
