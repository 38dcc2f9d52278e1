"""Accepting an invitation: what an invited user does, without an access token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx2 as httpx

from stead._transport.api import command
from stead._transport.http import async_send, checked_base_url, send
from stead._transport.operations import async_run, run
from stead._transport.tls import default_ssl_context

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
    base_url, headers = checked_base_url(base_url), headers or {}
    operation = command("POST", _PATH, _body(invitation, password))
    if http is not None:
        return run(operation, lambda request: send(http, base_url, request, headers))
    with httpx.Client(timeout=_TIMEOUT_S, verify=default_ssl_context()) as own:
        return run(operation, lambda request: send(own, base_url, request, headers))


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
    base_url, headers = checked_base_url(base_url), headers or {}
    operation = command("POST", _PATH, _body(invitation, password))
    if http is not None:
        return await async_run(operation, lambda request: async_send(http, base_url, request, headers))
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, verify=default_ssl_context()) as own:
        return await async_run(operation, lambda request: async_send(own, base_url, request, headers))


def _body(invitation: str, password: str) -> dict[str, str]:
    return {"invitation": invitation, "password": password}
