"""Settings from the environment: one frozen struct for each service; all invalid variables are reported at once.

A variable is the name of its field in capitals; with ``_FILE`` appended, it names a file that holds the value. Fields
without a default are required; secrets never have one.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args, get_origin
from urllib.parse import SplitResult, urlsplit

import msgspec

from identity_common.database_address import DatabaseAddress, MalformedAddressError
from identity_common.redis_address import SCHEMES as SENTINEL_SCHEMES
from identity_common.redis_address import redis_problems
from identity_common.sealing import is_sealing_key
from identity_common.uris import is_resource_indicator, is_usable_uri
from stead.nats_addresses import parse_nats_addresses

Environment = Literal["development", "production"]
AfterLostWrites = Literal["repair", "refuse"]

_SECRET: Final = msgspec.Meta(extra={"secret": True})
Secret = Annotated[str, _SECRET]
"""A setting that is a password or a key, or contains one: give it as a file."""


class InvalidSettingsError(Exception):
    """Settings are missing or invalid; the text has one line for each, without its value."""


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that all services have.

    Attributes:
        base_url: The public address of the tenant, without a trailing slash; the base of every absolute URL.
        tenant_id: Id of the only tenant; part of every row, key and subject, so it cannot change later.
        environment: ``production`` or ``development``. In production ``base_url`` must be ``https``, unless its host is
            loopback.
        management_api_resource: Resource indicator of the Management API: an absolute URI, but not an address.
            Change it only to a value that no resource has: its scopes would become those of the API.
        trusted_proxies: How many proxies in front of this service append to ``X-Forwarded-For``; 0 ignores the header.
    """

    base_url: str
    tenant_id: str = "default"
    environment: Environment = "production"
    management_api_resource: str = "https://default.service.internal/api"
    trusted_proxies: int = 0

    def __repr__(self) -> str:
        """Hide the values: they include passwords."""
        return f"{type(self).__name__}(…)"

    def __post_init__(self) -> None:
        problems = self.problems(msgspec.structs.asdict(self))
        if problems:
            raise InvalidSettingsError("\n".join(problems))

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> list[str]:
        """Return one line for every value that has the right type but is invalid.

        Args:
            values: Values by field; missing ones are reported elsewhere.
        """
        found = []
        if "base_url" in values:
            address = _base_address(values["base_url"])
            if address is None:
                found.append("BASE_URL: must be an absolute http(s) address without a slash at the end")
            elif (
                values.get("environment") != "development"
                and address.scheme != "https"
                and address.hostname not in {"127.0.0.1", "localhost", "::1"}
            ):
                found.append("BASE_URL: must be https in production")
        namespaces = {
            "urn_namespace": values.get("urn_namespace", "service"),
            "issuer": f"{values.get('base_url')}/oidc",
        }
        if not is_resource_indicator(values.get("management_api_resource", "urn:default"), **namespaces):
            found.append(
                "MANAGEMENT_API_RESOURCE: must be an absolute URI without user information and fragment, neither below "
                "{BASE_URL}/oidc nor of urn:{URN_NAMESPACE}:"
            )
        return found + cls.too_small(values, trusted_proxies=0)

    @staticmethod
    def wrong_scheme(values: Mapping[str, Any], field: str, *allowed: str) -> list[str]:
        """Return a line if an address has none of the allowed schemes."""
        if field in values and not values[field].startswith(allowed):
            return [f"{field.upper()}: must begin with {' or '.join(allowed)}"]
        return []

    @staticmethod
    def wrong_redis(values: Mapping[str, Any]) -> list[str]:
        """Return a line if the address of Redis has neither of its forms."""
        return [f"REDIS_URL: {problem}" for problem in redis_problems(values.get("redis_url", "redis://"))]

    @staticmethod
    def wrong_replicas(values: Mapping[str, Any]) -> list[str]:
        """Return a line if Redis may fail over without anything that prepares for it."""
        if values.get("redis_url", "").startswith(SENTINEL_SCHEMES) and values.get("redis_replicas", 0) == 0:
            return ["REDIS_REPLICAS: must be at least 1, since REDIS_URL names sentinels"]
        return []

    @staticmethod
    def wrong_keys(values: Mapping[str, Any], field: str) -> list[str]:
        """Return a line unless a tuple of keys for ``SealingKeys`` has at least one, and all are well-formed."""
        if field in values and not (values[field] and all(map(is_sealing_key, values[field]))):
            return [f"{field.upper()}: must be base64 of 32 bytes, or several with commas between them"]
        return []

    @staticmethod
    def too_small(values: Mapping[str, Any], **least: float) -> list[str]:
        """Return a line for every number that is below its minimum, infinite or NaN."""
        return [
            f"{field.upper()}: must be a number of at least {bound:g}"
            for field, bound in least.items()
            if field in values and not bound <= values[field] < math.inf
        ]

    @property
    def issuer(self) -> str:
        """``iss`` of every token: ``{base_url}/oidc``."""
        return f"{self.base_url}/oidc"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read the settings.

        Raises:
            InvalidSettingsError: One line for every variable that is missing or invalid.
        """
        values: dict[str, Any] = {}
        problems: list[str] = []
        for field in msgspec.structs.fields(cls):
            variable = field.name.upper()
            text = text_of(environment, variable, problems)
            if text is None:
                continue
            if text:
                try:
                    values[field.name] = msgspec.convert(_split(text, field.type), field.type, strict=False)
                except msgspec.ValidationError:
                    problems.append(f"{variable}: not acceptable as {_type_name(field.type)}")
            elif field.required:
                problems.append(f"{variable}: must be set")
        problems += cls.problems(values)
        if problems:
            raise InvalidSettingsError("\n".join(problems))
        return cls(**values)


class ApiSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings that all services with an API have: they have a database, follow the bus and check access tokens.

    Attributes:
        urn_namespace: Namespace of the URNs of organizations in tokens: ``urn:service:organization:<id>``.
        database_url: The service's own database: ``postgresql+asyncpg://user:password@host:port/database``. Several
            ``host:port`` with commas between them are servers of which the one that accepts writes is used.
        nats_url: ``nats://user:password@host:port``, or ``tls://``. For a cluster the addresses of its servers, with
            commas between them, the same scheme, user and password in each.
        nats_replicas: How many servers of the NATS cluster keep each stream: 1, or an odd number up to 5. Existing
            streams keep theirs.
        jwks_url: Address of token-service's public keys, if not ``{base_url}/oidc/jwks``.
    """

    urn_namespace: str = "service"
    database_url: Secret
    nats_url: Secret
    nats_replicas: int = 1
    jwks_url: str | None = None

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> list[str]:
        """Add the checks of the addresses."""
        found = super().problems(values)
        if values.get("nats_replicas", 1) not in (1, 3, 5):
            found.append("NATS_REPLICAS: must be 1, 3 or 5")
        return found + cls._wrong_database_url(values) + cls._wrong_nats_url(values)

    @staticmethod
    def _wrong_database_url(values: Mapping[str, Any]) -> list[str]:
        """Return a line unless the address of the database has the documented form."""
        if "database_url" in values:
            try:
                DatabaseAddress.parse(values["database_url"])
            except MalformedAddressError as error:
                return [f"DATABASE_URL: {error}"]
        return []

    @staticmethod
    def _wrong_nats_url(values: Mapping[str, Any]) -> list[str]:
        """Return a line unless the addresses of NATS differ in host and port only, and have an allowed scheme."""
        text = values.get("nats_url", "nats://localhost")
        if not all(each.strip().startswith(("nats://", "tls://")) for each in text.split(",")):
            return ["NATS_URL: each address must begin with nats:// or tls://"]
        try:
            parse_nats_addresses(text)
        except ValueError as error:
            return [f"NATS_URL: {error}"]
        return []

    @property
    def jwks_address(self) -> str:
        """The address of the token service's public keys."""
        return self.jwks_url or f"{self.issuer}/jwks"


