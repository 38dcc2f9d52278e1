"""tokensValidAfter, on which two services must agree: management-service sets it, token-service dates and judges by it.

Any history of one user: changes that end everything (a suspension, its end, a new password), and tokens in between.
"""

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from management_service.users.rules import next_tokens_valid_after
from token_service.tokens.claims import is_outdated, issued_at_s

START = 1_700_000_000_000
STEPS = st.lists(
    st.tuples(st.integers(min_value=0, max_value=1_500), st.sampled_from(["change", "issue"])), min_size=1, max_size=30
)
HOUR_MS = 3_600_000


class Issued(msgspec.Struct, frozen=True):
    """A pair of tokens that were issued at one moment.

    Attributes:
        access_token: What its ``iat`` says, in milliseconds.
        subject_token: ``issued_at`` in its record.
        changes: How many changes there had been.
    """

    access_token: int
    subject_token: int
    changes: int


def issue(now: int, tokens_valid_after: int, changes: int) -> Issued:
    access_token = issued_at_s(now=now, tokens_valid_after=tokens_valid_after) * 1000
    return Issued(access_token, max(now, tokens_valid_after), changes)


@given(steps=STEPS, fraction=st.integers(min_value=0, max_value=999))
@example(steps=[(0, "change"), (100, "issue"), (100, "change")], fraction=300)
@example(steps=[(0, "issue"), (0, "change")], fraction=0)
@example(steps=[(0, "change"), (0, "issue"), (0, "change"), (0, "issue")], fraction=0)
def test_a_token_counts_until_the_next_change_and_never_again(steps: list[tuple[int, str]], fraction: int) -> None:
    """However many changes and tokens there are within one second, or one millisecond."""
    now, after, changes = START + fraction, 0, 0
    issued: list[Issued] = []
    for pause_ms, what in steps:
        now += pause_ms
        if what == "change":
            after, changes = next_tokens_valid_after(now=now, tokens_valid_after=after), changes + 1
        else:
            issued.append(issue(now, after, changes))
        for each in issued:
            for bears in (each.access_token, each.subject_token):
                assert is_outdated(issued_at_ms=bears, tokens_valid_after=after) is (each.changes < changes)


@given(now=st.integers(min_value=START, max_value=START + HOUR_MS), earlier=st.integers(min_value=0, max_value=HOUR_MS))
def test_a_change_long_after_the_last_one_takes_effect_now(now: int, earlier: int) -> None:
    """It lies ahead of the clock only if changes follow each other within a second or two."""
    assert next_tokens_valid_after(now=now, tokens_valid_after=now - 1_000 - earlier) == now + 1
    assert next_tokens_valid_after(now=now, tokens_valid_after=0) == now + 1


@given(count=st.integers(min_value=1, max_value=50))
def test_changes_at_once_move_it_ahead_by_less_than_a_second_each(count: int) -> None:
    after = 0
    for _ in range(count):
        after = next_tokens_valid_after(now=START, tokens_valid_after=after)
    assert after - START <= count * 1_000
