"""What sign-ins through connectors change here: who joins which organization, and the roles that groups give.

Owns what the last sign-in with each identity said, and applying it. Does not own the configuration
(``template_service.just_in_time``), nor the order in which sign-ins arrive (``template_service.management_events``).
"""
