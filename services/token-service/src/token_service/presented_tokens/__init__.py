"""Validates tokens that are presented to this service: subject tokens, actor tokens, access tokens.

Owns signature and audience checks, the taking of subject tokens, liveness and revocations. Does not own what a token
may be used for (``token_service.grants``, ``token_service.endpoints``), nor codes and refresh tokens.
"""
