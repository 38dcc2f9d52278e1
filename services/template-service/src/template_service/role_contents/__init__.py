"""Grants of organization roles: organization permissions, and scopes of API resources.

Owns the grants, the locks around them, and the event of a role. Does not own creating and deleting the permissions
(``template_service.permissions``) and the roles (``template_service.roles``).
"""
