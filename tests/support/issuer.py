"""A minimal real issuer of access tokens: one ES256 key, its JWKS over HTTP, arbitrary claims."""

import base64
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature


def base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


class Issuer:
    """Serves its keys at ``{base_url}/oidc/jwks`` while it runs, and signs any claims."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.kid = uuid.uuid4().hex
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://localhost:{self._server.server_address[1]}"

    @property
    def issuer(self) -> str:
        return f"{self.base_url}/oidc"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def jwks(self) -> bytes:
        numbers = self.key.public_key().public_numbers()
        key = {
            "kty": "EC",
            "crv": "P-256",
            "use": "sig",
            "alg": "ES256",
            "kid": self.kid,
            "x": base64url(numbers.x.to_bytes(32, "big")),
            "y": base64url(numbers.y.to_bytes(32, "big")),
        }
        return msgspec.json.encode({"keys": [key]})

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        """Return a JWT over exactly these claims; the header is that of an access token unless told otherwise."""
        protected = {"alg": "ES256", "typ": "at+jwt", "kid": self.kid, **header}
        text = ".".join(base64url(msgspec.json.encode(part)) for part in (protected, claims))
        r, s = decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def access_token(
        self,
        *,
        client_id: str,
        audience: str,
        scope: str,
        subject: str | None = None,
        issued_at: float | None = None,
        **claims: Any,
    ) -> str:
        """Return a valid access token, of a machine-to-machine client unless a subject is given."""
        now = int(time.time() if issued_at is None else issued_at)
        return self.sign(
            {
                "iss": self.issuer,
                "sub": subject or client_id,
                "aud": audience,
                "client_id": client_id,
                "iat": now,
                "exp": now + 3600,
                "jti": uuid.uuid4().hex,
                "scope": scope,
                **claims,
            }
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/oidc/jwks"
                self.send_response(200 if found else 404)
                self.send_header("Cache-Control", "max-age=300")
                self.end_headers()
                if found:
                    self.wfile.write(issuer.jwks())

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler
