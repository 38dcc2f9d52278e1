"""RFC 9068, JWT Profile for OAuth 2.0 Access Tokens: what a verifier must refuse (section 4)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead import AccessToken, AccessTokenVerifier, ActorAuthentication, TokenInvalid
from stead.verify.access_tokens import Expectations, TokenChecker, read_token
from stead.verify.keys import KeySet
from tests.unit.sdk.issuer import AUDIENCE, ISSUER, NOW, SigningKey, b64, claims, compact, jwks, token

KEY = SigningKey("current")
ED_KEY = SigningKey("edwards", "EdDSA")
RSA_KEY = SigningKey("rivest", "RS256")
FOREIGN_KEY = SigningKey("current")
KEYS = KeySet.parse(jwks(KEY, ED_KEY, RSA_KEY))
EXPECTED = Expectations(issuer=ISSUER, audience=AUDIENCE)


def verify(candidate: Any, *, expected: Expectations = EXPECTED, now: float = NOW) -> AccessToken:
    return TokenChecker(expected).check(read_token(candidate, expected), keys=KEYS, now=now)


def refusal(candidate: Any, *, expected: Expectations = EXPECTED, now: float = NOW) -> str:
    with pytest.raises(TokenInvalid) as refused:
        verify(candidate, expected=expected, now=now)
    return refused.value.reason


@pytest.mark.parametrize("key", [KEY, ED_KEY, RSA_KEY], ids=lambda key: key.alg)
def test_a_good_token_says_what_it_says(key: SigningKey) -> None:
    act = {"sub": "user00000002", "act": {"sub": "user00000003"}}
    gty = "urn:ietf:params:oauth:grant-type:token-exchange"

    said = {"auth_time": int(NOW) - 60, "amr": ["otp", "pwd"], "acr": "urn:service:acr:mfa"}
    more = {"auth_time": NOW - 90.5, "amr": ["pwd"], "acr": "urn:service:acr:password", "actor_authentication": said}

    verified = verify(token(key, act=act, gty=gty, organization_id="org000000001", nbf=int(NOW), **more))

    assert verified == AccessToken(
        id="token-1",
        key_id=key.kid,
        issuer=ISSUER,
        subject="user00000001",
        audience=AUDIENCE,
        client_id="client000000000000001",
        scopes=frozenset({"read:things", "write:things"}),
        issued_at=int(NOW) - 10,
        expires_at=int(NOW) + 3600,
        actor=act,
        grant_type=gty,
        organization_id="org000000001",
        auth_time=NOW - 90.5,
        amr=("pwd",),
        acr="urn:service:acr:password",
        actor_authentication=ActorAuthentication(
            auth_time=int(NOW) - 60, amr=("otp", "pwd"), acr="urn:service:acr:mfa"
        ),
        claims=claims(act=act, gty=gty, organization_id="org000000001", nbf=int(NOW), **more),
    )


def test_a_token_without_optional_claims_grants_nothing_and_has_no_actor() -> None:
    verified = verify(token(KEY, scope=None))

    assert (verified.scopes, verified.actor, verified.grant_type, verified.organization_id) == (
        frozenset(),
        None,
        None,
        None,
    )
    assert (verified.auth_time, verified.amr, verified.acr, verified.actor_authentication) == (None, (), None, None)


class TestForm:
    @pytest.mark.parametrize(
        "candidate",
        [
            None,
            b"bytes",
            7,
            "",
            ".",
            "..",
            "...",
            "not a token",
            "sub_2Jx0mTq7cQb1",
            "é.é.é",
            "a.b",
            "a.b.c",
            "a.b.c.d.e",
            "\ud800.a.b",
            "AAAA.AAAA.AAAA\n",
            "AAAA.AAAA.AAAA=",
            "AAAA.AAAA.",
        ],
    )
    def test_anything_but_a_compact_jws_is_malformed(self, candidate: Any) -> None:
        """RFC 7515 section 7.1: three segments of base64url, no padding."""
        assert refusal(candidate) == "malformed"

    def test_a_token_of_two_parts_is_malformed(self) -> None:
        """An unsecured token with its last dot removed."""
        assert refusal(token(KEY).rpartition(".")[0]) == "malformed"

    def test_a_token_without_signature_is_malformed(self) -> None:
        """An empty signature is not a signature, whatever alg says."""
        assert refusal(token(KEY).rpartition(".")[0] + ".") == "malformed"

    def test_a_token_of_more_than_16_kib_is_refused_before_it_is_read(self) -> None:
        """The limit holds at 16,384 characters and not one later."""
        fitting = token(KEY, padding="x")
        fitting = token(KEY, padding="x" * (1 + (16_384 - len(fitting)) * 3 // 4 - 3))
        assert 16_370 < len(fitting) <= 16_384
        assert verify(fitting).subject == "user00000001"
        assert refusal("A" * 16_384) == "malformed"
        assert refusal("A" * 16_385) == "too_large"
        assert refusal("." * 10_000_000) == "too_large"

    def test_an_altered_spelling_of_a_signature_is_refused(self) -> None:
        """RFC 4648 section 3.5: bits that encode nothing must be zero, or one token has several spellings."""
        good = token(KEY)
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        other = good[:-1] + alphabet[alphabet.index(good[-1]) + 1]
        assert base64.urlsafe_b64decode(good.split(".")[2] + "==") == base64.urlsafe_b64decode(
            other.split(".")[2] + "=="
        )

        assert refusal(other) == "malformed"

    @pytest.mark.parametrize(
        "header",
        [
            b"",
            b"null",
            b"[]",
            b'"alg"',
            b"{",
            b'{"alg":7}',
            b'{"kid":null}',
            b"\xff\xfe",
            b"[" * 5000,
            b'{"alg":"\xff"}',
        ],
    )
    def test_a_header_that_is_not_an_object_of_strings_is_malformed(self, header: bytes) -> None:
        """Garbage where the header should be ends in a refusal, never in another exception."""
        assert refusal(compact(header, claims(), KEY)) == "malformed"

    @pytest.mark.parametrize(
        "payload", [b" ", b"null", b"[]", b"{", b"\xff\xfe", b'{"a":' * 2000, b'{"exp":1e999}', b"7"]
    )
    def test_a_payload_that_is_not_an_object_is_malformed(self, payload: bytes) -> None:
        """Also when the signature over it is good."""
        header = {"alg": "ES256", "typ": "at+jwt", "kid": KEY.kid}
        assert refusal(compact(header, payload, KEY)) == "malformed"

    @pytest.mark.heavy
    @given(st.one_of(st.text(), st.binary(), st.from_regex(r"[A-Za-z0-9_-]{1,40}(\.[A-Za-z0-9_-]{0,40}){1,4}")))
    def test_garbage_is_refused_and_never_anything_else(self, candidate: Any) -> None:
        """TokenInvalid is the only way out."""
        with pytest.raises(TokenInvalid):
            verify(candidate)


class TestHeader:
    @pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "Application/At+JWT"])
    def test_an_access_token_is_recognized_by_its_typ(self, typ: str) -> None:
        """RFC 9068 section 4; media types compare without regard to case (RFC 7515 section 4.1.9)."""
        assert verify(token(KEY, header={"typ": typ})).subject == "user00000001"

    @pytest.mark.parametrize("typ", [None, "", "JWT", "jwt", "at+jwt ", "application/jwt", "x/at+jwt", "logout+jwt"])
    def test_any_other_typ_is_refused(self, typ: str | None) -> None:
        """An ID token (``typ`` JWT or none) never passes for an access token."""
        assert refusal(token(KEY, header={"typ": typ})) == "unsupported_type"

    @pytest.mark.parametrize(
        "alg",
        [None, "", "none", "None", "NONE", "HS256", "HS512", "ES384", "ES256K", "RS512", "PS256", "es256", "Ed25519"],
    )
    def test_an_alg_outside_the_list_is_refused(self, alg: str | None) -> None:
        """CVE-2026-11800: the list is the verifier's, never the token's."""
        assert refusal(token(KEY, header={"alg": alg})) == "unsupported_algorithm"

    def test_alg_none_with_an_empty_or_a_junk_signature_is_refused(self) -> None:
        """RFC 9068 section 4: a token whose alg is none must be rejected."""
        unsigned = f"{b64(json.dumps({'alg': 'none', 'typ': 'at+jwt', 'kid': KEY.kid}).encode())}.{b64(b'{}')}"
        assert refusal(f"{unsigned}.") == "malformed"
        assert refusal(f"{unsigned}.AAAA") == "unsupported_algorithm"

    @pytest.mark.parametrize("alg", ["HS256", "ES256", "RS256"])
    def test_the_public_key_is_not_a_shared_secret(self, alg: str) -> None:
        """CVE-2026-11800: an HMAC with the published key as its secret, under every name of an algorithm."""
        signing_input = ".".join(
            b64(json.dumps(part).encode()) for part in ({"alg": alg, "typ": "at+jwt", "kid": RSA_KEY.kid}, claims())
        )
        for secret in (json.dumps(RSA_KEY.jwk()).encode(), RSA_KEY.jwk()["n"].encode()):
            forged = f"{signing_input}.{b64(hmac.digest(secret, signing_input.encode(), hashlib.sha256))}"
            assert refusal(forged) in {"unsupported_algorithm", "bad_signature"}

    def test_a_key_verifies_its_own_algorithm_only(self) -> None:
        """RFC 8725 section 3.1: an algorithm that is allowed, but not for this key."""
        for key, alg in ((KEY, "RS256"), (RSA_KEY, "ES256"), (ED_KEY, "ES256"), (KEY, "EdDSA")):
            assert refusal(token(key, header={"alg": alg})) == "unsupported_algorithm"

    def test_an_algorithm_that_this_verifier_does_not_allow_is_refused(self) -> None:
        """The keys may be of more kinds than the verifier wants."""
        only_es256 = Expectations(issuer=ISSUER, audience=AUDIENCE, algorithms=("ES256",))
        assert verify(token(KEY), expected=only_es256).subject == "user00000001"
        assert refusal(token(RSA_KEY), expected=only_es256) == "unsupported_algorithm"

    @pytest.mark.parametrize("kid", [None, "", "other", "CURRENT", "current ", "../current", "0"])
    def test_a_key_that_the_issuer_has_not_published_is_refused(self, kid: str | None) -> None:
        """Nor one without a kid: keys are not tried in turn."""
        assert refusal(token(KEY, header={"kid": kid})) == "unknown_key"

    def test_a_foreign_key_under_a_known_kid_is_refused(self) -> None:
        """The name of the key proves nothing."""
        assert refusal(token(FOREIGN_KEY)) == "bad_signature"

    def test_a_key_that_the_token_brings_along_is_ignored(self) -> None:
        """RFC 7515 sections 4.1.2 to 4.1.6: neither jwk nor jku nor x5u nor x5c is a source of keys."""
        header = {
            "jwk": FOREIGN_KEY.jwk(),
            "jku": "https://attacker.example/jwks",
            "x5u": "https://attacker.example/cert",
            "x5c": ["AAAA"],
        }
        assert refusal(token(FOREIGN_KEY, header=header)) == "bad_signature"
        assert verify(token(KEY, header=header)).subject == "user00000001"

    @pytest.mark.parametrize("crit", [["b64"], ["exp"], [], "b64", 7, {}])
    def test_a_demand_for_extensions_is_refused(self, crit: Any) -> None:
        """RFC 7515 section 4.1.11: none is understood, so none can be honoured."""
        assert refusal(token(KEY, header={"crit": crit, "b64": False})) == "unsupported_header"

    def test_the_last_of_two_equal_members_counts(self) -> None:
        """RFC 7515 section 4: one of the two ways that the section allows."""
        header = b'{"alg":"ES256","typ":"at+jwt","kid":"current","alg":"none"}'
        assert refusal(compact(header, claims(), KEY)) == "unsupported_algorithm"


class TestSignature:
    def test_every_changed_byte_is_noticed(self) -> None:
        """In header, payload and signature."""
        good = token(KEY)
        header, payload, signature = good.split(".")
        body = json.loads(base64.urlsafe_b64decode(payload + "=="))
        other_payload = b64(json.dumps({**body, "scope": "read:things write:things admin"}).encode())
        other_header = b64(json.dumps({"alg": "ES256", "typ": "at+jwt", "kid": "current", "x": 1}).encode())
        other_signature = b64(bytes(64))

        assert refusal(f"{header}.{other_payload}.{signature}") == "bad_signature"
        assert refusal(f"{other_header}.{payload}.{signature}") == "bad_signature"
        assert refusal(f"{header}.{payload}.{other_signature}") == "bad_signature"

    @pytest.mark.parametrize("size", [1, 63, 65, 256])
    def test_a_signature_of_a_wrong_size_is_refused(self, size: int) -> None:
        """For every kind of key."""
        for key in (KEY, ED_KEY, RSA_KEY):
            signing_input = token(key).rpartition(".")[0]
            assert refusal(f"{signing_input}.{b64(bytes(size))}") == "bad_signature"


class TestClaims:
    @pytest.mark.parametrize(
        "iss",
        [None, "", ISSUER + "/", ISSUER.upper(), "https://id.example.com", "https://id.example.org/oidc", [ISSUER], 7],
    )
    def test_the_issuer_is_compared_byte_for_byte(self, iss: Any) -> None:
        """RFC 9068 section 4: must exactly match."""
        assert refusal(token(KEY, iss=iss)) == "wrong_issuer"

    @pytest.mark.parametrize(
        "aud",
        [
            None,
            "",
            [],
            AUDIENCE + "/",
            AUDIENCE.upper(),
            "https://other.example.com",
            ["https://other.example.com"],
            "client000000000000001",
            "https://id.example.com/oidc/me",
            {AUDIENCE: True},
            [[AUDIENCE]],
            7,
        ],
    )
    def test_a_token_for_another_audience_is_refused(self, aud: Any) -> None:
        """CVE-2026-55669, CVE-2026-55689: aud is mandatory and never skipped."""
        assert refusal(token(KEY, aud=aud)) == "wrong_audience"

    def test_one_of_several_audiences_may_be_the_expected_one(self) -> None:
        """RFC 9068 section 4: aud contains a resource indicator that the resource server expects for itself."""
        assert verify(token(KEY, aud=["https://other.example.com", AUDIENCE])).audience == AUDIENCE

    def test_an_id_token_does_not_become_an_access_token_by_its_header(self) -> None:
        """Its audience is a client, and it has neither client_id nor jti."""
        id_token = {"aud": "client000000000000001", "client_id": None, "jti": None, "nonce": "n", "auth_time": int(NOW)}
        assert refusal(token(KEY, **id_token)) == "wrong_audience"
        assert refusal(token(KEY, **{**id_token, "aud": AUDIENCE})) == "invalid_claims"

    def test_a_userinfo_token_is_not_for_an_api(self) -> None:
        """An access token of another class differs by its audience."""
        assert refusal(token(KEY, aud=f"{ISSUER}/me", scope="openid profile")) == "wrong_audience"

    @pytest.mark.parametrize(
        ("late_s", "outcome"), [(-1, None), (0, None), (59, None), (60, "expired"), (86_400, "expired")]
    )
    def test_a_token_is_refused_60_s_after_its_expiry(self, late_s: int, outcome: str | None) -> None:
        """RFC 7519 section 4.1.4: with a small leeway for clock skew."""
        candidate = token(KEY, exp=int(NOW))
        if outcome is None:
            assert verify(candidate, now=NOW + late_s).expires_at == NOW
        else:
            assert refusal(candidate, now=NOW + late_s) == outcome

    @pytest.mark.parametrize(("early_s", "outcome"), [(0, None), (60, None), (61, "not_yet_valid")])
    def test_a_token_is_refused_until_60_s_before_its_beginning(self, early_s: int, outcome: str | None) -> None:
        """RFC 7519 section 4.1.5."""
        candidate = token(KEY, nbf=int(NOW))
        if outcome is None:
            assert verify(candidate, now=NOW - early_s).subject == "user00000001"
        else:
            assert refusal(candidate, now=NOW - early_s) == outcome

    def test_the_leeway_can_be_narrowed(self) -> None:
        strict = Expectations(issuer=ISSUER, audience=AUDIENCE, leeway_s=0)
        assert refusal(token(KEY, exp=int(NOW)), expected=strict) == "expired"
        assert refusal(token(KEY, nbf=int(NOW) + 1), expected=strict) == "not_yet_valid"

    @pytest.mark.parametrize("iat", [0, int(NOW) + 300, int(NOW) + 10_000_000])
    def test_the_time_of_issue_is_not_judged(self, iat: int) -> None:
        """A clock that is ahead at the issuer is no reason to refuse; exp and nbf say what matters."""
        assert verify(token(KEY, iat=iat)).issued_at == iat

    @pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
    @pytest.mark.parametrize("value", ["1800000000", True, [], {}, -1, 2**53, 10**400, 1e300])
    def test_a_time_that_is_not_a_sensible_number_is_refused(self, name: str, value: Any) -> None:
        """A string, true, or a number beyond reason is refused, and does not crash the verifier."""
        assert refusal(token(KEY, **{name: value})) in {"invalid_claims", "malformed"}

    def test_times_may_have_fractions(self) -> None:
        """RFC 7519 section 2: a NumericDate may be a non-integer."""
        assert verify(token(KEY, exp=NOW + 0.5)).expires_at == NOW + 0.5

    @pytest.mark.parametrize("name", ["exp", "iat", "sub", "client_id", "jti"])
    def test_a_token_without_a_mandatory_claim_is_refused(self, name: str) -> None:
        """RFC 9068 section 2.2: the claims that every access token has."""
        assert refusal(token(KEY, **{name: None})) == "invalid_claims"
        without = {member: value for member, value in claims().items() if member != name} | {name: None}
        header = {"alg": KEY.alg, "typ": "at+jwt", "kid": KEY.kid}
        assert refusal(compact(header, without, KEY)) == "invalid_claims"

    @pytest.mark.parametrize("name", ["sub", "client_id", "jti"])
    @pytest.mark.parametrize("value", ["", 7, True, ["x"], {"x": 1}])
    def test_a_name_that_is_not_a_string_is_refused(self, name: str, value: Any) -> None:
        """An empty one is refused as well."""
        assert refusal(token(KEY, **{name: value})) == "invalid_claims"

    @pytest.mark.parametrize(
        "changes",
        [
            *({"scope": ["read:things"]}, {"scope": 7}, {"act": "user"}, {"act": []}, {"gty": 1}),
            *({"organization_id": 1}, {"auth_time": "1800000000"}, {"auth_time": True}, {"auth_time": -1}, {"acr": 1}),
            *({"amr": "pwd"}, {"amr": [1]}, {"amr": {}}, {"actor_authentication": "phr"}),
            *({"actor_authentication": each} for each in ({"acr": 1}, {"auth_time": "x"}, {"amr": "pwd"}, [])),
        ],
    )
    def test_an_optional_claim_of_a_wrong_type_is_refused(self, changes: dict[str, Any]) -> None:
        """An unreadable act must not count as an absent one."""
        assert refusal(token(KEY, **changes)) == "invalid_claims"

    def test_scopes_are_tokens_and_not_parts_of_a_string(self) -> None:
        """RFC 6749 section 3.3: ``openid2`` does not contain the scope ``openid``."""
        assert "openid" not in verify(token(KEY, scope="openid2 xopenid")).scopes


class TestExpectations:
    @pytest.mark.parametrize("empty", ["", " ", None])
    def test_a_verifier_without_issuer_or_audience_cannot_be_built(self, empty: Any) -> None:
        """CVE-2026-55689: unset means it does not start, not that it does not check."""
        with pytest.raises(ValueError, match="issuer"):
            AccessTokenVerifier(issuer=empty, audience=AUDIENCE)
        with pytest.raises(ValueError, match="audience"):
            AccessTokenVerifier(issuer=ISSUER, audience=empty)

    @pytest.mark.parametrize("algorithms", [(), ("none",), ("HS256",), ("ES256", "HS256"), ("ES256", "")])
    def test_a_verifier_of_symmetric_or_no_algorithms_cannot_be_built(self, algorithms: tuple[str, ...]) -> None:
        """Nothing that could be forged with a public key can be switched on."""
        with pytest.raises(ValueError, match="algorithms"):
            AccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, algorithms=algorithms)

    def test_the_leeway_is_not_negative(self) -> None:
        with pytest.raises(ValueError, match="leeway"):
            Expectations(issuer=ISSUER, audience=AUDIENCE, leeway_s=-1)


def test_a_refusal_reveals_nothing_about_the_token() -> None:
    """Reason, text and repr are the same few words for every token."""
    candidate = token(FOREIGN_KEY, sub="somebody-in-particular")
    with pytest.raises(TokenInvalid) as refused:
        verify(candidate)
    assert (str(refused.value), repr(refused.value)) == ("bad_signature", "TokenInvalid('bad_signature')")
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    assert repr(read_token(candidate, EXPECTED)) == "UnverifiedToken(key_id='current')"
