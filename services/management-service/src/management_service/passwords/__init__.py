"""Passwords: hashing with Argon2id, accepting digests made elsewhere, and checking a password for token-service.

Hashes never leave this service.

Owns the limit on attempts per account: only this service knows which names belong to one account.

Does not own setting a password, which changes a user (``users``).
"""
