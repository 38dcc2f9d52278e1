"""The tenant's policy of signing in: who may register, and from which e-mail domains; off by default.

Owns the configuration. Does not own registering itself (``registrations``).
"""
