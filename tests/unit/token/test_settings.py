"""Settings: every wrong variable is named at once, and no value is shown."""

from __future__ import annotations

import base64
import traceback

import pytest

from identity_common.settings import InvalidSettingsError
from token_service.settings import Settings
from token_service.sign_in.pending import weight_of
from token_service.sign_in.request import AuthorizationRequest

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(range(32, 64))).decode()
GOOD = {
    "BASE_URL": "https://id.example.com",
    "DATABASE_URL": "postgresql+asyncpg://token:hunter2@db:5432/token",
    "NATS_URL": "nats://token:hunter2@nats:4222",
    "REDIS_URL": "redis://token:hunter2@redis:6379/0",
    "KEY_ENCRYPTION_KEYS": KEY,
    "ENVIRONMENT_VARIABLE_KEYS": OTHER_KEY,
}


def problems(**changes: str | None) -> list[str]:
    """Return the lines of the refusal; a change to None takes a variable away."""
    environment = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    with pytest.raises(InvalidSettingsError) as refused:
        Settings.from_environment(environment)
    shown = "".join(traceback.format_exception(refused.value))
    assert not [value for value in environment.values() if len(value) > 3 and value in shown]
    return str(refused.value).splitlines()


def test_the_required_variables_are_enough() -> None:
    settings = Settings.from_environment(GOOD)

    assert settings == Settings(
        base_url="https://id.example.com",
        tenant_id="default",
        environment="production",
        urn_namespace="service",
        management_api_resource="https://default.service.internal/api",
        database_url=GOOD["DATABASE_URL"],
        nats_url=GOOD["NATS_URL"],
        jwks_url=None,
        redis_url=GOOD["REDIS_URL"],
        key_encryption_keys=(KEY,),
        environment_variable_keys=(OTHER_KEY,),
        signing_algorithm="ES256",
        directory_max_age_s=900,
        revision_wait_s=2.0,
        redis_replicas=0,
    )
    assert settings.issuer == "https://id.example.com/oidc"
    assert settings.jwks_address == "https://id.example.com/oidc/jwks"


def test_everything_can_be_set() -> None:
    settings = Settings.from_environment(
        {
            **GOOD,
            "SIGNING_ALGORITHM": "EdDSA",
            "KEY_ENCRYPTION_KEYS": f"{KEY}, {OTHER_KEY}",
            "DIRECTORY_MAX_AGE_S": "60",
            "REVISION_WAIT_S": "0.25",
            "REDIS_REPLICAS": "2",
            "JWKS_URL": "http://token:8000/oidc/jwks",
        }
    )

    assert settings.signing_algorithm == "EdDSA"
    assert settings.key_encryption_keys == (KEY, OTHER_KEY)
    assert (settings.directory_max_age_s, settings.revision_wait_s, settings.redis_replicas) == (60, 0.25, 2)
    assert settings.jwks_address == "http://token:8000/oidc/jwks"


def test_secrets_and_addresses_have_no_default() -> None:
    """GHSA-r9w3-57w2-gch2: the service does not start with a key or password that others know."""
    with pytest.raises(InvalidSettingsError) as refused:
        Settings.from_environment({})

    assert sorted(str(refused.value).splitlines()) == [
        "BASE_URL: must be set",
        "DATABASE_URL: must be set",
        "ENVIRONMENT_VARIABLE_KEYS: must be set",
        "KEY_ENCRYPTION_KEYS: must be set",
        "NATS_URL: must be set",
        "REDIS_URL: must be set",
    ]


@pytest.mark.parametrize("variable", GOOD)
def test_an_empty_variable_counts_as_missing(variable: str) -> None:
    assert problems(**{variable: ""}) == [f"{variable}: must be set"]


