"""A small HTTP server that verifies access tokens for a reverse proxy: ``python -m stead.verifier``.

For nginx ``auth_request``, Caddy ``forward_auth``, Traefik ``forwardAuth`` and Envoy ``ext_authz``; see
docs/guides/proxy.md. Needs the extra ``verifier``.
"""
