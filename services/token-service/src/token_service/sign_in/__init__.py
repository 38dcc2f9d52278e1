"""Signing in: from the authorization request to the code, and signing out.

Owns sessions, pending authorization requests, the sign-in and consent pages, device cookies, and the throttling of
password attempts per address. Does not own the throttling per account, which management-service does, where the hashes
are, nor what a sign-in grants to the client (``token_service.authorizations``).
"""
