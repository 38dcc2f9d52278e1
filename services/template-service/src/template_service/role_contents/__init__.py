"""What an organization role grants: organization permissions, and scopes of API resources."""
