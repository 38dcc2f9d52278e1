"""Organizations.

Owns their names, settings and branding. Does not own their members (``template_service.members``).
"""
