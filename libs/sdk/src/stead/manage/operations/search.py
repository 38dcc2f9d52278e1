"""The search for everything."""

from __future__ import annotations

from stead._transport.api import api_path, decode, json_request
from stead._transport.operations import Operation
from stead.models import SearchAnswer


def search(text: str, *, limit: int | None = None) -> Operation[SearchAnswer]:
    """Return what a text finds; see ``ManagementClient.search``."""
    params: dict[str, str | int] = {"q": text} if limit is None else {"q": text, "limit": limit}
    return decode((yield json_request("GET", api_path("search"), params=params)), SearchAnswer)
