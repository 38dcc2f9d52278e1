"""Organization roles, and what they grant: organization permissions, scopes of API resources, or both.

Owns creating, changing and deleting them. Does not own the tables of grants (``template_service.role_contents``) nor
which members hold a role (``template_service.members``).
"""
