"""The tenant's policy of impersonations: what they need, and which users they exclude; all of it is off by default.

Owns the configuration. Does not own its effect: minting (``subject_tokens``) reads it from the table, and token-service
from the bus. Neither decides which actor may act as which subject: that is up to the integrator's backend.
"""
