"""Revisions of token-service's database, oldest first."""
