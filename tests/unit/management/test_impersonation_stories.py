"""The story of an impersonation that is within others, as the actors further out bear on it."""

from typing import Any

import pytest

from identity_common.wire.audit import AuditEntry
from management_service.impersonations.stories import Trace, ended_parties, ending_parties, outer_ids, story
from management_service.party_ends import PartyEnd
from stead.verify.impersonations import ImpersonationSegments

HOUR = 3_600_000


def entries(impersonation_id: str, user: str, actor: str, at: int, *, within: tuple[str, ...] = ()) -> list[AuditEntry]:
    """Return the entries of an impersonation: ``actor`` acts as ``user``."""
    jti = ImpersonationSegments((*within, impersonation_id), 1000).format()  # when the outermost began

    def made(key: str, after: int, **more: Any) -> AuditEntry:
        more = {"application_id": "web", "user_id": user, "subject_token_id": impersonation_id, **more}
        return AuditEntry(id=key, occurred_at=at + after, tenant_id="t", log="exchanges", key=key, **more)

    return [
        made("subject-token.issued", 0, expires_at=at + HOUR),
        made("token.exchange.taken", 10, actor_id=actor),
        made("token.exchange.succeeded", 20, actor_id=actor, issued_token_id=jti, expires_at=at + HOUR),
    ]


OUTERMOST = entries("one", "ann", "eve", 1000)
MIDDLE = entries("two", "bob", "ann", 2000, within=("one",))
INNER = entries("three", "kim", "bob", 3000, within=("one", "two"))
TRACE = Trace(INNER, [MIDDLE, OUTERMOST])


def test_impersonations_further_out_are_named_from_the_inside_out() -> None:
    assert [outer_ids(each) for each in (INNER, MIDDLE, OUTERMOST, [])] == [("two", "one"), ("one",), (), ()]


def test_every_actor_and_every_impersonated_user_is_a_party() -> None:
    reasons = ended_parties(TRACE)
    expected = {"user:kim": "user", "user:bob": "user", "user:ann": "user"}
    expected |= {"actor:bob": "actor", "actor:ann": "actor", "actor:eve": "actor"}
    assert {party: reasons[party] for party in expected} == expected
    assert "user:eve" not in reasons
    assert {party: role for party, (role, _) in ending_parties(TRACE).items()} == {
        "user:kim": "user",
        "user:bob": "actor",
        "user:ann": "actor",
        "user:eve": "actor",
        "client:web": "client",
    }


@pytest.mark.parametrize("actor", ["bob", "ann", "eve"])
def test_whatever_actor_is_suspended_ends_it(actor: str) -> None:
    told = story(TRACE, {f"user:{actor}": [PartyEnd(3005, "password", "root"), PartyEnd(3500, "suspended", "root")]})
    assert told is not None
    assert (told.ended_at, told.reason, told.ended_by) == (3500, "actor_suspended", "root")


@pytest.mark.parametrize("actor", ["bob", "ann", "eve"])
def test_the_end_of_all_by_an_actor_covers_what_began_before(actor: str) -> None:
    for ended_at, expected in ((999, None), (1000, 1000), (5000, 5000)):
        told = story(TRACE, {f"actor:{actor}": [PartyEnd(ended_at, "ended", "root")]})
        assert told is not None
        assert (told.ended_at, told.reason, told.ended_by) == (
            (expected, "actor", "root") if expected else (None, None, None)
        )


def test_of_several_ends_of_all_the_first_that_covers_it_is_told() -> None:
    ends = [PartyEnd(at, "ended", f"at {at}") for at in (999, 4000, 5000, 3000 + 2 * HOUR)]
    told = story(TRACE, {"user:kim": ends, "impersonation:one": [PartyEnd(4500, "ended", None)]})
    assert told is not None
    assert (told.ended_at, told.reason, told.ended_by) == (4000, "user", "at 4000")


def test_what_the_trail_does_not_have_any_more_is_left_out() -> None:
    told = story(Trace(INNER, [[], OUTERMOST[:1]]), {"user:ann": [PartyEnd(3500, "suspended", None)]})
    assert told is not None
    assert told.ended_at is None
