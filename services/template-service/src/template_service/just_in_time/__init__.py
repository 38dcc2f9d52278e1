"""Who joins an organization just in time, by a sign-in through a connector, and with which roles.

Owns the configuration of each organization: domains, connectors, the roles that joining gives, and which groups of a
provider give which roles. Does not own applying it (``template_service.provider_sign_ins``).
"""