def test_every_error_is_reported_at_once() -> None:
    """Missing, of the wrong type, or of the right type but invalid: one line each, without values."""
    assert sorted(
        problems(
            BASE_URL="ftp://hunter2.example/",
            DATABASE_URL="mysql://token:hunter2@db/token",
            NATS_URL=None,
            REDIS_URL="http://token:hunter2@redis",
            KEY_ENCRYPTION_KEYS="hunter2-is-no-key",
            ENVIRONMENT_VARIABLE_KEYS=f"{KEY},hunter2",
            SIGNING_ALGORITHM="HS256",
            DIRECTORY_MAX_AGE_S="hunter2",
            REVISION_WAIT_S="soon-hunter2",
            ENVIRONMENT="staging-hunter2",
        )
    ) == [
        "BASE_URL: must be an absolute http(s) address without a slash at the end",
        "DATABASE_URL: must begin with postgresql+asyncpg://",
        "DIRECTORY_MAX_AGE_S: not acceptable as int",
        "ENVIRONMENT: not acceptable as one of development, production",
        "ENVIRONMENT_VARIABLE_KEYS: must be base64 of 32 bytes, or several with commas between them",
        "KEY_ENCRYPTION_KEYS: must be base64 of 32 bytes, or several with commas between them",
        "NATS_URL: must be set",
        "REDIS_URL: must begin with redis:// or rediss://, or with redis+sentinel:// or rediss+sentinel://",
        "REVISION_WAIT_S: not acceptable as float",
        "SIGNING_ALGORITHM: must be ES256, EdDSA or RS256",
    ]


@pytest.mark.parametrize(
    "value",
    [
        "hunter2hunter2",
        base64.b64encode(b"x" * 16).decode(),
        base64.b64encode(b"x" * 31).decode(),
        base64.b64encode(b"x" * 33).decode(),
        f"{KEY},",
        f"{KEY},short",
        f",{KEY}",
        KEY[:-2],
        f"{KEY}\n{KEY}",
    ],
)
def test_a_key_encryption_key_has_256_bits_in_base64(value: str) -> None:
    assert problems(KEY_ENCRYPTION_KEYS=value) == [
        "KEY_ENCRYPTION_KEYS: must be base64 of 32 bytes, or several with commas between them"
    ]


@pytest.mark.parametrize("time_ms", ["0", "-1", "1001"])
def test_a_call_of_the_claims_function_may_take_no_longer_than_a_test_of_it_is_waited_for(time_ms: str) -> None:
    assert problems(CLAIMS_TIME_MS=time_ms) == ["CLAIMS_TIME_MS: must be between 1 and 1000"]
    assert Settings.from_environment({**GOOD, "CLAIMS_TIME_MS": "1000"}).claims_time_ms == 1000


@pytest.mark.parametrize("result_bytes", ["1", "65537"])
def test_a_result_of_the_claims_function_fits_into_a_header(result_bytes: str) -> None:
    assert problems(CLAIMS_RESULT_BYTES=result_bytes) == ["CLAIMS_RESULT_BYTES: must be between 2 and 65536"]
    assert Settings.from_environment({**GOOD, "CLAIMS_RESULT_BYTES": "65536"}).claims_result_bytes == 65_536


def test_an_address_may_have_the_largest_request_waiting() -> None:
    largest = weight_of(AuthorizationRequest(client_id="", redirect_uri="", code_challenge=None, state="s" * 65_400))
    assert problems(PENDING_REQUESTS_PER_ADDRESS=str(largest - 1)) == [
        "PENDING_REQUESTS_PER_ADDRESS: must be a number of at least 11"
    ]
    accepted = Settings.from_environment({**GOOD, "PENDING_REQUESTS_PER_ADDRESS": str(largest)})
    assert accepted.pending_requests_per_address == largest


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://n1", "each address must begin with nats:// or tls://"),
        ("nats://u:hunter2@n1:4222,n2:4222", "each address must begin with nats:// or tls://"),
        ("nats://u:hunter2@n1:4222,", "each address must begin with nats:// or tls://"),
        ("nats://u:hunter2@", "an address has no host, or an invalid port"),
        ("nats://u:hunter2@n1:port", "an address has no host, or an invalid port"),
        ("nats://u:hunter2@n1,tls://u:hunter2@n2", "all addresses must have the same scheme"),
        ("nats://u:hunter2@n1,nats://u:hunter3@n2", "all addresses must have the same user and password"),
        ("nats://u:hunter2@n1,nats://n2", "all addresses must have the same user and password"),
    ],
)
def test_the_servers_of_a_nats_cluster_differ_in_host_and_port_only(url: str, problem: str) -> None:
    assert problems(NATS_URL=url) == [f"NATS_URL: {problem}"]


