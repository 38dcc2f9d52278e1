"""Organizations: what an administrator says of them.

Does not own who belongs to them (``template_service.members``).
"""
