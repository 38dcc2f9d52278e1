"""Effective permissions of a user: all that tokens for it may carry, each with the roles that it comes from.

Owns the answer: API roles are here, template-service is asked for what organization roles grant. Does not own roles and
assignments (``roles``), nor tokens: token-service computes the same union from the events of both services.
"""
