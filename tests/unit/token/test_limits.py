"""docs/operations/limits.md: a request at each limit is accepted, and one beyond it is refused as the table says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec
import pytest

from identity_common.failures import TooLarge
from stead.errors import TokenInvalid
from stead.verify.signed_tokens import read_jws
from tests.unit.token.test_authorization_request import GOOD
from token_service.grants.failures import oauth_error_of
from token_service.sign_in.request import AuthorizationRequest, BadRequest, Refusal, judge, parse_parameters
from token_service.tokens.lengths import require_scopes_fit, require_token_fits

PAGE = Path(__file__).parents[3] / "docs/operations/limits.md"


class Row(NamedTuple):
    """A row of the table."""

    at_most: int
    beyond: str


ROWS = {
    what: Row(int(figure.replace(",", "")), beyond)
    for what, figure, beyond in re.findall(
        r"^\| ([^|]+) \| ([\d,]+)[^|]* \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE
    )
}


def request(changes: dict[str, str | list[str]]) -> AuthorizationRequest:
    parsed = parse_parameters(urlencode(GOOD | changes, doseq=True).encode())
    return judge(parsed, client_id="c1", urn_namespace="service", redirect_uri=GOOD["redirect_uri"])


def padded(size: int) -> None:
    """Judge a request of this size, most of which is an unknown parameter."""
    encoded = urlencode(GOOD).encode() + b"&unknown="
    judge(
        parse_parameters(encoded.ljust(size, b"x")),
        client_id="c1",
        urn_namespace="service",
        redirect_uri=GOOD["redirect_uri"],
    )


def stored(size: int) -> None:
    """Judge a request that is stored in this many bytes; a control character of its state takes six there."""
    asked = {"scope": " ".join(f"{number:03}".ljust(129, "s") for number in range(360))}
    rest = size - len(msgspec.json.encode(request({**asked, "state": "s"}))) + 1
    request({**asked, "state": "\x01" * (rest // 6) + "s" * (rest % 6)})


ASKED: dict[str, Callable[[int], object]] = {
    "an authorization request, as sent": padded,
    "its parameters, apart from `organization`": lambda n: request(
        {"organization": ["o"] * 100, **{f"p{i}": "x" for i in range(n - len(GOOD))}}
    ),
    "`state`": lambda n: request({"state": "\u4e16" * (n // 3) + "s" * (n % 3)}),
    "`nonce`": lambda n: request({"nonce": "\u4e16" * n}),
    "`login_hint`": lambda n: request({"login_hint": "\u4e16" * n}),
    "`resource`": lambda n: request({"resource": [f"https://{i}.example.com" for i in range(n)]}),
    "`scope`": lambda n: request({"scope": "openid ".ljust(n, "s")}),
    "tokens of `scope`": lambda n: request({"scope": " ".join(f"scope-{i}" for i in range(n))}),
    "an authorization request, as stored": stored,
    "the scopes of a token": lambda n: require_scopes_fit(frozenset({"s" * (n - 2)}), audience="a"),
    "the claims of a token": lambda n: require_token_fits(b"x" * n),
    "a signed token": lambda n: read_jws("x" * n, (), types=frozenset()),
}


def outcome(ask: Callable[[], object]) -> str | None:
    """Return how a request is refused, in the words of the table; None if it is not."""
    try:
        ask()
    except Refusal as refusal:
        return f"`{refusal.error}`"
    except BadRequest:
        return "a page with status 400"
    except TooLarge as failure:
        return f"`{oauth_error_of(failure).error}`"
    except TokenInvalid as invalid:
        return "a verifier refuses it" if invalid.reason == "too_large" else None
    return None


def test_every_row_has_a_test() -> None:
    assert ROWS.keys() == ASKED.keys()


@pytest.mark.parametrize("what", ROWS)
def test_a_limit_is_as_the_page_says(what: str) -> None:
    at_most, beyond = ROWS[what]
    assert (outcome(lambda: ASKED[what](at_most)), outcome(lambda: ASKED[what](at_most + 1))) == (None, beyond)


def test_the_permissions_of_a_large_application_are_one_request() -> None:
    permissions = [f"{number:03}:".ljust(128, ":") for number in range(300)]
    request({"scope": " ".join(["openid", "offline_access", *permissions]), "state": "s" * 8192, "nonce": "n" * 512})
