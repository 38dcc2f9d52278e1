"""What a browser sends when a passkey is created or used (WebAuthn Level 3 sections 7.1 and 7.2)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any, Final

import pytest
from fido2.webauthn import AttestationObject, AuthenticatorData
from hypothesis import given, settings
from hypothesis import strategies as st

from identity_common.relying_party import RelyingParty, relying_party, rp_id_problem
from management_service.factors.ceremonies import Ceremonies, NewCredential, Verified
from management_service.factors.rules import FactorRefusedError
from tests.support.authenticator import (
    BE,
    BS,
    ORIGIN,
    RP_ID,
    SYNCED,
    UP,
    UV,
    VERIFIED,
    Authenticator,
    base64url,
    new_challenge,
)
from tests.support.lengths import length
from tests.support.passkey_vectors import (
    CBOR,
    PACKED,
    PACKED_CERTIFICATE,
    PACKED_SIGNATURE,
    SECURITY_KEY,
    WINDOWS_HELLO,
)

CEREMONIES: Final = Ceremonies(relying_party(ORIGIN))
HANDLE: Final = b"h" * 32
CHALLENGE: Final = new_challenge()


def created(authenticator: Authenticator, **changed: Any) -> NewCredential:
    return CEREMONIES.created(authenticator.create(CHALLENGE, user_handle=HANDLE, **changed), CHALLENGE)


def verified(authenticator: Authenticator, credential: str, *, challenge: str = CHALLENGE) -> Verified:
    public_key = created(authenticator).public_key
    return CEREMONIES.verify(CEREMONIES.parse(credential), challenge, public_key=public_key)


@pytest.mark.parametrize(
    ("flags", "counter", "expected"),
    [
        (SYNCED, None, (0, True, True)),
        (VERIFIED | BE, None, (0, True, False)),
        (VERIFIED, 7, (7, False, False)),
    ],
)
def test_a_passkey_is_created_and_used(flags: Any, counter: int | None, expected: tuple[int, bool, bool]) -> None:
    authenticator = Authenticator(flags=flags, counter=counter)
    made = created(authenticator)
    assert (made.credential_id, made.aaguid) == (authenticator.credential_id, "00000000-0000-0000-0000-000000000000")
    assert made.transports == ["hybrid", "internal"]
    assert (made.sign_count, made.is_backup_eligible, made.is_backed_up) == expected
    assertion = CEREMONIES.parse(authenticator.get(CHALLENGE))
    assert (assertion.credential_id, assertion.user_handle) == (authenticator.credential_id, HANDLE)
    used = CEREMONIES.verify(assertion, CHALLENGE, public_key=made.public_key)
    assert used == Verified(expected[0] + (counter is not None), *expected[1:])


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256"])
@pytest.mark.parametrize("attests_itself", [False, True])
def test_keys_of_the_usual_algorithms_are_accepted(algorithm: str, attests_itself: bool) -> None:
    authenticator = Authenticator(algorithm=algorithm)
    made = created(authenticator, attests_itself=attests_itself)
    used = CEREMONIES.verify(CEREMONIES.parse(authenticator.get(CHALLENGE)), CHALLENGE, public_key=made.public_key)
    assert used == Verified(0, is_backup_eligible=True, is_backed_up=True)


WRONG: Final[dict[str, dict[str, Any]]] = {
    "another origin": {"origin": "http://localhost:3001"},
    "another scheme": {"origin": "https://localhost:3000"},
    "a longer origin": {"origin": f"{ORIGIN}.attacker.test"},
    "an origin that is not text": {"origin": ["http://localhost:3000"]},
    "another RP id": {"rp_id": "attacker.test"},
    "no user present": {"flags": UV},
    "no user verified": {"flags": UP},
    "synced, but not eligible": {"flags": VERIFIED | BS},
    "another site's frame": {"cross_origin": True},
    "no type": {"type": ""},
}


@pytest.mark.parametrize("changed", [pytest.param(value, id=key) for key, value in WRONG.items()])
@pytest.mark.parametrize("used", [False, True])
def test_another_answer_is_not_accepted(changed: dict[str, Any], used: bool) -> None:
    authenticator = Authenticator()
    with pytest.raises(FactorRefusedError, match="not-accepted"):
        verified(authenticator, authenticator.get(CHALLENGE, **changed)) if used else created(authenticator, **changed)


def _with_attestation(attestation: bytes) -> str:
    parsed = json.loads(MADE)
    parsed["response"]["attestationObject"] = base64url(attestation)
    return json.dumps(parsed)


OTHERS: Final[dict[str, Callable[[Authenticator], object]]] = {
    "another challenge is signed": lambda one: verified(one, one.get(new_challenge())),
    "another challenge is created for": lambda one: CEREMONIES.created(
        one.create(new_challenge(), user_handle=HANDLE), CHALLENGE
    ),
    "another key": lambda one: verified(Authenticator(), one.get(CHALLENGE)),
    "a creation in place of a use": lambda one: verified(one, one.get(CHALLENGE, type="webauthn.create")),
    "a use in place of a creation": lambda one: created(one, type="webauthn.get"),
    "the answer to a use": lambda one: CEREMONIES.created(one.get(CHALLENGE), CHALLENGE),
    "a key without a ceremony": lambda one: CEREMONIES.created(
        json.dumps({"id": "a", "rawId": "a", "type": "public-key", "response": {"publicKey": base64url(b"key")}}),
        CHALLENGE,
    ),
    "a signature of another kind": lambda one: verified(one, one.get(CHALLENGE, signature=b"s" * 64)),
    "an attestation with a certificate": lambda one: created(
        one, fmt="packed", statement={"alg": -7, "sig": b"s", "x5c": [b"c"]}
    ),
    "an attestation of a TPM": lambda one: created(one, fmt="tpm", statement={"ver": "2.0", "alg": -7, "sig": b"s"}),
    "an attestation of none with a statement": lambda one: created(one, statement={"sig": b"s"}),
    "a self attestation by another key": lambda one: created(
        one, fmt="packed", statement={"alg": -7, "sig": Authenticator().sign(b"")}
    ),
    "a key of another algorithm": lambda _: created(Authenticator(algorithm="ES384")),
    "deep CBOR": lambda _: CEREMONIES.created(_with_attestation(b"\x81" * 9000), CHALLENGE),
    "CBOR that says it is large": lambda _: CEREMONIES.created(
        _with_attestation(b"\x9b" + (2**40).to_bytes(8, "big")), CHALLENGE
    ),
    "too large": lambda one: CEREMONIES.parse(one.get(CHALLENGE) + " " * 20_000),
    "deep": lambda _: CEREMONIES.parse("[" * 10_000),
}


@pytest.mark.parametrize("act", [pytest.param(act, id=name) for name, act in OTHERS.items()])
def test_what_is_not_the_ceremony_is_not_accepted(act: Callable[[Authenticator], object]) -> None:
    with pytest.raises(FactorRefusedError, match="not-accepted"):
        act(Authenticator())


def test_only_makes_on_the_list_are_accepted() -> None:
    listed, other = Authenticator(aaguid=b"l" * 16), Authenticator(aaguid=b"o" * 16)
    ceremonies = Ceremonies(relying_party(ORIGIN), aaguids=["6C6C6C6C-6c6c-6c6c-6c6c-6c6c6c6c6c6c"])
    assert ceremonies.created(listed.create(CHALLENGE, user_handle=HANDLE), CHALLENGE).aaguid[:4] == "6c6c"
    with pytest.raises(FactorRefusedError, match="not-accepted"):
        ceremonies.created(other.create(CHALLENGE, user_handle=HANDLE), CHALLENGE)


def _mutated(member: str, credential: str, position: int, values: bytes) -> str:
    parsed = json.loads(credential)
    text = parsed["response"][member]
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    position %= len(raw)
    parsed["response"][member] = base64url(raw[:position] + values + raw[position + len(values) :])
    return json.dumps(parsed)


AUTHENTICATOR: Final = Authenticator()
MADE: Final = AUTHENTICATOR.create(CHALLENGE, user_handle=HANDLE)
USED: Final = AUTHENTICATOR.get(CHALLENGE)
POSITIONS: Final = st.integers(0, 2000)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)


@given(
    member=st.sampled_from(["clientDataJSON", "attestationObject"]),
    position=POSITIONS,
    values=st.binary(max_size=12),
)
def test_hostile_bytes_in_a_new_passkey_are_refused_or_change_nothing(
    member: str, position: int, values: bytes
) -> None:
    try:
        made = CEREMONIES.created(_mutated(member, MADE, position, values), CHALLENGE)
    except FactorRefusedError as refused:
        assert refused.reason == "not-accepted"
    else:
        assert len(made.public_key) < 100


@given(
    member=st.sampled_from(["clientDataJSON", "authenticatorData", "signature"]),
    position=POSITIONS,
    values=st.binary(max_size=12),
)
def test_hostile_bytes_in_an_assertion_are_refused(member: str, position: int, values: bytes) -> None:
    mutated = _mutated(member, USED, position, values)
    public_key = CEREMONIES.created(MADE, CHALLENGE).public_key
    try:
        CEREMONIES.verify(CEREMONIES.parse(mutated), CHALLENGE, public_key=public_key)
    except FactorRefusedError as refused:
        assert refused.reason == "not-accepted"
    else:
        assert json.loads(mutated) == json.loads(USED)


def _as_ours(data: bytes, *, extensions: bytes = b"") -> bytes:
    """Return authenticator data as if for us, with the user's verification."""
    flags = data[32] | UV | (AuthenticatorData.FLAG.ED if extensions else 0)
    return sha256(RP_ID.encode()).digest() + bytes([flags]) + data[33:] + extensions


