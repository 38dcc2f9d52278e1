"""An OpenID provider that does what a test says: its metadata, its keys, and tokens with any claims.

Browsers sign in at once, as the person that the test has named: the authorization endpoint redirects back with a code.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote_plus, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode

CLIENT = "support-desk"
SECRET = "s3cr3t of the client + more"
METADATA, KEYS = "/realm/.well-known/openid-configuration", "/realm/keys"
AUTHORIZATION, TOKEN, USERINFO = "/realm/authorize", "/realm/token", "/realm/userinfo"
"""Paths."""


class Provider:
    """A provider on loopback; a context manager.

    Attributes:
        answers: By path, what is answered instead of what is right: bytes, or a status.
        pause_s: How long it takes for an answer.
        requests: The paths that were asked for.
        keys: The private keys that it publishes, by ``kid``.
        person: Who signs in: the claims of the ID token besides those of the protocol.
        token: Makes the ID token for a nonce instead.
        userinfo: More claims, which userinfo alone has.
        secret: Of the client; None for a public client.
        announced: Metadata that are added.
        forms: The forms that the token endpoint has received.
        asked: The parameters of the authorization endpoint, by code.
    """

    def __init__(self) -> None:
        self.person: dict[str, Any] = {"sub": "person-1"}
        self.token: Callable[[str], str] | None = None
        self.userinfo: dict[str, Any] = {}
        self.secret: str | None = SECRET
        self.announced: dict[str, Any] = {}
        self.forms: list[dict[str, str]] = []
        self.asked: dict[str, dict[str, str]] = {}
        self.answers: dict[str, bytes | int] = {}
        self.pause_s = 0.0
        self.requests: list[str] = []
        self.keys: dict[str, Any] = {"first": ec.generate_private_key(ec.SECP256R1())}

    def __enter__(self) -> Self:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                self._answer(path, lambda: provider._read(path, query, self.headers.get("Authorization", "")))

            def do_POST(self) -> None:
                form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
                credentials = self.headers.get("Authorization", "")
                self._answer(self.path, lambda: provider._redeemed(form, credentials))

            def _answer(self, path: str, right: Callable[[], bytes | int | str]) -> None:
                provider.requests.append(path)
                time.sleep(provider.pause_s)
                answer = provider.answers[path] if path in provider.answers else right()
                content, location = b"", f"{provider.issuer}/elsewhere"
                match answer:
                    case int():
                        status = answer
                    case str():
                        status, location = 303, answer
                    case _:
                        status, content = 200, answer
                self.send_response(status)
                if not content:
                    self.send_header("Location", location)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()  # how soon it stops
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @cached_property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/realm"

    @property
    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/keys",
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "code_challenge_methods_supported": ["S256"],
            **self.announced,
        }

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

    def code(self, asked: Mapping[str, str]) -> str:
        """Return a code for an authorization request, as a browser gets it by signing in."""
        code = secrets.token_urlsafe(16)
        self.asked[code] = dict(asked)
        return code

    def _read(self, path: str, query: str, authorization: str) -> bytes | int | str:
        match path:
            case _ if path == METADATA:
                return json.dumps(self.metadata).encode()
            case _ if path == KEYS:
                return json.dumps({"keys": [self.public(each) for each in self.keys]}).encode()
            case _ if path == AUTHORIZATION:
                asked = dict(parse_qsl(query))
                answer = {"code": self.code(asked), "state": asked.get("state", "")}
                if self.announced.get("authorization_response_iss_parameter_supported"):
                    answer["iss"] = self.issuer
                return f"{asked['redirect_uri']}?{urlencode(answer)}"
            case _ if path == USERINFO:
                return json.dumps({"sub": self.person["sub"], **self.userinfo}).encode() if authorization else 401
        return 404

    def _redeemed(self, form: dict[str, str], authorization: str) -> bytes | int:
        """Answer the token endpoint; a code works once, for its client and with its verifier."""
        self.forms.append(form)
        asked = self.asked.pop(form.get("code", ""), None)
        if self.secret is None:
            is_client = form.get("client_id") == CLIENT
        else:
            basic = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            client_id, _, secret = basic.partition(":")
            is_client = (unquote_plus(client_id), unquote_plus(secret)) == (CLIENT, self.secret)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if asked is None or not is_client or challenge.decode().rstrip("=") != asked["code_challenge"]:
            return 400
        now = int(time.time())
        claims = {"auth_time": now, "nonce": asked["nonce"], **self.person}
        token = self.id_token(claims.pop("sub"), **claims) if self.token is None else self.token(asked["nonce"])
        return json.dumps({"id_token": token, "access_token": "opaque", "token_type": "Bearer"}).encode()


def with_secret(token: str, secret: bytes) -> str:
    """Return a token signed with HS256, and a public key as the secret (CVE-2015-9235)."""
    payload = token.split(".")[1]
    header = base64url_encode(json.dumps({"alg": "HS256", "kid": "rsa"}).encode()).decode()
    mac = hmac.digest(secret, f"{header}.{payload}".encode(), "sha256")
    return f"{header}.{payload}.{base64url_encode(mac).decode()}"
