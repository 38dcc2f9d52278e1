"""The OpenID provider of a company, with one person who is always signed in; its client is public and uses PKCE."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

CLIENT_ID: Final = "stead"
_KEY_ID: Final = "1"
_ID_TOKEN_TTL_S: Final = 60
_POLL_S: Final = 0.05


class CompanyProvider:
    """Serves on loopback; a context manager.

    Args:
        person: Claims of the person.

    Attributes:
        groups: Those of the person.
        issuer: Its address.
        answers: When it said who had signed in, by the monotonic clock.
    """

    def __init__(self, person: Mapping[str, object]) -> None:
        self.groups: list[str] = []
        self.answers: list[float] = []
        self._person = person
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._requests: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                match path:
                    case "/.well-known/openid-configuration":
                        self._answer(provider._metadata())
                    case "/keys":
                        self._answer({"keys": [provider._public_key()]})
                    case "/authorize":
                        self._redirect(provider._authorize(dict(parse_qsl(query))))
                    case _:
                        self.send_error(HTTPStatus.NOT_FOUND)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = provider._redeem(dict(parse_qsl(body.decode())))
                if answer is None:
                    self._answer({"error": "invalid_grant"}, HTTPStatus.BAD_REQUEST)
                else:
                    self._answer(answer)

            def _answer(self, content: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _redirect(self, location: str) -> None:
                self.send_response(HTTPStatus.SEE_OTHER)
                self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _public_key(self) -> dict[str, Any]:
        return {**ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True), "kid": _KEY_ID, "use": "sig"}

    def _authorize(self, request: dict[str, str]) -> str:
        """Return where the browser goes with a code."""
        code = secrets.token_urlsafe(16)
        self._requests[code] = request
        return f"{request['redirect_uri']}?{urlencode({'code': code, 'state': request['state'], 'iss': self.issuer})}"

    def _redeem(self, form: dict[str, str]) -> dict[str, Any] | None:
        """Return the tokens for a code, which works once and with its verifier; None if it does not."""
        request = self._requests.pop(form.get("code", ""), None)
        hashed = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
        if request is None or request["code_challenge"] != challenge or form.get("client_id") != CLIENT_ID:
            return None
        now = int(time.time())
        claims = {
            **self._person,
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + _ID_TOKEN_TTL_S,
            "auth_time": now,
            "nonce": request["nonce"],
            "groups": self.groups,
        }
        self.answers.append(time.monotonic())
        id_token = jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": _KEY_ID})
        return {"id_token": id_token, "access_token": secrets.token_urlsafe(16), "token_type": "Bearer"}
