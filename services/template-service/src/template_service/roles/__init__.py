"""Organization roles, and what they grant: organization permissions, scopes of API resources, or both.

Owns the roles and their contents. Does not own who holds them (``template_service.members``).
"""
