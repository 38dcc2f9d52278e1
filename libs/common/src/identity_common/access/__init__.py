"""Access to ``/api``: the bearer token of a request, its scope, its revocation, and whether its caller is live."""
