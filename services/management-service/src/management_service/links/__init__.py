"""Links in mails, each of which is spent once.

Owns what a link is and the replies to token-service, whose pages the links lead to. Does not own the mails
(``identity_common.wire.mail``) or what an account is (``users``).
"""
