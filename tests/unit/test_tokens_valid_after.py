"""tokensValidAfter, on which services and verifiers must agree: management-service sets it, the others judge by it.

Any history of one user: changes that end everything (a suspension, its end, a new password), and tokens in between.
"""

from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from management_service.users.rules import next_tokens_valid_after
from stead import AccessToken
from stead.verify.access_tokens import issued_at_ms
from stead.verify.feed.entries import lookups_of, user_entries
from token_service.tokens.claims import exact_issue_ms, is_outdated

START = 1_700_000_000_000
STEPS = st.lists(
    st.tuples(st.integers(min_value=0, max_value=1_500), st.sampled_from(["change", "issue"])), min_size=1, max_size=30
)
HOUR_MS = 3_600_000


class Issued(msgspec.Struct, frozen=True):
    """Tokens that were issued at one moment.

    Attributes:
        own: The user's access token.
        as_actor: An access token in which the user acts for another one.
        subject_token: ``issued_at`` in its record.
        changes: How many changes there had been.
    """

    own: AccessToken
    as_actor: AccessToken
    subject_token: int
    changes: int


def issue(now: int, tokens_valid_after: int, changes: int) -> Issued:
    exact = exact_issue_ms(now=now, tokens_valid_after=tokens_valid_after)
    claims: dict[str, Any] = {} if exact is None else {"iat_ms": exact}
    own = AccessToken(
        id="t1",
        key_id="k1",
        issuer="https://id.example.com/oidc",
        subject="ada",
        audience="https://api.example.com",
        client_id="c1",
        scopes=frozenset(),
        issued_at=now // 1000,
        expires_at=now // 1000 + 3600,
        actor=None,
        grant_type=None,
        organization_id=None,
        claims=claims,
    )
    as_actor = msgspec.structs.replace(own, subject="eve", actor={"sub": "ada"})
    return Issued(own, as_actor, max(now, tokens_valid_after), changes)


def is_ended(token: AccessToken, feed: dict[bytes, int]) -> bool:
    """Return what a verifier finds in the feed."""
    lookups = lookups_of(token, stale_permissions=False)
    return any(number < feed.get(entry, 0) for number, names in lookups for entry in names)


@given(
    steps=STEPS, fraction=st.integers(min_value=0, max_value=999), behind_ms=st.integers(min_value=0, max_value=1_500)
)
@example(steps=[(0, "change"), (100, "issue"), (100, "change")], fraction=300, behind_ms=0)
@example(steps=[(0, "issue"), (0, "change")], fraction=0, behind_ms=0)
@example(steps=[(0, "issue"), (0, "change"), (0, "issue")], fraction=999, behind_ms=0)
@example(steps=[(0, "change"), (0, "issue"), (0, "change"), (0, "issue")], fraction=0, behind_ms=0)
def test_a_token_counts_until_the_next_change_and_never_again(
    steps: list[tuple[int, str]], fraction: int, behind_ms: int
) -> None:
    """However many changes and tokens there are within one second, or one millisecond; and if clocks differ."""
    now, after, changes = START + fraction, 0, 0
    issued: list[Issued] = []
    feed: dict[bytes, int] = {}
    for pause_ms, what in steps:
        now += pause_ms
        if what == "change":
            after, changes = next_tokens_valid_after(now=now, tokens_valid_after=after), changes + 1
            feed.update(user_entries("ada", after))
        else:
            issued.append(issue(now - behind_ms, after, changes))
        for each in issued:
            expected = each.changes < changes
            for bears in (issued_at_ms(each.own), each.subject_token):
                assert is_outdated(issued_at_ms=bears, tokens_valid_after=after) is expected
            assert (is_ended(each.own, feed), is_ended(each.as_actor, feed)) == (expected, expected)


@given(now=st.integers(min_value=START, max_value=START + HOUR_MS), earlier=st.integers(min_value=0, max_value=HOUR_MS))
def test_a_change_takes_effect_now(now: int, earlier: int) -> None:
    """It lies ahead of the clock only if changes follow each other within a millisecond, or the clock was set back."""
    assert next_tokens_valid_after(now=now, tokens_valid_after=now - earlier) == now + 1
    assert next_tokens_valid_after(now=now, tokens_valid_after=now + earlier) == now + earlier + 1


def test_only_tokens_from_the_second_of_a_change_have_milliseconds() -> None:
    times = [(0, None), (START, None), (START + 1, START + 700), (START + 700, START + 700), (START + 900, START + 900)]
    assert [(after, exact_issue_ms(now=START + 700, tokens_valid_after=after)) for after, _ in times] == times
