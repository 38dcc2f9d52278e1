"""API roles: the scopes that they grant, and the users and applications that hold them."""
