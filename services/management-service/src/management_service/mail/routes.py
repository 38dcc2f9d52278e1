"""``/api/mail/failures``, and ``/mail``: the folder that keeps mail in development."""

import email
import ipaddress
import re
from email.message import EmailMessage
from email.policy import SMTPUTF8
from html import escape
from typing import Any, Final
from urllib.parse import urlsplit

from litestar import Controller, MediaType, Request, Response, get
from litestar.di import NamedDependency
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from identity_common.http.client_address import client_address
from identity_common.http.listing import PAGED, Listing
from identity_common.http.openapi.declarations import documented
from management_service.mail.rules import MailFailure
from management_service.mail.service import MailFailures
from management_service.mail.transports import Folder

_ID: Final = re.compile(r"[0-9a-z]{21}")
_HEADERS: Final = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_OURS: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_OF_A_MAIL: Final = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
</head>
<body>
<main>
{content}
</main>
</body>
</html>
"""

AnyRequest = Request[Any, Any, Any]


class MailController(Controller):
    """Mail."""

    path = "/mail"
    tags = ("Mail",)
    dependencies = PAGED

    @get(
        "/failures",
        operation_id="ListMailFailures",
        summary="List mail that was given up",
        opt=documented(refuses=(422,)),
    )
    async def list_failures(
        self, listing: NamedDependency[Listing], mail_failures: NamedDependency[MailFailures]
    ) -> Response[list[MailFailure]]:
        """List the mail that was refused for good, or not accepted in time, the newest first.

        The last 200 of 30 days are kept, without their texts and links. ``q`` searches in the addresses and the kinds.
        """
        found, total = await mail_failures.list_failures(listing.page)
        return listing.answer(found, total)


def folder_routes(folder: Folder, *, base_url: str, trusted_proxies: int) -> list[HTTPRouteHandler]:
    """Return the pages of the folder, for clients on this machine alone: its mails sign in."""
    guard = _ThisMachine(base_url, trusted_proxies=trusted_proxies)

    @get("/mail", include_in_schema=False, sync_to_thread=True)
    def inbox(request: AnyRequest) -> Response[str]:
        guard.admit(request)
        lines = [_line(path.stem, _read(path.read_bytes())) for path in folder.newest()]
        listed = f"<ul>\n{''.join(lines)}</ul>" if lines else "<p>No mail was sent yet.</p>"
        return _page("Mail", f"<h1>Mail</h1>\n<p>Kept here instead of being sent, the newest first.</p>\n{listed}")

    @get("/mail/{mail_id:str}", include_in_schema=False, sync_to_thread=True)
    def message(request: AnyRequest, mail_id: FromPath[str]) -> Response[str]:
        guard.admit(request)
        mail = _found(folder, mail_id)
        subject = escape(str(mail["Subject"]))
        fields = "".join(f"<dt>{name}</dt><dd>{escape(str(mail[name]))}</dd>" for name in ("From", "To", "Date"))
        return _page(
            subject,
            f'<p><a href="/mail">Mail</a></p>\n<h1>{subject}</h1>\n<dl>{fields}</dl>\n'
            f'<p><a href="/mail/{mail_id}/html">As HTML</a></p>\n<pre>{_with_links(_part(mail, "plain"))}</pre>',
        )

    @get("/mail/{mail_id:str}/html", include_in_schema=False, sync_to_thread=True)
    def as_html(request: AnyRequest, mail_id: FromPath[str]) -> Response[str]:
        guard.admit(request)
        return _answer(_part(_found(folder, mail_id), "html"), policy=_OF_A_MAIL)

    return [inbox, message, as_html]


class _ThisMachine:
    """Admits clients on this machine, by the name of this machine: another page must not read what is here.

    Args:
        base_url: With a loopback host, a private address counts as this machine: containers publish the port on
            loopback, and see the address of the bridge.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``.
    """

    def __init__(self, base_url: str, *, trusted_proxies: int) -> None:
        self._host = urlsplit(base_url).hostname or ""
        self._trusted_proxies = trusted_proxies

    def admit(self, request: AnyRequest) -> None:
        if not (self._is_near(request) and self._is_named(request)):
            raise NotFoundException

    def _is_near(self, request: AnyRequest) -> bool:
        if not self._trusted_proxies and "x-forwarded-for" in request.headers:
            return False
        try:
            address = ipaddress.ip_address(client_address(request.scope, trusted_proxies=self._trusted_proxies))
        except ValueError:
            return False
        return address.is_loopback or (bool(self._trusted_proxies) and address.is_private and _is_loopback(self._host))

    def _is_named(self, request: AnyRequest) -> bool:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        return host == self._host or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    return host in {"localhost", "127.0.0.1", "::1"}


def _read(content: bytes) -> EmailMessage:
    return email.message_from_bytes(content, policy=SMTPUTF8)


def _found(folder: Folder, mail_id: str) -> EmailMessage:
    if _ID.fullmatch(mail_id) is None:
        raise NotFoundException
    content = folder.read(mail_id)
    if content is None:
        raise NotFoundException
    return _read(content)


def _line(mail_id: str, mail: EmailMessage) -> str:
    to, subject, date = (escape(str(mail[name])) for name in ("To", "Subject", "Date"))
    return f'<li><a href="/mail/{mail_id}">{subject}</a>, {to}, {date}</li>\n'


def _part(mail: EmailMessage, kind: str) -> str:
    part = mail.get_body((kind,))
    return str(part.get_content()) if part is not None else ""


def _with_links(text: str) -> str:
    return re.sub(r"https?://[!-~]+", lambda found: f'<a href="{found[0]}">{found[0]}</a>', escape(text))


def _page(title: str, content: str) -> Response[str]:
    return _answer(_PAGE.format(title=title, content=content), policy=_OURS)


def _answer(content: str, *, policy: str) -> Response[str]:
    headers = {**_HEADERS, "Content-Security-Policy": policy}
    return Response(content, media_type=MediaType.HTML, headers=headers)
