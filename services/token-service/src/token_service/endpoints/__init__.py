"""Endpoints of this service under ``/oidc``, ``/.well-known`` and ``/api``: parse, call, render.

Owns no rules and no store. Does not own ``/oidc/auth`` and the pages (``token_service.sign_in``), nor the OpenAPI texts
(``token_service.openapi``).
"""
