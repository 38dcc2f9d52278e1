"""Subject tokens: one-time tokens that stand for a user until an application exchanges them.

Owns minting. Does not own exchanging: only token-service, with its Redis user, can take a token.
"""
