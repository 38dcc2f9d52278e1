"""Judges a token that is presented to us: its form, its liveness, and whether it was revoked."""
