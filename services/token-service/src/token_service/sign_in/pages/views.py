"""Rendering of pages: a template in a language, the look of an application, and security headers."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from litestar import MediaType, Response

from identity_common.pages.headers import page_headers
from identity_common.pages.rendering import environments
from identity_common.wire.events import ApplicationState
from token_service.sign_in.pages.assets import ICON, PASSKEY_SCRIPT, SCRIPT, STYLE, accent_address
from token_service.sign_in.pages.languages import LANGUAGES
from token_service.sign_in.redirect_uris import home_of

TEMPLATES: Final = Path(__file__).parent / "templates"


_ENVIRONMENTS: Final = environments(TEMPLATES, LANGUAGES, stylesheet=STYLE.address, favicon=ICON.address)


class Item(msgspec.Struct, frozen=True):
    """One requested permission.

    Attributes:
        text: Its description.
        name: Of the permission, if the text is not its name.
        is_new: Whether it was not consented to before.
    """

    text: str
    name: str | None = None
    is_new: bool = False


class Group(msgspec.Struct, frozen=True):
    """Requested scopes of one API.

    Attributes:
        title: Its name.
        items: Permissions; empty if the API may only learn who the user is.
        is_new: Whether nothing of this API was consented to before.
    """

    title: str
    items: Sequence[Item]
    is_new: bool = False


class Choice(msgspec.Struct, frozen=True):
    """One organization that can be picked."""

    id: str
    name: str
    is_picked: bool


def page(
    template: str,
    language: str,
    *,
    application: ApplicationState | None = None,
    status: int = 200,
    leads_elsewhere: bool = False,
    has_script: bool = False,
    uses_passkeys: bool = False,
    headers: dict[str, str] | None = None,
    images: Sequence[str] = (),
    **values: Any,
) -> Response[str]:
    """Return a page.

    Args:
        template: Its name.
        language: Its tag.
        application: The application that the page is about, if any; the page shows its name, logo and colour.
        status: HTTP status.
        leads_elsewhere: Whether the answer to a form of the page redirects to the application.
        has_script: Whether the page loads the script for comfort.
        uses_passkeys: Whether it loads the script for passkeys.
        headers: Additional ones.
        images: Addresses of foreign images, besides the application's logo.
        values: For the template.
    """
    logo = application.logo_uri if application else None
    color = application.primary_color if application else None
    scripts = [*([SCRIPT] if has_script else []), *([PASSKEY_SCRIPT] if uses_passkeys else [])]
    nonce = secrets.token_urlsafe(16) if scripts else None
    html = (
        _ENVIRONMENTS[language]
        .get_template(template)
        .render(
            application=application.name if application else None,
            home=home_of(application) if application else None,
            logo=logo,
            accent=accent_address(color) if color else None,
            scripts=[script.address for script in scripts],
            nonce=nonce,
            **values,
        )
    )
    protection = page_headers(images=[*([logo] if logo else []), *images], nonce=nonce, leads_elsewhere=leads_elsewhere)
    answer = {**protection, "Content-Language": language, **(headers or {})}
    return Response(html, status_code=status, media_type=MediaType.HTML, headers=answer)
