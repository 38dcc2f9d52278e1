"""Settings of the token service: read once, in ``asgi.py``, and passed on as narrow values."""

from collections.abc import Mapping
from typing import Any

from identity_common.relying_party import rp_id_problem
from identity_common.settings import ApiSettings, Secret


class Settings(ApiSettings, frozen=True, kw_only=True):
    """Settings of the token service.

    Attributes:
        redis_url: ``redis://user:password@host:port/0``, or by sentinels (``redis+sentinel://``); for subject tokens,
            the directory and sessions.
        key_encryption_keys: Base64 of 32 bytes each, newest first: the first encrypts, all decrypt. The keys of device
            cookies are derived from them.
        environment_variable_keys: Likewise, for the environment variables of the custom-claims function and the
            requests about it over NATS. Shared with management-service.
        signing_algorithm: Algorithm of new signing keys: ``ES256``, ``EdDSA`` or ``RS256``.
        directory_max_age_s: How long the bus may be silent before requests get 503.
        revision_wait_s: How long a request waits for the revision that it requires.
        redis_replicas: How many replicas of Redis must acknowledge a taken subject token, a revocation or a sign-out; 0
            if none can be promoted. With any, a subject token can only be taken at the primary that stored it.
        actor_tokens_by_exchange: Whether a token from an exchange is accepted as an actor token.
        refresh_token_grace_s: How long a rotated refresh token may be used again, in case the response was lost.
        database_connections: Size of the PostgreSQL pool, besides four connections for workers.
        password_window_s: Length of the window in which password attempts are counted.
        password_attempts_per_address: Limit per window from one IPv4 address or IPv6 /64, which many users may share;
            likewise of mails with links that are requested from there.
        webauthn_rp_id: Domain that passkeys belong to, if not the host of ``base_url``; as for management-service.
        pending_requests_per_address: Limit per 15 minutes of authorization requests from one IPv4 address or IPv6 /64
            that wait for a sign-in or a consent; one counts once for every 6 KiB begun. At least 11, the count of the
            largest request. Likewise of browsers that are sent to the providers of connectors, counted by themselves.
        client_failures_per_address: Limit per 15 minutes of failed client authentications from one IPv4 address or
            IPv6 /64; then they get 429, while right credentials go on working. Likewise of refused logout tokens of
            connectors' providers, counted by themselves.
        client_failures_per_client: Likewise, of one application from one address.
        client_requests_per_minute: Limit of token requests of one application that authenticates; 0 for none.
        audit_backlog: How many entries of the audit trail may wait in Redis for the bus; then exchanges get 503.
        not_valid_feed_public: Whether the not-valid feed may be read without a client credential.
        not_valid_feed_third_party: Whether third-party applications may read it, too.
        not_valid_feed_readers_per_client: Limit of streams of the feed that one application, or one IPv4 address or
            IPv6 /64 if the feed is public, may keep open at one replica, which keeps 2,000 in all.
        claims_workers: Processes that run the custom-claims function for tokens; 0 for one per usable core.
        claims_test_workers: Processes that run it for the Management API: checks, tests and dry runs.
        claims_time_ms: Time limit of one call; 1 to 1000, since the Management API waits 2 s for a test.
        claims_memory_mib: Memory limit of one call.
        claims_result_bytes: Size limit of its result as JSON; 2 to 65536, since tokens travel in a header.
    """

    redis_url: Secret
    key_encryption_keys: tuple[Secret, ...]
    environment_variable_keys: tuple[Secret, ...]
    signing_algorithm: str = "ES256"
    directory_max_age_s: int = 900
    revision_wait_s: float = 2.0
    redis_replicas: int = 0
    actor_tokens_by_exchange: bool = False
    refresh_token_grace_s: float = 10.0
    database_connections: int = 10
    password_window_s: int = 900
    password_attempts_per_address: int = 100
    webauthn_rp_id: str = ""
    pending_requests_per_address: int = 1000
    client_failures_per_address: int = 1000
    client_failures_per_client: int = 100
    client_requests_per_minute: int = 0
    audit_backlog: int = 100_000
    not_valid_feed_public: bool = False
    not_valid_feed_third_party: bool = False
    not_valid_feed_readers_per_client: int = 200
    claims_workers: int = 0
    claims_test_workers: int = 2
    claims_time_ms: int = 100
    claims_memory_mib: int = 32
    claims_result_bytes: int = 16 * 1024

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> list[str]:
        """Add the checks of this service."""
        found = super().problems(values) + cls.wrong_redis(values) + cls.wrong_replicas(values)
        if values.get("signing_algorithm", "ES256") not in {"ES256", "EdDSA", "RS256"}:
            found.append("SIGNING_ALGORITHM: must be ES256, EdDSA or RS256")
        found += cls.wrong_keys(values, "key_encryption_keys") + cls.wrong_keys(values, "environment_variable_keys")
        if problem := rp_id_problem(values.get("base_url", ""), values.get("webauthn_rp_id", "")):
            found.append(f"WEBAUTHN_RP_ID: {problem}")
        if not 1 <= values.get("claims_time_ms", 1) <= 1000:
            found.append("CLAIMS_TIME_MS: must be between 1 and 1000")
        if not 2 <= values.get("claims_result_bytes", 2) <= 65_536:
            found.append("CLAIMS_RESULT_BYTES: must be between 2 and 65536")
        return found + cls.too_small(
            values,
            directory_max_age_s=1,
            revision_wait_s=0,
            redis_replicas=0,
            refresh_token_grace_s=0,
            database_connections=1,
            password_window_s=1,
            password_attempts_per_address=1,
            pending_requests_per_address=11,
            client_failures_per_address=1,
            client_failures_per_client=1,
            client_requests_per_minute=0,
            audit_backlog=2,
            not_valid_feed_readers_per_client=1,
            claims_workers=0,
            claims_test_workers=1,
            claims_memory_mib=8,
        )
