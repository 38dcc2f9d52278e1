"""A small HTTP server that verifies access tokens for a reverse proxy: ``python -m verifier``.

For nginx ``auth_request``, Caddy ``forward_auth``, Traefik ``forwardAuth`` and Envoy ``ext_authz``; see
docs/guides/proxy.md. It owns no data and imports nothing of the services.
"""
