"""One request of a browser: cookies, form, address; and redirects."""

import hmac
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from litestar import MediaType, Request, Response
from litestar.datastructures import Cookie

from identity_common.http.auditing import recorded_user_agent
from identity_common.http.client_address import client_address
from identity_common.http.request_body import read_whole
from identity_common.pages.cookies import Cookies
from token_service.audit import Origin
from token_service.sign_in.pages.cookies import BROWSER, DEVICE, SESSION
from token_service.sign_in.pages.languages import LANGUAGES
from token_service.sign_in.request import MAX_BYTES, BadRequest, Parameters, parse_parameters

SEE_OTHER: Final = 303


class Browser:
    """The browser of a request.

    Args:
        request: The request. The framework's parsers of cookies and forms are not used: they cache what they read, and
            check the size of a body after reading it.
        cookies: Of this address.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``; 0 to ignore the header.
    """

    def __init__(self, request: "Request", cookies: Cookies, *, trusted_proxies: int) -> None:  # type: ignore[type-arg]
        self._request = request
        self._cookies = cookies
        headers = request.scope["headers"]
        self.session_cookie = cookies.read(headers, SESSION)
        self.secret = cookies.read(headers, BROWSER)
        self.device_cookie = cookies.read(headers, DEVICE)
        self.is_forwarded = any(name == b"x-forwarded-for" for name, _ in headers)
        self.address = client_address(request.scope, trusted_proxies=trusted_proxies)

    def cookie(self, name: str) -> str | None:
        """Return another cookie of ours, if the browser sent exactly one."""
        return self._cookies.read(self._request.scope["headers"], name)

    @property
    def origin(self) -> Origin:
        """Where the request came from, for the audit trail."""
        return Origin(self.address, recorded_user_agent(self._request.scope))

    def query(self) -> Parameters:
        """Return the parameters of the address.

        Raises:
            BadRequest: They cannot be read.
        """
        return self._query

    def language(self, parameters: Parameters) -> str:
        """Return the language of a page that answers these parameters."""
        return LANGUAGES.choose(parameters.get("ui_locales"), self._request.headers.get("Accept-Language"))

    @cached_property
    def _query(self) -> Parameters:
        return parse_parameters(self._request.scope["query_string"])

    @property
    def is_post(self) -> bool:
        """Whether a form was sent."""
        return bool(self._request.method == "POST")

    async def form(self) -> Parameters:
        """Return the form that was sent.

        Raises:
            BadRequest: The body is not a form, or cannot be read.
        """
        return parse_parameters(await self.body())

    async def body(self) -> bytes:
        """Return the form that was sent, as sent.

        Raises:
            BadRequest: The body is not a form, or cannot be read.
        """
        content_type = self._request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if content_type != "application/x-www-form-urlencoded":
            raise BadRequest("the body must be application/x-www-form-urlencoded")
        body = await read_whole(self._request.receive, at_most=MAX_BYTES)
        if body is None:
            raise BadRequest("the request ended before its body")
        return body


def language_of(request: "Request") -> str:  # type: ignore[type-arg]
    """Return the language of a page that answers a request which may be unreadable."""
    try:
        ui_locales = parse_parameters(request.scope["query_string"]).get("ui_locales")
    except BadRequest:
        ui_locales = None
    return LANGUAGES.choose(ui_locales, request.headers.get("Accept-Language"))


def is_from_page(form: Parameters, csrf_token: str) -> bool:
    """Return whether a form was sent by our own page."""
    return hmac.compare_digest((form.get("csrf_token") or "").encode(), csrf_token.encode())


def redirect(location: str, *, cookies: Sequence[Cookie] = ()) -> Response[str]:
    """Redirect the browser with 303 (RFC 9700 section 4.12), so that it does not repeat a form."""
    headers = {"Location": location, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return Response("", status_code=SEE_OTHER, media_type=MediaType.TEXT, headers=headers, cookies=list(cookies))
