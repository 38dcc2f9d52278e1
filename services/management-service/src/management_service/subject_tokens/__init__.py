"""Subject tokens: one-time tokens that stand for a user until an application exchanges them.

Owns minting. Does not own taking and exchanging them: that is token-service's, and its Redis user's alone.
"""
