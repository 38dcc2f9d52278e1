"""Accepting an invitation: what an invited user does, without an access token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx2 as httpx

from stead._transport.api import command
from stead._transport.http import async_sender, checked_base_url, sender
from stead._transport.operations import Operation, async_run, run

_PATH: Final = "/api/invitations/accept"
_TIMEOUT_S: Final = 10.0


def accept_invitation(
    base_url: str,
    invitation: str,
    password: str,
    *,
    headers: Mapping[str, str] | None = None,
    http: httpx.Client | None = None,
) -> None:
    """Set the password of an invited user. An invitation can be accepted once.

    ::

        invitation = management.users.invite(user.id)
        # sent to the user, who chooses a password
        accept_invitation("https://id.example.com", invitation.invitation, password)

    Args:
        base_url: Base address of the service.
        invitation: Its value, from ``client.users.invite``.
        password: 8 to 256 characters.
        headers: Additional headers, such as ``X-Forwarded-For`` from a web application that the service trusts.
        http: Client for the request; you close it. The default has a timeout of 10 s.

    Raises:
        Conflict: ``invitation.not_valid``.
        InvalidInput: The password is too short or too long; the invitation stays valid.
        Unavailable: The service did not answer, or asked for a later retry.
        ValueError: ``base_url`` is not an http or https URL.
    """
    address = checked_base_url(base_url)
    send = sender(http, base_url=address, headers=headers or {}, timeout_s=_TIMEOUT_S)
    run(_acceptance(invitation, password), send)


async def async_accept_invitation(
    base_url: str,
    invitation: str,
    password: str,
    *,
    headers: Mapping[str, str] | None = None,
    http: httpx.AsyncClient | None = None,
) -> None:
    """Set the password of an invited user; see ``accept_invitation``.

    Raises:
        Conflict: ``invitation.not_valid``.
        InvalidInput: The password is too short or too long; the invitation stays valid.
        Unavailable: The service did not answer, or asked for a later retry.
        ValueError: ``base_url`` is not an http or https URL.
    """
    address = checked_base_url(base_url)
    send = async_sender(http, base_url=address, headers=headers or {}, timeout_s=_TIMEOUT_S)
    await async_run(_acceptance(invitation, password), send)


def _acceptance(invitation: str, password: str) -> Operation[None]:
    return command("POST", _PATH, {"invitation": invitation, "password": password})
