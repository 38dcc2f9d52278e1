"""Records the secrets and the answers of a test run, so that the answers can be searched for the secrets.

An ASGI middleware around the running stack: every test that uses HTTP feeds it implicitly.
"""

import base64
import contextlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

MINTED: Final = {
    "access_token": "access token",
    "refresh_token": "refresh token",
    "id_token": "ID token",
    "subjectToken": "subject token",
    "value": "client secret",
    "invitation": "invitation",
}
"""Members of answers that are secrets, with their kinds."""
_SHOWN_ONCE: Final = {
    re.compile(rb'<code id="secret">([^<]+)</code>'): "client secret",
    re.compile(rb'<code class="key">([A-Z2-7]+)</code>'): "key of an authenticator app",
    re.compile(rb"<li><code>([0-9A-Z-]{19})</code></li>"): "recovery code",
    re.compile(rb'{"code":"([0-9A-Z-]{24})"'): "enrolment code",
}
"""New secrets in pages of the console and of the sign-in, and in answers with a member of many uses; their kinds."""
_TYPED: Final = re.compile(rb'<input id="invitation"[^>]*>')
"""The field for the code of an invitation, which a refusal shows again with what was typed."""
_LINK: Final = re.compile(rb'<input type="hidden" name="link"[^>]*>')
"""The field of a page that was opened by a mailed link."""
_LINK_COOKIE: Final = re.compile(r"identity-(recovery|verification|registration)=[0-9A-Za-z]+")
"""The cookie that takes a mailed link out of the address."""
_SHORTEST: Final = 12
_MOST_OF_A_BODY: Final = 256 * 1024
_WORD: Final = re.compile(r"[0-9A-Za-z_-]{12,}")


class Recorder:
    """The secrets that were minted or presented, and the answers that must not contain them.

    Attributes:
        secrets: Every secret, with its kind.
        answers: The number of answers by status.
    """

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self.answers: Counter[int] = Counter()
        self._words: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._said: list[str] = []

    def keep(self, secret: str, kind: str) -> None:
        """Record a secret; of a JWT only the signature, which is unique."""
        if len(secret) < _SHORTEST or secret in self.secrets:
            return
        self.secrets[secret] = kind
        telling = secret.rpartition(".")[2] if secret.startswith("eyJ") else secret
        (self._words if _WORD.fullmatch(telling) else self._texts)[telling] = kind

    def keep_password_of(self, *urls: str) -> None:
        """Record the passwords in connection strings."""
        for url in urls:
            self.keep(urlsplit(url).password or "", f"password of {urlsplit(url).scheme}")

    def found(self, texts: Iterable[str]) -> list[str]:
        """Return a line for every secret found in one of the texts: its kind and its context."""
        lines = []
        for text in texts:
            for match in _WORD.finditer(text):
                kind = self._words.get(match[0])
                if kind is not None:
                    lines.append(f"{kind}: {text[max(0, match.start() - 60) : match.end()]}")
            lines += [f"{kind}: {text[:200]}" for secret, kind in self._texts.items() if secret in text]
        return lines

    @property
    def said(self) -> Iterable[str]:
        """Headers and body of every answer; only the headers of an answer that minted a secret."""
        return tuple(self._said)

    def around(self, app: AsgiApp) -> AsgiApp:
        """Return the app with its requests and answers recorded."""

        async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            request, answer = bytearray(), bytearray()
            status, headers = 0, ""

            async def receive_and_keep() -> Message:
                message = await receive()
                if len(request) < _MOST_OF_A_BODY:
                    request.extend(message.get("body", b""))
                return message

            async def keep_and_send(message: Message) -> None:
                nonlocal status, headers
                if message["type"] == "http.response.start":
                    status = message["status"]
                    headers = "\n".join(f"{name!r}: {value!r}" for name, value in message["headers"])
                else:
                    answer.extend(message.get("body", b""))
                await send(message)

            await app(scope, receive_and_keep, keep_and_send)
            self._take(scope, bytes(request), status, headers, bytes(answer))

        return recorded

    def _take(self, scope: Scope, request: bytes, status: int, headers: str, answer: bytes) -> None:
        self.answers[status] += 1
        self._said.append(_LINK_COOKIE.sub("", headers))
        accepted = status not in {400, 401}
        for name, value in scope["headers"]:
            if name == b"authorization" and accepted:
                self._keep_credentials(value.decode("latin-1"))
        if accepted:
            password = _members(request).get("password")
            if isinstance(password, str):
                self.keep(password, "password")
        minted = [(value, MINTED[name]) for name, value in _members(answer).items() if name in MINTED]
        minted += [(value.decode(), kind) for shown, kind in _SHOWN_ONCE.items() for value in shown.findall(answer)]
        minted = [(value, kind) for value, kind in minted if isinstance(value, str)]
        for value, kind in minted:
            self.keep(value, kind)
        if not minted:
            self._said.append(_LINK.sub(b"", _TYPED.sub(b"", answer)).decode("utf-8", "replace"))

    def _keep_credentials(self, header: str) -> None:
        scheme, _, credentials = header.partition(" ")
        if scheme.lower() == "bearer":
            self.keep(credentials, "bearer token")
        elif scheme.lower() == "basic":
            self.keep(credentials.rstrip("="), "basic credentials")
            with contextlib.suppress(ValueError):
                pair = base64.b64decode(credentials + "===").decode("utf-8", "replace")
                self.keep(pair.partition(":")[2], "client secret")


def _members(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
