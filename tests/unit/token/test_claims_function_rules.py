"""Which members of a result become claims, and how two results differ."""

import pytest

from token_service.claims_function.rules import RESERVED, Changes, ExtraClaims, changes, extra_claims
from token_service.endpoints.introspection import Introspection
from token_service.tokens.claims import AccessTokenClaims
from token_service.tokens.identity import IdTokenClaims, PersonClaims

_OF_THE_CONTRACT = (
    "iss sub aud exp iat nbf jti scope client_id act may_act organization_id gty cnf sid nonce at_hash auth_time acr"
    " amr azp active token_type username events pv"
)


def test_reserved_members_are_dropped_and_named() -> None:
    members = {**dict.fromkeys(_OF_THE_CONTRACT.split(), "mine"), "plan": "gold", "subject": "other", "": None}

    assert extra_claims(members) == ExtraClaims(
        {"plan": "gold", "subject": "other", "": None}, tuple(sorted(_OF_THE_CONTRACT.split()))
    )
    assert extra_claims({}) == ExtraClaims({}, ())


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        ("Act", "act"),
        ("ORGANIZATION_ID", "organization_id"),
        ("\u017fub", "sub"),  # long s
        ("\u0131ss", "iss"),  # dotless i
        ("\u0130SS", "iss"),  # dotted capital I
        ("\uff53\uff55\uff42", "sub"),  # full width
        ("\U0001d42c\U0001d42e\U0001d41b", "sub"),  # mathematical bold
        ("i\u00df", "iss"),  # sharp s
        ("sub\0", "sub"),
        ("sub\0ject", "sub"),
        (" sub\u00a0", "sub"),
        ("\tsub\r\n", "sub"),
        ("s\u200bub", "sub"),  # zero width space
        ("\ufeffsub", "sub"),
        ("s\u0301ub", "sub"),  # combining acute accent
    ],
)
def test_a_name_that_a_lenient_reader_takes_for_a_reserved_one_is_dropped(name: str, reserved: str) -> None:
    assert extra_claims({name: "mine", "plan": "gold"}) == ExtraClaims({"plan": "gold"}, (reserved,))


def test_members_that_reach_a_prototype_are_dropped_at_every_level() -> None:
    members = {
        "__proto__": {"isAdmin": True},
        "plan": {"name": "gold", "constructor": {"prototype": {"isAdmin": True}}},
        "seats": [1, [{"prototype": 1, "row": 2}]],
        "Constructor": "as written",
    }

    assert extra_claims(members) == ExtraClaims(
        {"plan": {"name": "gold"}, "seats": [1, [{"row": 2}]], "Constructor": "as written"},
        ("__proto__", "constructor", "prototype"),
    )


def test_what_verifiers_take_for_a_grant_or_a_subject_is_dropped() -> None:
    """Registered by RFC 9396, RFC 9493 and OpenID Connect; ``scp`` is what other servers call ``scope``."""
    members = dict.fromkeys(("authorization_details", "scp", "sub_id", "c_hash", "s_hash"), "mine")

    assert extra_claims({**members, "plan": "gold"}) == ExtraClaims({"plan": "gold"}, tuple(sorted(members)))


def test_every_claim_that_this_service_sets_is_reserved() -> None:
    of_the_id_token = set(IdTokenClaims.__struct_fields__) - set(PersonClaims.__struct_fields__)

    assert set(AccessTokenClaims.__struct_fields__) | of_the_id_token | set(Introspection.__struct_fields__) <= RESERVED


def test_changes_are_told_by_their_json() -> None:
    old = {"same": {"a": 1, "b": 2}, "one": 1, "text": "1", "gone": None, "also gone": 0}
    new = {"same": {"b": 2, "a": 1}, "one": True, "text": "2", "new": None}

    assert changes(old, new) == Changes(
        added={"new": None}, changed={"one": True, "text": "2"}, removed=("also gone", "gone")
    )
