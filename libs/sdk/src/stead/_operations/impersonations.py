"""Impersonations."""

from __future__ import annotations

from stead._http import Operation, api_path, command
from stead._operations._bodies import create_body


def end_impersonation(impersonation_id: str) -> Operation[None]:
    """End an impersonation: its subject token, and every access token that was got from it.

    Ending it again changes nothing.

    Args:
        impersonation_id: ``SubjectToken.impersonation_id``.

    Raises:
        NotFound: No impersonation has such an id; or the client holds ``subject-tokens`` alone and did not ask for it
            within the last day.
    """
    return command("POST", api_path("impersonations", impersonation_id, "end"))


def end_impersonations(
    *,
    user_id: str | None = None,
    actor_id: str | None = None,
    client_id: str | None = None,
    organization_id: str | None = None,
    all: bool | None = None,  # noqa: A002 - the member of the API
) -> Operation[None]:
    """End all impersonations that have begun by now: of a user, by an actor or a client, in an organization, or all.

    Exactly one argument.

    Args:
        user_id: Who is impersonated.
        actor_id: Who acts.
        client_id: The application that acts.
        organization_id: The organization.
        all: True for every impersonation there is.

    Raises:
        ApiError: None of them was given, or several.
    """
    body = create_body(userId=user_id, actorId=actor_id, clientId=client_id, organizationId=organization_id, all=all)
    return command("POST", api_path("impersonations", "end"), body)
