"""Tokens that this service signs: claims, scopes, signing keys, and ID tokens that come back as hints.

Does not own who gets a token (``token_service.grants``), nor whether a presented one is accepted
(``token_service.presented_tokens``).
"""
