"""Sending requests over HTTP, and what every response of the service has."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import httpx2 as httpx

from stead._transport.operations import Request
from stead._transport.tls import default_ssl_context
from stead.errors import Unavailable

_UNAVAILABLE: Final = frozenset({502, 503, 504})
_NO_HEADERS: Final[Mapping[str, str]] = {}
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


def issuer_at(base_url: str) -> str:
    """Return the issuer of a service: the ``iss`` of its tokens.

    Raises:
        ValueError: ``base_url`` is not an http or https URL, or has credentials, a query or a fragment.
    """
    return f"{checked_base_url(base_url)}/oidc"


def checked_base_url(base_url: str) -> str:
    """Return the base address of the service without a trailing slash.

    Raises:
        ValueError: It is not an http or https URL, or has credentials, a query or a fragment.
    """
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        raise ValueError("base_url must be a URL") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ValueError("base_url must be an http or https URL without credentials, query or fragment")
    return base_url.rstrip("/")


def send(http: httpx.Client, base_url: str, request: Request, headers: Mapping[str, str]) -> httpx.Response:
    """Send a request. Redirects are not followed, so that credentials are never sent elsewhere.

    Raises:
        Unavailable: The service did not answer.
    """
    try:
        return http.request(**_arguments(base_url, request, headers, http.timeout))
    except httpx.RequestError as error:
        raise _no_answer(base_url, request, error) from None


async def async_send(
    http: httpx.AsyncClient, base_url: str, request: Request, headers: Mapping[str, str]
) -> httpx.Response:
    """Send a request in a task; see ``send``.

    Raises:
        Unavailable: The service did not answer.
    """
    try:
        return await http.request(**_arguments(base_url, request, headers, http.timeout))
    except httpx.RequestError as error:
        raise _no_answer(base_url, request, error) from None


def sender(
    http: httpx.Client | None, *, base_url: str = "", headers: Mapping[str, str] = _NO_HEADERS, timeout_s: float
) -> Callable[[Request], httpx.Response]:
    """Return ``send`` for one address; each request has a client of its own if ``http`` is None."""

    def send_to(request: Request) -> httpx.Response:
        if http is not None:
            return send(http, base_url, request, headers)
        with httpx.Client(timeout=timeout_s, verify=default_ssl_context()) as own:
            return send(own, base_url, request, headers)

    return send_to


def async_sender(
    http: httpx.AsyncClient | None, *, base_url: str = "", headers: Mapping[str, str] = _NO_HEADERS, timeout_s: float
) -> Callable[[Request], Awaitable[httpx.Response]]:
    """Return ``async_send`` for one address; each request has a client of its own if ``http`` is None."""

    async def send_to(request: Request) -> httpx.Response:
        if http is not None:
            return await async_send(http, base_url, request, headers)
        async with httpx.AsyncClient(timeout=timeout_s, verify=default_ssl_context()) as own:
            return await async_send(own, base_url, request, headers)

    return send_to


def _arguments(base_url: str, request: Request, headers: Mapping[str, str], timeout: httpx.Timeout) -> dict[str, Any]:
    bearer = {} if request.access_token is None else {"Authorization": f"Bearer {request.access_token}"}
    return {
        "method": request.method,
        "url": base_url + request.path,
        "params": request.params,
        "content": request.content,
        "headers": {"Accept": "application/json", **request.headers, **headers, **bearer},
        "follow_redirects": False,
        "timeout": _with_long_poll(timeout, request.long_poll_s),
    }


def _with_long_poll(timeout: httpx.Timeout, long_poll_s: float) -> httpx.Timeout:
    if timeout.read is None or not long_poll_s:
        return timeout
    return httpx.Timeout(
        connect=timeout.connect, read=timeout.read + long_poll_s, write=timeout.write, pool=timeout.pool
    )


def _no_answer(base_url: str, request: Request, error: httpx.RequestError) -> Unavailable:
    # Only the error's type, and no cause: the text of some transport errors quotes the rejected header.
    return Unavailable(f"{request.method} {base_url}{request.path}: {type(error).__name__}")


def raise_if_unavailable(answer: httpx.Response) -> None:
    """Raise if the response is a 502, 503 or 504.

    Raises:
        Unavailable: It is.
    """
    if answer.status_code in _UNAVAILABLE:
        raise Unavailable(
            f"{answer.request.method} {shown_url(answer.request.url)}: {answer.status_code}",
            retry_after=retry_after(answer),
            request_id=request_id(answer),
        )


def shown_url(url: httpx.URL) -> str:
    """Return an address as an error may show it: without credentials, query and fragment."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def retry_after(answer: httpx.Response) -> float | None:
    """Return ``Retry-After`` in seconds (RFC 9110 section 10.2.3); None if absent or a date."""
    value = answer.headers.get("Retry-After", "")
    return float(value) if re.fullmatch(r"[0-9]{1,9}", value) else None


def request_id(answer: httpx.Response) -> str | None:
    """Return a well-formed ``X-Request-Id``; None otherwise."""
    value: str = answer.headers.get("X-Request-Id", "")
    return value if _REQUEST_ID.fullmatch(value) else None
