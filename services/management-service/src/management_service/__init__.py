"""Management API: users, applications, resources, roles, subject tokens."""
