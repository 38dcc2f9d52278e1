"""API roles: the scopes they grant, and the users and applications that hold them."""
