"""``make demo``: impersonation through the SDK against the running stack, step by step."""

import sys
from pathlib import Path

from all_in_one.credentials import Credentials, read_credentials
from identity_sdk import (
    AccessToken,
    AccessTokenVerifier,
    IdentityError,
    ManagementClient,
    OAuthError,
    exchange_subject_token,
)


def main() -> int:
    """Run the demo; return the exit status."""
    credentials = read_credentials(Path(".local"))
    if credentials is None:
        _say("There is no .local/credentials.json: start the stack with `make run` first, in another terminal.")
        return 1
    try:
        _impersonate(credentials)
    except IdentityError as error:
        _say(f"The stack at {credentials.base_url} did not do as expected: {error}. Is `make run` running?")
        return 1
    return 0


def _impersonate(credentials: Credentials) -> None:
    agent, customer = credentials.demo.users
    _say(f"{agent.username} ({agent.id}) acts as {customer.username} ({customer.id}).")
    with ManagementClient(
        credentials.base_url,
        client_id=credentials.management_api.client_id,
        client_secret=credentials.management_api.client_secret,
    ) as management:
        _say("\n1. The integrator's backend asks for a one-time subject token for the customer.")
        context = {"ticketId": "TCK-1042", "reason": "cannot see an order", "supportEngineerId": agent.id}
        subject_token = management.subject_tokens.create(customer.id, context)
        _say(f"   valid for {subject_token.expires_in} s, for one use")
        _say("\n2. The application exchanges it for an access token that is bound to one resource.")
        access_token = _exchange(
            credentials,
            subject_token.token,
            resource=credentials.demo.resource,
            scope=" ".join(credentials.demo.scopes),
        )
    _show(_verify(credentials, access_token))
    _say("\n3. A second use of the subject token is refused.")
    try:
        _exchange(credentials, subject_token.token, resource=credentials.demo.resource)
    except OAuthError as error:
        _say(f"   {error.status} {error.error}: {error.description}")


def _exchange(
    credentials: Credentials,
    subject_token: str,
    *,
    resource: str | None = None,
    scope: str = "",
) -> str:
    return exchange_subject_token(
        credentials.base_url,
        client_id=credentials.traditional.client_id,
        client_secret=credentials.traditional.client_secret,
        subject_token=subject_token,
        resource=resource,
        scope=scope,
    ).access_token


def _verify(credentials: Credentials, access_token: str) -> AccessToken:
    """Verify as the API behind the resource would, with nothing but the published keys."""
    verifier = AccessTokenVerifier(issuer=f"{credentials.base_url}/oidc", audience=credentials.demo.resource)
    return verifier.verify(access_token)


def _show(token: AccessToken) -> None:
    _say("   verified against the published keys:")
    for claim in ("iss", "aud", "sub", "scope", "client_id", "gty", "exp"):
        _say(f"   {claim:>9}  {token.claims.get(claim)}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