_HEAD: Final = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData"


def _unattested(data: bytes) -> bytes:
    """Return an attestation object without a statement."""
    return _HEAD + b"\x59" + len(data).to_bytes(2, "big") + data


_STATEMENT: Final = {"alg": -7, "sig": PACKED_SIGNATURE}
_CERTIFIED: Final = {"x5c": [PACKED_CERTIFICATE]}
_ELSEWHERE: Final = [
    *(_unattested(data) for data in (_as_ours(SECURITY_KEY), _as_ours(WINDOWS_HELLO), SECURITY_KEY)),
    *(
        bytes(AttestationObject.create(form, AuthenticatorData(_as_ours(PACKED)), _STATEMENT | more))
        for form, more in (("packed", {}), ("packed", _CERTIFIED), ("fido-u2f", _CERTIFIED))
    ),
]
"""Attestations of real authenticators; we would accept the first two."""


def _is_refused(attestation: bytes) -> bool:
    """Tell whether a passkey with this attestation is refused; the key of an accepted one has not signed anything."""
    try:
        made = CEREMONIES.created(_with_attestation(attestation), CHALLENGE)
    except FactorRefusedError as refused:
        assert refused.reason == "not-accepted"
        return True
    with pytest.raises(FactorRefusedError, match="not-accepted"):
        CEREMONIES.verify(CEREMONIES.parse(USED), CHALLENGE, public_key=made.public_key)
    return False


