"""What people read and change in their own account, with a userinfo token of their own sign-in.

Owns what they may change, and what proves that it is them. Does not own users (``management_service.users``), the
guard of these routes (``identity_common.access.own_sign_in``), nor sessions and consents, which token-service has.
"""
