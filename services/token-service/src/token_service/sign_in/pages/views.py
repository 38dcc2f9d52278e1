"""Rendering of pages: a template, and security headers."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import MediaType, Response

_HERE: Final = Path(__file__).parent
_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
STYLE: Final = (_HERE / "style.css").read_bytes()
STYLE_PATH: Final = "/sign-in/style.css"
_STYLESHEET: Final = f"{STYLE_PATH}?{hashlib.sha256(STYLE).hexdigest()[:12]}"


class Item(msgspec.Struct, frozen=True):
    """One requested permission.

    Attributes:
        text: In words.
        name: Of the permission, if the text is not its name.
        is_new: Whether it was not consented to before.
    """

    text: str
    name: str | None = None
    is_new: bool = False


class Group(msgspec.Struct, frozen=True):
    """Requested permissions of one kind."""

    title: str
    items: Sequence[Item]


class Choice(msgspec.Struct, frozen=True):
    """One organization that can be picked."""

    id: str
    name: str
    is_picked: bool


def page(
    template: str, *, status: int = 200, form_action: str = "", headers: dict[str, str] | None = None, **values: Any
) -> Response[str]:
    """Return a page.

    Args:
        template: Its name.
        status: HTTP status.
        form_action: Where else the answer to the page's form may redirect to: Chromium applies ``form-action`` to
            redirects after a post too.
        headers: Additional ones.
        values: For the template.
    """
    html = _ENVIRONMENT.get_template(template).render(stylesheet=_STYLESHEET, **values)
    return Response(
        html, status_code=status, media_type=MediaType.HTML, headers=page_headers(form_action) | (headers or {})
    )


def page_headers(form_action: str = "") -> dict[str, str]:
    """Return the headers that protect a page: no scripts, frames or foreign content; not cached, no referrer."""
    policy = (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; "
        f"form-action 'self' {form_action}".rstrip()
    )
    return {
        "Content-Security-Policy": policy,
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
