"""Act one: a support agent acts as a customer, and the access token says so."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from all_in_one.demo.actor_token import sign_in_agent
from all_in_one.demo.clients import management_client
from all_in_one.demo.screen import act, show, show_claims, step
from provision.credentials import Credentials
from stead import (
    AccessToken,
    AccessTokenVerifier,
    ManagementClient,
    NotFound,
    OAuthError,
    exchange_subject_token,
)

_SCRIPT: Final = """\
// Saved by the demo, which deletes it again.
const getCustomJwtClaims = async ({ context: { grant } }) => {
  const ticket = grant.subjectTokenContext?.ticketId;
  return ticket === undefined ? {} : { ticket_id: ticket };
};
"""


def impersonation(credentials: Credentials) -> None:
    """Run the steps of impersonation.

    Raises:
        IdentityError: The stack refused a step, or did not answer.
    """
    agent, customer = credentials.demo.users
    act(f"Act one: {agent.username} acts as {customer.username}")
    step("The support agent signs in with the authorization code flow, which yields the actor token.")
    claims, actor_token = sign_in_agent(credentials)
    show("signed in", f"{claims['name']} ({claims['sub']})")

    step("1. The application asks the integrator's backend, which checks that this agent may act as this customer.")
    with management_client(credentials.base_url, credentials.management_api) as management, _ticket_claim(management):
        step("2. The backend asks the Management API for a one-time subject token for the customer.")
        subject_token = _subject_token(credentials)

        step("3. The application exchanges it for an access token bound to one resource.")
        access_token = _exchange(credentials, subject_token, actor_token)
    token = _verify(credentials, access_token)
    show("verified", "against the published keys, as the API behind the resource does")
    show_claims(
        token,
        *("iss", "aud", "sub", "act", "scope", "client_id", "exp", "ticket_id"),
        notes={
            "sub": customer.username,
            "act": f"{agent.username}, the actor",
            "aud": "valid nowhere else",
            "ticket_id": "from the subject token's context, by the custom-claims function",
        },
    )

    step("A second use of the subject token is refused.")
    try:
        _exchange(credentials, subject_token, actor_token)
    except OAuthError as refusal:
        show("refused", f"{refusal.status} {refusal.error}: {refusal.description}")


@contextmanager
def _ticket_claim(management: ManagementClient) -> Generator[None, None, None]:
    """Add a claim with the ticket's id to tokens issued in the block, unless an operator has saved a function."""
    step("An operator's function makes a claim of the ticket's id, a member of the subject token's context.")
    try:
        active = management.custom_claims.get("access-token")
    except NotFound:
        active = management.custom_claims.save("access-token", _SCRIPT)
    show("function", f"version {active.version}, for tokens of users")
    try:
        yield
    finally:
        if active.script == _SCRIPT:
            management.custom_claims.delete("access-token")


def _subject_token(credentials: Credentials) -> str:
    agent, customer = credentials.demo.users
    context = {"ticketId": "TCK-1042", "reason": "cannot see an order", "supportEngineerId": agent.id}
    with management_client(credentials.base_url, credentials.backend) as backend:
        subject_token = backend.subject_tokens.create(customer.id, context)
    show("context", ", ".join(f"{name} {value!r}" for name, value in context.items()))
    show("expires in", f"{subject_token.expires_in} s, or at its first use")
    return subject_token.token


def _exchange(credentials: Credentials, subject_token: str, actor_token: str) -> str:
    return exchange_subject_token(
        credentials.base_url,
        client_id=credentials.traditional.client_id,
        client_secret=credentials.traditional.client_secret,
        subject_token=subject_token,
        actor_token=actor_token,
        resource=credentials.demo.resource,
        scope=credentials.demo.scopes,
    ).access_token


def _verify(credentials: Credentials, access_token: str) -> AccessToken:
    verifier = AccessTokenVerifier(issuer=f"{credentials.base_url}/oidc", audience=credentials.demo.resource)
    return verifier.verify(access_token)
