"""Members of organizations, users and machine-to-machine applications alike, and the organization roles they hold.

Owns who belongs to which organization and with which roles, from both sides. Does not own what follows from it
(``template_service.member_permissions``) nor who the members are (``template_service.known``).
"""
