"""Passwords: hashing with Argon2id, and checking a password for token-service. Hashes never leave this service.

Does not own setting a password, which changes a user (``users``).
"""
