"""The floor's app: raw ASGI that parses the form, takes the subject token, signs a token and answers.

It accepts the requests of the token endpoint and uses the same parts (parser, coalesced Redis commands). What the token
endpoint costs in addition is its decisions: who asks, for what, and whether that is allowed. However, the floor signs
each token immediately; token-service signs all tokens of a tick of the event loop in one batch.
"""

import base64
import gc
import os
from typing import Final

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.subject_tokens import subject_token_key
from token_service.grants.form import parse_form
from token_service.tokens.claims import AccessTokenClaims

_redis = RedisCommands(connect_redis(os.environ["REDIS_URL"]))
_key = ec.generate_private_key(ec.SECP256R1())
_ECDSA: Final = ec.ECDSA(hashes.SHA256())
_claims = AccessTokenClaims(
    iss="http://127.0.0.1:9/oidc",
    sub="u" * 12,
    aud="https://orders.example.com/api",
    client_id="c" * 21,
    iat=1_800_000_000,
    exp=1_800_003_600,
    jti="j" * 32,
    scope="read:orders write:orders",
    gty="urn:ietf:params:oauth:grant-type:token-exchange",
)


async def app(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Handle a POST as a token exchange, and answer anything else with 200, as the floor has no readiness check."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "http" and scope["method"] == "POST":
        await _exchange(receive, send)
    else:
        await _answer(send, 200, b"{}")


async def _exchange(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        body += message["body"]
        more = message["more_body"]
    form = parse_form(body)
    taken = await _redis.execute("GETDEL", subject_token_key("default", form.require("subject_token")))
    if taken is None:
        await _answer(send, 400, b'{"error":"invalid_request"}')
        return
    await _answer(send, 200, b'{"access_token":"%s"}' % _signed(_claims))


def _signed(claims: AccessTokenClaims) -> bytes:
    signing_input = _HEADER + b"." + _base64url(msgspec.json.encode(claims))
    r, s = decode_dss_signature(_key.sign(signing_input, _ECDSA))
    return signing_input + b"." + _base64url(r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def _base64url(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")


_HEADER: Final = _base64url(msgspec.json.encode({"alg": "ES256", "typ": "at+jwt", "kid": "f" * 43}))


async def _answer(send: ASGISendCallable, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _lifespan(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    await receive()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # as the services do
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})
