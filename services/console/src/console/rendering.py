"""Renders pages: a template in a language, with navigation, notices and the configured branding."""

import copy
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from litestar import MediaType, Response
from litestar.datastructures import Cookie

from console.assets import ICON, SCRIPT, stylesheet
from console.avatars import hue, initials
from console.folding import folded
from console.languages import LANGUAGES
from console.sentences import linked, mentioned
from console.tickets import ticket_address
from identity_common.pages.headers import page_headers
from identity_common.pages.rendering import environments
from identity_common.version import VERSION

_OF_SCRIPTS: Final = "connect-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
TEMPLATES: Final = Path(__file__).parent / "templates"


def moment(milliseconds: int | None, zone: tzinfo = UTC) -> str:
    """Return a time as ``2026-11-23 08:15:00``, in UTC unless a zone is given; empty for none."""
    if milliseconds is None:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, zone).strftime("%Y-%m-%d %H:%M:%S")


class Look(msgspec.Struct, frozen=True):
    """Branding of an installation's pages.

    Attributes:
        name: In the header and the title of every page.
        color: Of buttons and links, ``#rrggbb``; empty for the default.
        logo_uri: URL of an image beside the name, on https; empty for the default.
        ticket_url: Template of the URLs of tickets; empty for no links.
    """

    name: str
    color: str = ""
    logo_uri: str = ""
    ticket_url: str = ""


class Pages:
    """Renders pages of a site with one branding.

    Attributes:
        style: The stylesheet.
    """

    def __init__(self, look: Look, *, home: str = "/console") -> None:
        self.style = stylesheet(look.color)
        self._home = home
        self._logo_uri = look.logo_uri
        self._environments = environments(
            TEMPLATES,
            LANGUAGES,
            stylesheet=self.style.address,
            favicon=ICON.address,
            script=SCRIPT.address,
            brand=look.name,
            logo=look.logo_uri,
            version=VERSION,
            moment=moment,
            initials=initials,
            hue=hue,
            ticket_address=partial(ticket_address, look.ticket_url),
            mentioned=mentioned,
            linked=linked,
            folded=folded,
            N_=str,  # marks texts of tables
        )

    def at(self, home: str) -> Self:
        """Return the pages of the site with this first page."""
        pages = copy.copy(self)
        pages._home = home  # noqa: SLF001 - of the same class
        return pages

    def render(
        self,
        template: str,
        language: str,
        *,
        status: int = 200,
        cookies: tuple[Cookie, ...] = (),
        headers: Mapping[str, str] | None = None,
        **values: Any,
    ) -> Response[str]:
        """Return a page.

        Args:
            template: Its name.
            language: Its tag.
            status: HTTP status.
            cookies: To set.
            headers: Additional ones.
            values: For the template; names that every page has, such as ``version``, are refused.
        """
        environment = self._environments[language]
        if hidden := values.keys() & environment.globals.keys():
            raise ValueError(f"these values would hide those of every page: {sorted(hidden)}")
        nonce = secrets.token_urlsafe(16)
        html = environment.get_template(template).render(nonce=nonce, home=self._home, **values)
        protection = page_headers(nonce=nonce, images=[self._logo_uri] if self._logo_uri else [])
        protection["Referrer-Policy"] = "same-origin"  # with no-referrer, the Origin of our own forms would be null
        protection["Content-Security-Policy"] += f"; {_OF_SCRIPTS}"
        return Response(
            html,
            status_code=status,
            media_type=MediaType.HTML,
            headers={**protection, "Content-Language": language, **(headers or {})},
            cookies=list(cookies),
        )


def redirect(location: str, *, cookies: tuple[Cookie, ...] = ()) -> Response[str]:
    """Redirect the browser with 303, so that it does not repeat a form."""
    headers = {"Location": location, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return Response("", status_code=303, media_type=MediaType.TEXT, headers=headers, cookies=list(cookies))
