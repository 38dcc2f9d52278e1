"""Which members of a result become claims, and how two results differ."""

from token_service.claims_function.rules import RESERVED, Changes, ExtraClaims, changes, extra_claims
from token_service.endpoints.introspection import Introspection
from token_service.tokens.claims import AccessTokenClaims
from token_service.tokens.identity import IdTokenClaims, PersonClaims

_OF_THE_CONTRACT = (
    "iss sub aud exp iat nbf jti scope client_id act may_act organization_id gty cnf sid nonce at_hash auth_time acr"
    " amr azp active token_type username events pv"
)


def test_reserved_members_are_dropped_and_named() -> None:
    members = {**dict.fromkeys(_OF_THE_CONTRACT.split(), "mine"), "plan": "gold", "Sub": "as written", "": None}

    assert extra_claims(members) == ExtraClaims(
        {"plan": "gold", "Sub": "as written", "": None}, tuple(sorted(_OF_THE_CONTRACT.split()))
    )
    assert extra_claims({}) == ExtraClaims({}, ())


def test_every_claim_that_this_service_sets_is_reserved() -> None:
    of_the_id_token = set(IdTokenClaims.__struct_fields__) - set(PersonClaims.__struct_fields__)

    assert set(AccessTokenClaims.__struct_fields__) | of_the_id_token | set(Introspection.__struct_fields__) <= RESERVED


def test_changes_are_told_by_their_json() -> None:
    old = {"same": {"a": 1, "b": 2}, "one": 1, "text": "1", "gone": None, "also gone": 0}
    new = {"same": {"b": 2, "a": 1}, "one": True, "text": "2", "new": None}

    assert changes(old, new) == Changes(
        added={"new": None}, changed={"one": True, "text": "2"}, removed=("also gone", "gone")
    )
