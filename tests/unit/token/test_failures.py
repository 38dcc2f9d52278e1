"""What went wrong below the grants and endpoints, as OAuth puts it (RFC 6749 section 5.2, RFC 8693 section 2.2.2)."""

import json
from typing import get_args

import pytest

from identity_common.failures import (
    Conflict,
    Failure,
    Invalid,
    NotFound,
    NotYetThere,
    Refused,
    StoreUnavailable,
    TemporarilyUnavailable,
    TooLarge,
    TooManyAttempts,
)
from tests.support.captured_logs import captured_logs
from token_service.grants.failures import oauth_error_of, refusal_of
from token_service.grants.oauth_errors import invalid_client

RENDERED = {
    Invalid("c", "m"): ("invalid_request", "m", 400, None, None),
    NotFound("c", "m"): ("invalid_target", "m", 400, None, None),
    Conflict("c", "m"): ("invalid_grant", "m", 400, None, None),
    Refused("claims_function.denied", "m"): ("access_denied", "m", 400, None, "claims_function.denied"),
    TooLarge("c", "m"): ("invalid_scope", "m", 400, None, None),
    TooManyAttempts("c", "m", retry_after_s=3): ("temporarily_unavailable", "m", 429, 3, None),
    NotYetThere("c", "m", retry_after_s=2): ("temporarily_unavailable", "m", 503, 2, None),
    TemporarilyUnavailable(why="w", retry_after_s=5): ("temporarily_unavailable", "w", 503, 5, None),
}


def test_every_kind_of_failure_is_rendered() -> None:
    assert {type(failure) for failure in RENDERED} == set(get_args(Failure))
    for failure, expected in RENDERED.items():
        error = oauth_error_of(failure)
        assert (error.error, error.description, error.status, error.retry_after_s, error.reason) == expected


def test_a_store_that_does_not_answer_is_logged_and_not_named_to_the_client() -> None:
    with captured_logs("unit-tests") as log:
        error = oauth_error_of(StoreUnavailable("redis", "ConnectionError", why="codes cannot be read right now"))
    line = json.loads(log.getvalue())
    assert (line["event"], line["level"]) == ("store.unavailable", "warning")
    assert (line["store"], line["error"]) == ("redis", "ConnectionError")
    assert (error.description, error.retry_after_s) == ("codes cannot be read right now", 1)


@pytest.mark.parametrize("failure", [TemporarilyUnavailable(), StoreUnavailable("nats", "TimeoutError")])
def test_a_failure_without_a_clause_says_what_every_api_says(failure: Failure) -> None:
    assert oauth_error_of(failure).description == "The service is temporarily unavailable. Try again later."


def test_a_refusal_of_the_protocol_stays_as_it_is() -> None:
    refusal = invalid_client()
    assert refusal_of(refusal) is refusal
