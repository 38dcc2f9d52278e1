"""The OpenAPI operations of raw ASGI routes, written by hand.

Owns texts and examples. Does not own what is accepted and refused (``token_service.grants``,
``token_service.endpoints``).
"""
