"""The relying party of passkeys: the domain that they belong to, and the origin that they are used at. Pure."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec

_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


class RelyingParty(msgspec.Struct, frozen=True):
    """Where passkeys are made and used.

    Attributes:
        id: RP id: a domain (WebAuthn Level 3 section 4).
        origin: As browsers write it: ``https://id.example.com``.
        is_host: Whether the id is the host of the pages, which a browser assumes by itself.
    """

    id: str
    origin: str
    is_host: bool = True


def relying_party(base_url: str, rp_id: str = "") -> RelyingParty | None:
    """Return the relying party of the pages below an address; None if it cannot have passkeys: its host is no domain.

    Args:
        base_url: A valid address.
        rp_id: A valid RP id; empty for the host.
    """
    address = urlsplit(base_url)
    host = address.hostname or ""
    if _is_ip_address(host):
        return None
    is_default_port = address.port in {None, _DEFAULT_PORTS.get(address.scheme)}
    origin = f"{address.scheme}://{host}" if is_default_port else f"{address.scheme}://{host}:{address.port}"
    return RelyingParty(rp_id or host, origin, not rp_id or rp_id == host)


def rp_id_problem(base_url: str, rp_id: str) -> str | None:
    """Return why a browser would not accept an RP id on the pages below an address; None if it may.

    A browser also refuses public suffixes, such as ``co.uk``, which cannot be told from other domains here.
    """
    if not rp_id:
        return None
    host = urlsplit(base_url).hostname or ""
    if rp_id == host:
        return None
    if "." in rp_id and not _is_ip_address(host) and host.endswith(f".{rp_id}"):
        return None
    return "must be the host of BASE_URL, or a domain that it belongs to"


def _is_ip_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
