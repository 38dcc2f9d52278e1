"""What the ``jti`` of an exchanged token says, and whom its impersonation concerns."""

from typing import Any

import pytest

from identity_common.wire.revocations import cutoff_id
from stead.verify.access_tokens import AccessToken
from stead.verify.feed.entries import impersonation_lookups
from stead.verify.impersonations import Impersonation, ImpersonationSegments
from token_service.not_valid.rules import of_revocation

BEGUN = 1_795_000_000_123


def token(**changes: Any) -> AccessToken:
    members: dict[str, Any] = {
        "id": ImpersonationSegments(("own",), BEGUN).format(),
        "key_id": "kid",
        "issuer": "https://identity.example.com/oidc",
        "subject": "ann",
        "audience": "https://shop.example.com/api",
        "client_id": "shop",
        "scopes": frozenset[str](),
        "issued_at": 0,
        "expires_at": 1,
        "actor": None,
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "organization_id": None,
        "claims": {},
    }
    return AccessToken(**{**members, **changes})


def test_segments_survive_formatting_and_parsing_and_no_two_ids_are_equal() -> None:
    segments = ImpersonationSegments(("outer", "own"), BEGUN)
    one, other = segments.format(), segments.format()
    assert (ImpersonationSegments.parse(one), ImpersonationSegments.parse(other)) == (segments, segments)
    assert one != other
    assert len(one.rpartition(".")[2]) == 32


@pytest.mark.parametrize("token_id", ["0" * 32, "", "own.", "own.not hexadecimal"])
def test_without_a_time_an_impersonation_began_before_every_end(token_id: str) -> None:
    assert ImpersonationSegments.parse(token_id).begun_at == 0


@pytest.mark.parametrize(
    ("changes", "parties"),
    [
        ({}, ("all", "user:ann", "client:shop")),
        ({"organization_id": "org"}, ("all", "user:ann", "client:shop", "organization:org")),
        ({"audience": "urn:service:organization:org"}, ("all", "user:ann", "client:shop", "organization:org")),
        ({"actor": {"sub": "bob"}}, ("all", "user:ann", "actor:bob", "client:shop")),
        (  # bob was impersonated by eve, and acts for ann
            {
                "id": ImpersonationSegments(("outer", "own"), BEGUN).format(),
                "actor": {"sub": "bob", "act": {"sub": "eve"}},
            },
            ("all", "user:ann", "user:bob", "actor:bob", "actor:eve", "client:shop"),
        ),
    ],
)
def test_an_impersonation_concerns_its_subjects_actors_client_and_organization(
    changes: dict[str, Any], parties: tuple[str, ...]
) -> None:
    assert Impersonation.of(token(**changes)) == Impersonation(parties, BEGUN)


def test_a_token_that_was_not_got_by_exchange_is_no_impersonation() -> None:
    assert Impersonation.of(token(grant_type=None)) is None


WINDOW = 2**32


@pytest.mark.parametrize("begun", [0, 5, WINDOW - 1, WINDOW, 418 * WINDOW - 1, 418 * WINDOW, BEGUN])
def test_the_feed_ends_what_began_until_the_end_of_a_party_and_nothing_later(begun: int) -> None:
    """The two entries of a time of more than 32 bits, as the issuer makes and a verifier compares them."""
    lookups = impersonation_lookups(token(id=ImpersonationSegments(("own",), begun).format(), actor={"sub": "bob"}))
    own = {entry: number for number, names in lookups for entry in names}
    for party in ("all", "user:ann", "actor:bob", "client:shop"):
        for until in (begun - 1, begun, begun + 1, begun + WINDOW):
            if until >= 0:
                records = of_revocation(cutoff_id(party), 10, until)
                ended = any(own.get(record.entry, WINDOW) < record.not_before for record in records)
                assert ended is (begun <= until), (party, until)
    other = of_revocation(cutoff_id("user:bob"), 10, begun + 1)
    assert not any(record.entry in own for record in other)
    assert impersonation_lookups(token(grant_type=None)) == []
