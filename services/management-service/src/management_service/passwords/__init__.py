"""Passwords: Argon2id hashing, and answering whether a password is right. Hashes never leave this service.

Does not own setting a password, which changes a user (``users``).
"""
