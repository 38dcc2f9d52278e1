"""Act three: an administrator ends an impersonation, and an API that verifies tokens by itself refuses its token."""

import time
from typing import Final

import msgspec

from all_in_one.demo.actor_token import sign_in_agent
from all_in_one.demo.clients import management_client
from all_in_one.demo.screen import act, show, step
from all_in_one.demo.waiting import retry, until_refused
from provision.credentials import Credentials
from stead import (
    AccessTokenVerifier,
    ApiError,
    Impersonation,
    ManagementClient,
    NotFound,
    NotValidFeed,
    Unavailable,
    exchange_subject_token,
)
from stead.audit import InvalidHead, KeySet, is_included, read_head
from stead.audit.heads import decoded
from stead.models import InclusionProof

_NOT_COVERED_YET: Final = 409
_ENTRIES: Final = 4
"""Of a complete story: issued, taken, succeeded, ended."""


def live_rejection(credentials: Credentials) -> None:
    """End an impersonation, print its story, and verify the proof of its first entry.

    Raises:
        IdentityError: The stack refused a step, or did not answer.
        InvalidHead: The proof does not hold.
    """
    customer = credentials.demo.users[1]
    application = credentials.traditional
    feed = NotValidFeed.over_http(
        credentials.base_url, client_id=application.client_id, client_secret=application.client_secret
    )
    api = AccessTokenVerifier(base_url=credentials.base_url, audience=credentials.demo.resource, feed=feed)
    management = management_client(credentials.base_url, credentials.management_api)
    backend = management_client(credentials.base_url, credentials.backend)
    act(f"Act three: an impersonation of {customer.username} is ended, and an API learns of it")
    with feed, management, backend:
        step("1. A support engineer acts as the customer; an API accepts the token, which it only verifies.")
        _, actor_token = sign_in_agent(credentials)
        minted = backend.subject_tokens.create(customer.id, {"ticketId": "TCK-1043", "reason": "asks for a refund"})
        token = exchange_subject_token(
            credentials.base_url,
            client_id=application.client_id,
            client_secret=application.client_secret,
            subject_token=minted.token,
            actor_token=actor_token,
            resource=credentials.demo.resource,
        ).access_token
        accepted = retry(lambda: api.verify(token), Unavailable)
        show("accepted", f"sub {accepted.claims['sub']}, no request to the issuer")

        step("2. An administrator ends the impersonation; the API learns of it from the not-valid feed.")
        management.impersonations.end(minted.impersonation_id)
        ended = time.monotonic()
        reason = until_refused(api, token)
        show("refused", f"{reason}, {(time.monotonic() - ended) * 1000:.0f} ms after the end was acknowledged")

        step("3. The audit trail has the whole story, and a proof that its first entry is included.")
        story = retry(lambda: _complete_story(management, minted.impersonation_id), NotFound)
        for event in story.events:
            show(event.key.rpartition(".")[2], event.key)
        entry = story.events[0]
        proof = retry(lambda: _proof(management, entry.id), Unavailable)
        head = read_head(proof.head, KeySet.parse(msgspec.json.encode(management.logs.keys())))
        path = [decoded(each) for each in proof.audit_path]
        if not is_included(decoded(proof.leaf_hash), proof.leaf_index, head.tree_size, path, head.root):
            raise InvalidHead("the proof does not hold")
        show("verified", f"entry {proof.leaf_index} of {head.tree_size} in a tree whose head is signed")


def _complete_story(management: ManagementClient, impersonation_id: str) -> Impersonation:
    """Return an impersonation whose end is in the trail.

    Raises:
        NotFound: It is not there yet.
    """
    found = management.impersonations.get(impersonation_id)
    if found.ended_at is None or len(found.events) < _ENTRIES:
        raise NotFound("the trail is behind", status=404, code="entity.not_found")
    return found


def _proof(management: ManagementClient, entry_id: str) -> InclusionProof:
    """Return the proof of an entry.

    Raises:
        Unavailable: No head covers it yet.
    """
    try:
        return management.logs.proof(entry_id)
    except ApiError as error:
        if error.status != _NOT_COVERED_YET:
            raise
        raise Unavailable(error.message) from None
