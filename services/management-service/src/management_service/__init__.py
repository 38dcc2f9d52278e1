"""management-service: the Management API for users, applications, resources, roles and subject tokens."""
