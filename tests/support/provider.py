"""An OpenID provider that does what a test says: its metadata, its keys, and tokens with any claims."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

CLIENT = "support-desk"
METADATA, KEYS = "/realm/.well-known/openid-configuration", "/realm/keys"
"""Paths."""


class Provider:
    """A provider on loopback; a context manager.

    Attributes:
        answers: By path, what is answered instead of what is right: bytes, or a status.
        pause_s: How long it takes for an answer.
        requests: The paths that were asked for.
        keys: The private keys that it publishes, by ``kid``.
    """

    def __init__(self) -> None:
        self.answers: dict[str, bytes | int] = {}
        self.pause_s = 0.0
        self.requests: list[str] = []
        self.keys: dict[str, Any] = {"first": ec.generate_private_key(ec.SECP256R1())}

    def __enter__(self) -> Self:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.requests.append(self.path)
                time.sleep(provider.pause_s)
                answer = provider.answers.get(self.path, provider._right(self.path))
                self.send_response(answer if isinstance(answer, int) else 200)
                if isinstance(answer, int):
                    self.send_header("Location", f"{provider.issuer}/elsewhere")
                    answer = b""
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @cached_property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/realm"

    @property
    def metadata(self) -> dict[str, Any]:
        return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}

    def public(self, key_id: str, **changed: Any) -> dict[str, Any]:
        """Return a key as the provider publishes it."""
        key = self.keys[key_id].public_key()
        algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPublicKey) else ECAlgorithm
        return {**algorithm.to_jwk(key, as_dict=True), "kid": key_id, "use": "sig", **changed}

    def id_token(
        self,
        subject: str,
        *,
        key_id: str = "first",
        key: Any = None,
        algorithm: str = "ES256",
        headers: Mapping[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Return a token for the client; a claim or header that is None is left out."""
        now = int(time.time())
        all_claims = {"iss": self.issuer, "sub": subject, "aud": CLIENT, "iat": now, "exp": now + 300, **claims}
        given = {name: value for name, value in all_claims.items() if value is not None}
        key = self.keys[key_id] if key is None else key
        named = {name: value for name, value in {"kid": key_id, **(headers or {})}.items() if value is not None}
        return jwt.encode(given, key, algorithm=algorithm, headers=named)

    def _right(self, path: str) -> bytes | int:
        if path == METADATA:
            return json.dumps(self.metadata).encode()
        if path == KEYS:
            return json.dumps({"keys": [self.public(each) for each in self.keys]}).encode()
        return 404
