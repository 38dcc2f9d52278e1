"""Verification of access tokens: their rules, the issuer's keys, the ASGI middleware, and the not-valid feed."""
