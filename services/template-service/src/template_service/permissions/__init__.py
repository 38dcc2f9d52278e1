"""Organization permissions: named in the template, granted by roles, carried as scopes by organization tokens.

Owns creating, changing and deleting them. Does not own what grants them (``template_service.role_contents``).
"""
