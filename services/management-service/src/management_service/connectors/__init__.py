"""Connectors: OpenID providers whose people are users here, and the identities by which they are known.

Owns which providers are trusted for what, every call to them, and the judgement of their tokens. token-service, which
is shown such a token, asks for that over the bus, so that neither foreign tokens nor calls to foreign addresses come
near the signing keys.
"""
