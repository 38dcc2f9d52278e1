"""The custom-claims function in use: its arguments, its call for each access token, and the handling of its result.

Owns when a worker is reserved and what a failure means for the token, the recording of inputs, the list of failures,
the sandbox that runs the script, and the replies to management-service, which stores the function. Does not own the
signature (``token_service.tokens``).
"""

from token_service.claims_function.custom_claims import CustomClaims, Reservation

__all__ = ["CustomClaims", "Reservation"]
