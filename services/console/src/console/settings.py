"""Settings of the console: read once, in ``asgi.py``, and passed on as narrow values."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from console.tickets import ticket_url_problem
from identity_common.pages.looks import GROUND, color_problem, is_logo_uri
from identity_common.settings import Secret, ServiceSettings

_MAX_NAME: Final = 64


class Settings(ServiceSettings, frozen=True, kw_only=True):
    """The settings of the console.

    Attributes:
        redis_url: ``redis://user:password@host:port/0``, or by sentinels (``redis+sentinel://``); holds sessions, and
            sign-ins that have begun.
        cookie_keys: Base64 of 32 bytes each, newest first: the first signs the cookies of browsers that have had a
            session, all verify them. No other service has them.
        pending_requests_per_address: Limit per 15 minutes of sign-ins to the console from one IPv4 address or IPv6 /64
            that have begun and are not completed; and as many to the account page.
        console_credentials: Directory with the files ``console_client_id`` and ``console_client_secret``, and, if the
            account page has a client of its own, ``account_client_id`` and ``account_client_secret``. They are
            read at each use; until they exist, the console answers 503.
        console_name: Product name in the header and title of every page.
        console_color: Colour of buttons and links, ``#rrggbb``; empty for Stead's colour.
        console_logo_uri: https URL of an image beside the name; empty for Stead's logo.
        console_ticket_url: URL of a ticket in your own system, with ``{ticket}`` in its place, such as
            ``https://tickets.example.com/{ticket}``; empty for no links.
        management_url: URL at which the console reaches management-service, if not ``base_url``.
        token_url: URL at which it reaches token-service, if not ``base_url``.
        template_url: URL at which it reaches template-service, if not ``base_url``.
    """

    redis_url: Secret
    cookie_keys: tuple[Secret, ...]
    pending_requests_per_address: int = 1000
    console_credentials: str = ""
    console_name: str = "Stead"
    console_color: str = ""
    console_logo_uri: str = ""
    console_ticket_url: str = ""
    management_url: str | None = None
    token_url: str | None = None
    template_url: str | None = None

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> list[str]:
        """Add the checks of this service."""
        found = super().problems(values) + cls.wrong_redis(values)
        found += _look_problems(values)
        found += cls.wrong_keys(values, "cookie_keys")
        return found + cls.too_small(values, pending_requests_per_address=1)


def _look_problems(values: Mapping[str, Any]) -> Iterator[str]:
    if len(values.get("console_name", "")) > _MAX_NAME:
        yield f"CONSOLE_NAME: must be {_MAX_NAME} characters at most"
    color, logo_uri = values.get("console_color"), values.get("console_logo_uri")
    if color and (problem := color_problem(color, ground=GROUND)):
        yield f"CONSOLE_COLOR: {problem}"
    if logo_uri and not is_logo_uri(logo_uri):
        yield "CONSOLE_LOGO_URI: must be https, with a domain name as its host, without a fragment"
    ticket_url = values.get("console_ticket_url")
    if ticket_url and (wrong := ticket_url_problem(ticket_url)):
        yield f"CONSOLE_TICKET_URL: {wrong}"
