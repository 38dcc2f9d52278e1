"""Signing in: from the authorization request to the code, and signing out.

Owns sessions, pending authorization requests, the sign-in and consent pages, and the throttling of passwords. Does not
own what a sign-in leaves behind for the client (``token_service.authorizations``).
"""
