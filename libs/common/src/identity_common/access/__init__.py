"""Access to ``/api``: the bearer token of a request, its scope, and whether it was revoked."""