@pytest.mark.parametrize("replicas", ["-1", "0", "2", "4", "7"])
def test_a_stream_has_a_number_of_replicas_that_has_a_majority(replicas: str) -> None:
    assert problems(NATS_REPLICAS=replicas) == ["NATS_REPLICAS: must be 1, 3 or 5"]
    url = "tls://u:p@n1:4222, tls://u:p@n2:4222"
    settings = Settings.from_environment({**GOOD, "NATS_URL": url, "NATS_REPLICAS": "3"})
    assert (settings.nats_url, settings.nats_replicas) == (url, 3)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "es256", "RS512", "ES256K"])
def test_only_the_three_asymmetric_algorithms_are_accepted(algorithm: str) -> None:
    """CVE-2026-11800."""
    assert problems(SIGNING_ALGORITHM=algorithm) == ["SIGNING_ALGORITHM: must be ES256, EdDSA or RS256"]


@pytest.mark.parametrize(
    "address",
    [
        "id.example.com",
        "//id.example.com",
        "https://",
        "https:///path",
        "https://id.example.com/",
        "ftp://id.example.com",
        "https://[",
        "https://[::1",
        "https://id.example.com?x=1",
        "https://id.example.com#x",
        "https://user:hunter2@id.example.com",
    ],
)
def test_a_base_url_is_an_address_that_an_issuer_can_begin_with(address: str) -> None:
    """RFC 8414 section 2: an issuer has no query and no fragment; a published address holds no credentials."""
    assert problems(BASE_URL=address) == ["BASE_URL: must be an absolute http(s) address without a slash at the end"]


@pytest.mark.parametrize(
    "indicator",
    [
        "management",
        "https://",
        "https://h:99999/",
        "https://us:pw@h/",
        "https://h/%zz",
        "https://h/a[b]",
        "https://h/api#here",
        "https://id.example.com/oidc/me",
        "URN:service:organization:one",
    ],
)
def test_the_management_api_has_a_resource_indicator_that_clients_can_use(indicator: str) -> None:
    """RFC 8707 section 2: an absolute URI without fragment."""
    expected = (
        "MANAGEMENT_API_RESOURCE: must be an absolute URI without user information and fragment, neither below "
        "{BASE_URL}/oidc nor of urn:{URN_NAMESPACE}:"
    )
    assert problems(MANAGEMENT_API_RESOURCE=indicator) == [expected]


def test_production_requires_https_except_for_loopback() -> None:
    assert problems(BASE_URL="http://id.example.com") == ["BASE_URL: must be https in production"]
    assert problems(BASE_URL="http://127.0.0.1.example.com") == ["BASE_URL: must be https in production"]
    for address in ("http://127.0.0.1:3000", "http://localhost:3000", "http://[::1]:3000", "https://id.example.com/id"):
        assert Settings.from_environment({**GOOD, "BASE_URL": address}).base_url == address
    relaxed = {**GOOD, "BASE_URL": "http://id.example.com", "ENVIRONMENT": "development"}
    assert Settings.from_environment(relaxed).environment == "development"


@pytest.mark.parametrize(
    ("variable", "value", "least"),
    [
        ("DIRECTORY_MAX_AGE_S", "0", "must be a number of at least 1"),
        ("DIRECTORY_MAX_AGE_S", "-1", "must be a number of at least 1"),
        ("REVISION_WAIT_S", "-0.1", "must be a number of at least 0"),
        ("REVISION_WAIT_S", "nan", "must be a number of at least 0"),
        ("REVISION_WAIT_S", "inf", "must be a number of at least 0"),
        ("REDIS_REPLICAS", "-1", "must be a number of at least 0"),
    ],
)
def test_numbers_have_bounds(variable: str, value: str, least: str) -> None:
    """Without a bound the service would wait for ever, or poll without a pause."""
    assert problems(**{variable: value}) == [f"{variable}: {least}"]


def test_sentinels_require_what_keeps_tokens_spent() -> None:
    by_sentinels = {"REDIS_URL": "redis+sentinel://token:hunter2@s1,s2/0?master=stead"}
    assert problems(**by_sentinels) == ["REDIS_REPLICAS: must be at least 1, since REDIS_URL names sentinels"]
    settings = Settings.from_environment({**GOOD, **by_sentinels, "REDIS_REPLICAS": "1"})
    assert settings.redis_replicas == 1


def test_settings_show_no_value() -> None:
    """Neither in a traceback nor in a log."""
    settings = Settings.from_environment(GOOD)

    assert repr(settings) == str(settings) == f"{settings}" == "Settings(…)"