def is_secret(kind: object) -> bool:
    """Whether a setting of this type is a ``Secret``, or a tuple of them."""
    return any(_SECRET in getattr(each, "__metadata__", ()) for each in (kind, *get_args(kind)))


def text_of(environment: Mapping[str, str], variable: str, problems: list[str]) -> str | None:
    """Return the value of a variable, from the environment or a file; empty without one, None after a problem."""
    text, path = environment.get(variable, ""), environment.get(f"{variable}_FILE", "")
    if not path:
        return text
    if text:
        problems.append(f"{variable}: set it or {variable}_FILE, not both")
        return None
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{variable}_FILE: cannot be read ({type(error).__name__})")
        return None


def _base_address(base_url: str) -> SplitResult | None:
    """Return the parts of an address that an issuer can begin with; None for any other text.

    Source:
        RFC 8414 section 2 (an issuer has no query and no fragment).
    """
    if not is_usable_uri(base_url):
        return None
    address = urlsplit(base_url)
    well_formed = address.scheme in {"http", "https"} and bool(address.hostname)
    return address if well_formed and not base_url.endswith("/") and not set("?#@") & set(base_url) else None


def _split(text: str, kind: object) -> object:
    """Split the text of a tuple at its commas."""
    return [part.strip() for part in text.split(",")] if str(kind).startswith("tuple") else text


def _type_name(kind: object) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return getattr(kind, "__name__", str(kind).replace("typing.", ""))
