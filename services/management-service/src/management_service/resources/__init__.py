"""API resources and their scopes, which are the API permissions."""