def test_attestations_of_real_authenticators_are_judged() -> None:
    assert [_is_refused(each) for each in _ELSEWHERE] == [False, False, True, True, True, True]


@settings(max_examples=length(short=300, long=50_000))
@given(seed=st.sampled_from(_ELSEWHERE), position=POSITIONS, values=st.binary(max_size=12) | st.sampled_from(CBOR))
def test_mutated_attestations_of_real_authenticators_are_refused_or_give_a_useless_key(
    seed: bytes, position: int, values: bytes
) -> None:
    position %= len(seed)
    _is_refused(seed[:position] + values + seed[position + len(values) :])


@pytest.mark.parametrize("odd", [pytest.param(each, id=each.hex()) for each in CBOR])
def test_odd_cbor_is_refused_wherever_it_stands(odd: bytes) -> None:
    data = _as_ours(SECURITY_KEY)
    key = data.index(bytes.fromhex("a5010203262001"))
    assert _is_refused(odd)
    assert _is_refused(_HEAD + odd)
    assert _is_refused(b"\xa3\x63fmt" + odd + _unattested(data)[10:])
    assert _is_refused(_unattested(data[:key] + odd))
    _is_refused(_unattested(_as_ours(SECURITY_KEY, extensions=odd)))
    parsed = json.loads(USED)
    parsed["response"]["authenticatorData"] = base64url(
        _as_ours(SECURITY_KEY[:32] + b"\x01" + bytes(4), extensions=odd)
    )
    with pytest.raises(FactorRefusedError, match="not-accepted"):
        verified(AUTHENTICATOR, json.dumps(parsed))


@given(
    name=st.sampled_from(["response", "id", "rawId", "type", "clientDataJSON", "attestationObject", "userHandle"]),
    to=json_values,
)
def test_hostile_json_is_refused_or_changes_nothing(name: str, to: Any) -> None:
    for credential, judge in ((MADE, partial(CEREMONIES.created, challenge=CHALLENGE)), (USED, CEREMONIES.parse)):
        parsed = json.loads(credential)
        holder = parsed["response"] if name in parsed["response"] else parsed
        holder[name] = to
        try:
            judge(json.dumps(parsed))
        except FactorRefusedError as refused:
            assert refused.reason == "not-accepted"


@pytest.mark.parametrize(
    ("base_url", "rp_id", "expected"),
    [
        ("http://localhost:3000", "", RelyingParty("localhost", "http://localhost:3000")),
        ("https://ID.Example.com:443", "", RelyingParty("id.example.com", "https://id.example.com")),
        ("https://id.example.com", "example.com", RelyingParty("example.com", "https://id.example.com", is_host=False)),
        ("http://127.0.0.1:3000", "", None),
        ("http://[::1]:3000", "", None),
    ],
)
def test_passkeys_belong_to_a_domain(base_url: str, rp_id: str, expected: RelyingParty | None) -> None:
    assert rp_id_problem(base_url, rp_id) is None
    assert relying_party(base_url, rp_id) == expected


@pytest.mark.parametrize(
    ("base_url", "rp_id"),
    [
        ("https://id.example.com", "com"),
        ("https://id.example.com", "ample.com"),
        ("https://id.example.com", "www.id.example.com"),
        ("https://id.example.com", "other.com"),
        ("https://id.example.com", ".example.com"),
        ("http://127.0.0.1:3000", "0.0.1"),
        ("http://127.0.0.1:3000", "localhost"),
    ],
)
def test_a_domain_that_a_browser_would_refuse_is_refused(base_url: str, rp_id: str) -> None:
    assert rp_id_problem(base_url, rp_id) is not None


def test_without_a_domain_passkeys_are_off() -> None:
    for act in (lambda: Ceremonies(None).created(MADE, CHALLENGE), lambda: Ceremonies(None).parse(USED)):
        with pytest.raises(FactorRefusedError, match="off"):
            act()
