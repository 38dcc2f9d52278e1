"""The tenant's policy of signing in: who may register, and whether users need a second factor.

Owns the configuration. Does not own its effect: registering (``links``), setting up factors (``factors``), and what a
sign-in must show, which token-service decides.
"""
