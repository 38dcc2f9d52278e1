"""Members of organizations, users and machine-to-machine applications alike, and the organization roles they hold.

Owns memberships and role assignments, listed from both sides. Does not own what sign-ins through connectors
change (``template_service.provider_sign_ins``), the permissions that follow from all of these
(``template_service.member_permissions``), nor the users and applications (``template_service.known``).
"""
