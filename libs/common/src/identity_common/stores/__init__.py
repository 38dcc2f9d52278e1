"""PostgreSQL and Redis as the services use them: connections, key lookups, coalescing, migrations."""

from identity_common.lean_imports import without

with without("opentelemetry.sdk.metrics"):  # redis-py loads it for metrics that it could report: 2 MB
    from redis.exceptions import RedisError as RedisError
