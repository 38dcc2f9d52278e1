"""Members of organizations, users and machine-to-machine applications alike, and the organization roles they hold.

Owns memberships and role assignments, listed from both sides. Does not own the permissions that follow from them
(``template_service.member_permissions``), nor the users and applications (``template_service.known``).
"""
