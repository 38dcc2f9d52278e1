"""Ends of impersonations: recorded here, published on the bus, and turned into revocations by token-service.

Owns the rules of who may end which. Does not own when they begin (``management_service.subject_tokens``), nor what an
end revokes.
"""
