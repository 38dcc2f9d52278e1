"""The OpenAPI operations of the raw ASGI routes (docs/decisions/0006): no signature declares them.

Owns texts and examples. Does not own what is accepted and refused (``token_service.grants``,
``token_service.endpoints``).
"""
