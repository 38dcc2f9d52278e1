"""Passwords: hashing with Argon2id, and checking a password for token-service. Hashes never leave this service.

Owns the limit of attempts per account: only here are all names of an account known to be one.

Does not own setting a password, which changes a user (``users``).
"""
