"""Client authentication: which credentials a request carries, and whose they are."""

from __future__ import annotations

import base64
import hashlib
import itertools
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.wire.events import ApplicationState, ApplicationType, SecretState
from token_service.grants.client_authentication import (
    METHODS,
    ClientCredentials,
    is_authentic,
    read_credentials,
)
from token_service.grants.form import FormParameters
from token_service.grants.oauth_errors import OAuthError

NOW = 1_800_000_000_000
TYPES: tuple[ApplicationType, ...] = ("MachineToMachine", "Traditional", "SPA", "Native")


def sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def basic(client_id: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()


def refusal(authorization: list[str], **form: str) -> tuple[str, int]:
    with pytest.raises(OAuthError) as refused:
        read_credentials(authorization, FormParameters(form))
    return refused.value.error, refused.value.status


INVALID_CLIENT = ("invalid_client", 401)
INVALID_REQUEST = ("invalid_request", 400)


class TestReading:
    def test_basic(self) -> None:
        assert read_credentials([basic("app", "secret")], FormParameters({})) == ClientCredentials(
            "app", "client_secret_basic", sha256("secret")
        )

    def test_basic_beside_the_same_client_id_in_the_form(self) -> None:
        assert read_credentials([basic("app", "secret")], FormParameters({"client_id": "app"})) == ClientCredentials(
            "app", "client_secret_basic", sha256("secret")
        )

    def test_post(self) -> None:
        assert read_credentials(
            [], FormParameters({"client_id": "app", "client_secret": "secret"})
        ) == ClientCredentials("app", "client_secret_post", sha256("secret"))

    def test_client_id_alone(self) -> None:
        assert read_credentials([], FormParameters({"client_id": "app"})) == ClientCredentials("app", "none", None)

    @given(client_id=st.text(min_size=1), secret=st.text(min_size=1))
    def test_credentials_encoded_by_rfc_6749_are_decoded(self, client_id: str, secret: str) -> None:
        """RFC 6749 section 2.3.1: id and secret are form-urlencoded before they are joined by a colon."""
        encoded = basic(quote_plus(client_id, errors="replace"), quote_plus(secret, errors="replace"))
        replaced = secret.encode("utf-8", "replace").decode()

        assert read_credentials([encoded], FormParameters({})) == ClientCredentials(
            client_id.encode("utf-8", "replace").decode(), "client_secret_basic", sha256(replaced)
        )

    @pytest.mark.parametrize("scheme", ["Basic", "basic", "BASIC", "bAsIc"])
    def test_the_scheme_is_compared_without_regard_to_case(self, scheme: str) -> None:
        """RFC 9110 section 11.1."""
        header = basic("app", "secret").replace("Basic", scheme)

        assert read_credentials([header], FormParameters({})).client_id == "app"

    def test_a_secret_may_contain_colons(self) -> None:
        assert read_credentials([basic("app", "a:b:c")], FormParameters({})).secret_sha256 == sha256("a:b:c")

    @pytest.mark.parametrize(
        "header",
        [
            "",
            " ",
            "Basic",
            "Basic ",
            "Basic !!!",
            "Basic YQ",
            "Basic \xff\xfe",
            "Basic " + base64.b64encode(b"\xff:\xff").decode(),
            "Basic " + base64.b64encode(b"no-colon").decode(),
            "Basic " + base64.b64encode(b":secret").decode(),
            "Basic " + base64.b64encode(b"app:").decode(),
            "Basic " + base64.b64encode(b":").decode(),
            "Basic " + base64.b64encode(b"app:secret").decode() + " x",
            "Bearer eyJhbGciOiJub25lIn0.e30.",
            "Digest username=app",
            "Negotiate x",
            "x" * 2**20,
            "Basic " + "A" * 2**20,
        ],
    )
    def test_a_header_without_basic_credentials_is_invalid_client(self, header: str) -> None:
        """Unsupported or broken credentials are not skipped in favour of what the form says."""
        assert refusal([header]) == INVALID_CLIENT
        assert refusal([header], client_id="app") == INVALID_CLIENT

    def test_a_nul_in_the_header_is_an_unknown_client(self) -> None:
        """It does not cause a server error."""
        assert read_credentials([basic("a%00", "b\0")], FormParameters({})) == ClientCredentials(
            "a\0", "client_secret_basic", sha256("b\0")
        )

    def test_a_repeated_header_is_refused_even_if_alike(self) -> None:
        assert refusal([basic("app", "secret")] * 2) == INVALID_REQUEST

    def test_two_different_client_ids_are_refused(self) -> None:
        """Also where they differ in case only."""
        assert refusal([basic("app", "secret")], client_id="other") == INVALID_REQUEST
        assert refusal([basic("app", "secret")], client_id="App") == INVALID_REQUEST

    @pytest.mark.parametrize(
        ("header", "named", "secret", "assertion"),
        list(itertools.product((None, "app", "other"), (False, True), (False, True), (None, "alone", "typed"))),
    )
    def test_every_combination_uses_one_method_or_is_refused(
        self, header: str | None, named: bool, secret: bool, assertion: str | None
    ) -> None:
        """RFC 6749 section 2.3: no more than one method; nothing that was presented is ignored."""
        form = {}
        if named:
            form["client_id"] = "app"
        if secret:
            form["client_secret"] = "form-secret"
        if assertion:
            form["client_assertion"] = "eyJhbGciOiJub25lIn0.e30."
        if assertion == "typed":
            form["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        authorization = [basic(header, "header-secret")] if header else []

        methods = [header is not None, secret, assertion is not None].count(True)
        if methods > 1 or (header == "other" and named):
            assert refusal(authorization, **form) == INVALID_REQUEST
        elif assertion or not (header or named):
            assert refusal(authorization, **form) == INVALID_CLIENT
        else:
            method = "client_secret_basic" if header else "client_secret_post" if secret else "none"
            presented = {"client_secret_basic": "header-secret", "client_secret_post": "form-secret", "none": None}
            value = presented[method]
            assert read_credentials(authorization, FormParameters(form)) == ClientCredentials(
                header or "app", method, sha256(value) if value else None
            )

    def test_an_assertion_type_without_assertion_is_not_ignored(self) -> None:
        """A parameter without its partner."""
        assertion_type = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

        assert refusal([], client_id="app", client_assertion_type=assertion_type) == INVALID_CLIENT
        assert refusal([basic("app", "s")], client_assertion_type=assertion_type) == INVALID_REQUEST

    def test_credentials_hold_a_hash_and_no_secret(self) -> None:
        assert "hunter2" not in repr(read_credentials([basic("app", "hunter2")], FormParameters({})))


def application(kind: ApplicationType, *secrets: SecretState) -> ApplicationState:
    return ApplicationState(id="app", type=kind, secrets=secrets)


class TestJudging:
    @pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
    @pytest.mark.parametrize("kind", TYPES)
    def test_a_right_secret_counts_only_by_a_method_of_the_type(self, kind: ApplicationType, method: str) -> None:
        credentials = ClientCredentials("app", method, sha256("secret"))  # type: ignore[arg-type]
        client = application(kind, SecretState(sha256=sha256("secret")))

        assert is_authentic(client, credentials, now=NOW) is (method in METHODS[kind])

    @pytest.mark.parametrize("kind", TYPES)
    def test_only_public_clients_need_no_secret(self, kind: ApplicationType) -> None:
        credentials = ClientCredentials("app", "none")

        assert is_authentic(application(kind), credentials, now=NOW) is (kind in {"SPA", "Native"})

    def test_the_methods_are_those_of_the_contract(self) -> None:
        assert {
            "MachineToMachine": {"client_secret_basic", "client_secret_post"},
            "Traditional": {"client_secret_basic"},
            "Native": {"none"},
            "SPA": {"none"},
        } == METHODS

    def test_a_client_that_does_not_exist_is_not_authentic(self) -> None:
        assert not is_authentic(None, ClientCredentials("app", "none"), now=NOW)
        assert not is_authentic(None, ClientCredentials("app", "client_secret_basic", sha256("secret")), now=NOW)

    def test_a_client_without_secrets_cannot_authenticate(self) -> None:
        """There is no default."""
        for secret in ("", "secret", "None"):
            credentials = ClientCredentials("app", "client_secret_basic", sha256(secret))
            assert not is_authentic(application("Traditional"), credentials, now=NOW)

    @pytest.mark.parametrize(
        ("expires_at", "live"), [(None, True), (NOW + 1, True), (NOW, False), (NOW - 1, False), (0, False)]
    )
    def test_a_secret_counts_until_the_millisecond_of_its_expiry(self, expires_at: int | None, live: bool) -> None:
        """An expired secret does not count."""
        client = application("MachineToMachine", SecretState(sha256=sha256("secret"), expires_at=expires_at))
        credentials = ClientCredentials("app", "client_secret_post", sha256("secret"))

        assert is_authentic(client, credentials, now=NOW) is live

    def test_each_of_several_live_secrets_counts_and_no_expired_one(self) -> None:
        client = application(
            "Traditional",
            SecretState(sha256=sha256("old"), expires_at=NOW - 1),
            SecretState(sha256=sha256("current"), expires_at=NOW + 1),
            SecretState(sha256=sha256("next")),
        )
        accepted = [
            secret
            for secret in ("old", "current", "next", "other", "")
            if is_authentic(client, ClientCredentials("app", "client_secret_basic", sha256(secret)), now=NOW)
        ]

        assert accepted == ["current", "next"]

    def test_an_expired_secret_does_not_hide_a_live_one_of_the_same_value(self) -> None:
        expired = SecretState(sha256=sha256("secret"), expires_at=NOW - 1)
        live = SecretState(sha256=sha256("secret"), expires_at=NOW + 1)
        credentials = ClientCredentials("app", "client_secret_basic", sha256("secret"))

        assert is_authentic(application("Traditional", expired, live), credentials, now=NOW)
        assert is_authentic(application("Traditional", live, expired), credentials, now=NOW)

    @pytest.mark.parametrize("count", [2**8, 2**12])
    def test_the_last_of_very_many_secrets_counts_like_the_first(self, count: int) -> None:
        """CVE-2024-27101."""
        client = application("Traditional", *(SecretState(sha256=sha256(f"s{number}")) for number in range(count)))

        for number in (0, count - 1):
            credentials = ClientCredentials("app", "client_secret_basic", sha256(f"s{number}"))
            assert is_authentic(client, credentials, now=NOW)
