"""NATS: users, accounts and subjects, and the server configuration with them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec

from identity_common.bus.streams import (
    AUDIT_STREAM,
    MAIL_STREAM,
    MIRROR_DELIVERY,
    SERVICES_API,
    STREAMS,
    SUBSCRIBERS_API,
)
from identity_common.wire.audit import AUDIT_HEAD_PREFIX, STREAM_AUDIT
from identity_common.wire.events import STREAM_EVENTS, STREAM_INTERNAL, STREAM_STATE
from identity_common.wire.mail import STREAM_MAIL
from stead.verify.feed.messages import SUBJECT_PREFIX


def _reading(stream: str) -> tuple[str, ...]:
    """Return the subjects for reading single messages of a stream."""
    return (
        f"$JS.API.STREAM.MSG.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}.>",
    )


_STREAMS = (
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.>",
    *(f"$JS.API.STREAM.CREATE.{stream.name}" for stream in STREAMS),
    f"{SUBSCRIBERS_API}.STREAM.CREATE.{STREAM_EVENTS}",
    *(subject for stream in STREAMS for subject in _reading(str(stream.name))),
)
"""The subjects for creating the streams of the state, and for reading single messages of them."""

_HEADS = f"{AUDIT_HEAD_PREFIX}.*"
"""The signed heads of the audit trail, of which subscribers keep copies."""

_NOT_VALID = f"{SUBJECT_PREFIX}.*"
"""The messages of the not-valid feed, for verifiers among the subscribers."""

_AUDIT_STREAM = f"$JS.API.STREAM.CREATE.{STREAM_AUDIT}"

_MAIL_STREAM = f"$JS.API.STREAM.CREATE.{STREAM_MAIL}"

OPERATOR: Final = "operator"
_STREAM_INFO = "STREAM.INFO.*"
_OPERATOR_REQUESTS = ("STREAM.UPDATE.*", "STREAM.LEADER.STEPDOWN.*")


def _consuming(stream: str) -> tuple[str, ...]:
    return tuple(f"$JS.API.CONSUMER.{action}.{stream}.>" for action in ("CREATE", "INFO", "MSG.NEXT", "DELETE"))


class NatsPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a NATS user, and the subjects that it may publish and subscribe to; it may use no others."""

    account: str = "SERVICES"
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    allow_responses: bool = False


NATS_PERMISSIONS: Mapping[str, NatsPermissions] = {
    "management": NatsPermissions(
        publish=(
            *("identity-internal.>", "identity-relay.*.management"),
            *("identity-rpc.*.claims-function", "identity-rpc.*.members", "identity-rpc.*.organization-grants"),
            *("identity-rpc.*.organization-names", "identity-rpc.*.search"),
            "identity-rpc.*.organization-invitations",
            *_STREAMS,
            # The audit trail is read by this service alone.
            *("identity-audit.*.management", "identity-audit.*.subject-tokens", _HEADS),
            *(_AUDIT_STREAM, *_reading(STREAM_AUDIT), *_consuming(STREAM_AUDIT)),
            # So is mail, which leaves its stream by an acknowledgement.
            *("identity-mail.*.management", _MAIL_STREAM, *_reading(STREAM_MAIL), *_consuming(STREAM_MAIL)),
            f"$JS.ACK.{STREAM_MAIL}.>",
        ),
        subscribe=(
            *("_INBOX_management.>", "identity-relay.*.management"),
            *("identity-rpc.*.password-check", "identity-rpc.*.account-links", "identity-rpc.*.factors"),
            *("identity-rpc.*.mail-sending", "identity-rpc.*.actor-token", "identity-rpc.*.provider-sign-in"),
        ),
        allow_responses=True,  # answers to the other services go to the inbox of the asking service
    ),
    "template": NatsPermissions(
        publish=(
            *("identity.>", "identity-relay.*.template", *_STREAMS, *_consuming(STREAM_INTERNAL)),
            *_consuming(STREAM_STATE),  # the previous release reads it
            *("identity-audit.*.template", _AUDIT_STREAM),
            *("identity-mail.*.template", _MAIL_STREAM, "identity-rpc.*.mail-sending"),
        ),
        subscribe=(
            "_INBOX_template.>",
            "identity-relay.*.template",
            *("identity-rpc.*.members", "identity-rpc.*.organization-grants"),
            *("identity-rpc.*.organization-names", "identity-rpc.*.search"),
            "identity-rpc.*.organization-invitations",
            # These wake requests that wait for a change.
            *(f"identity.*.{kind}.>" for kind in ("member", "role", "permission", "organization")),
        ),
        allow_responses=True,  # answers to management-service go to the inbox of the asking service
    ),
    "token": NatsPermissions(
        publish=(
            *("identity-rpc.*.password-check", "identity-rpc.*.account-links", "identity-rpc.*.factors"),
            *("identity-rpc.*.actor-token", "identity-rpc.*.provider-sign-in"),
            *(*_STREAMS, *_consuming(STREAM_INTERNAL), *_consuming(STREAM_EVENTS), *_consuming(STREAM_STATE)),
            *("identity-audit.*.exchanges", "identity-audit.*.token", _AUDIT_STREAM, _NOT_VALID),
        ),
        subscribe=("_INBOX_token.>", "identity-relay.>", "identity-rpc.*.claims-function"),
        allow_responses=True,  # answers about the claims function go to the inbox of the asking service
    ),
    "subscriber": NatsPermissions(
        account="SUBSCRIBERS",
        publish=(
            "$JS.API.INFO",
            "$JS.API.STREAM.NAMES",
            f"$JS.API.STREAM.INFO.{STREAM_EVENTS}",
            f"$JS.API.STREAM.MSG.GET.{STREAM_EVENTS}",
            f"$JS.API.DIRECT.GET.{STREAM_EVENTS}",
            f"$JS.API.DIRECT.GET.{STREAM_EVENTS}.>",
            f"$JS.API.CONSUMER.CREATE.{STREAM_EVENTS}",
            *_consuming(STREAM_EVENTS),
            f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM_EVENTS}.>",
            f"$JS.ACK.{STREAM_EVENTS}.>",
            f"$JS.FC.{STREAM_EVENTS}.>",
        ),
        subscribe=("_INBOX.>", _HEADS, _NOT_VALID),
    ),
    OPERATOR: NatsPermissions(
        account="OPERATOR",
        publish=(f"*.$JS.API.{_STREAM_INFO}", *(f"*.$JS.API.{request}" for request in _OPERATOR_REQUESTS)),
        subscribe=(f"_INBOX_{OPERATOR}.>",),
    ),
}
"""The services, each with inboxes below ``_INBOX_<service>``; the read-only ``subscriber`` for other teams; and the
operator, who changes the number of replicas of streams, and their leaders."""
REQUIRED_USERS: Final = tuple(user for user in NATS_PERMISSIONS if user != OPERATOR)
"""The users without which there is no configuration."""

_COPYING = f"$JS.API.CONSUMER.CREATE.{STREAM_EVENTS}"
_FLOW_CONTROL = f"$JS.FC.{STREAM_EVENTS}.>"
_COPY = f"$JS.API.STREAM.CREATE.{STREAM_EVENTS}"

SERVICES: Final = "SERVICES"
_SYSTEM = "SYSTEM"
_SHARED_ACCOUNT = "SUBSCRIBERS"
_SHARED_CONSUMERS = 1000
_TEAM_CONSUMERS = 100


_NEXT = "-next"
"""Suffix of a second user with the same permissions: a password is rotated by switching users."""


def teams(passwords: Mapping[str, str]) -> list[str]:
    """Return the teams, each with an account of its own: the users that are not in ``NATS_PERMISSIONS``."""
    return [user for user in passwords if permissions_of(user) is None]


def permissions_of(user: str) -> NatsPermissions | None:
    """Return the permissions of one of our users, such as ``token`` or ``token-next``; None for a team."""
    return NATS_PERMISSIONS.get(user.removesuffix(_NEXT))


def streams_of(passwords: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return every stream of the bus, with the account before it.

    Args:
        passwords: The password of each user.
    """
    of_services = [str(stream.name) for stream in (*STREAMS, AUDIT_STREAM, MAIL_STREAM)]
    subscribers = (_SHARED_ACCOUNT, *map(_account_of, teams(passwords)))
    return [(SERVICES, stream) for stream in of_services] + [(account, STREAM_EVENTS) for account in subscribers]


def _account_of(team: str) -> str:
    return f"SUBSCRIBER-{team}"


def _accounts(passwords: Mapping[str, str]) -> dict[str, dict[str, object]]:
    """Return the accounts, and what passes between them."""
    accounts = _accounts_of_streams(teams(passwords))
    operators = [password for user, password in passwords.items() if user.removesuffix(_NEXT) == OPERATOR]
    return {**accounts, **_operator(accounts, operators)} if operators else accounts


def _operator(accounts: Mapping[str, dict[str, object]], passwords: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the operator's account, and the others with a way for its requests: see docs/decisions/0040.

    The way leads through the accounts with streams, because JetStream serves a request in the account that it came
    from. Its subjects contain a secret: no other user can send to them, nor have a server send to them.
    """
    secret = hashlib.sha256(f"stead-operator:{':'.join(passwords)}".encode()).hexdigest()
    ways = {f"{OPERATOR}-{secret}.{request}": request for request in _OPERATOR_REQUESTS}
    system = accounts[_SYSTEM]
    with_streams = [name for name in accounts if name != _SYSTEM]
    mappings = {way: f"$JS.API.{request.replace('*', '$1')}" for way, request in ways.items()}
    return {
        **{name: _open_to_operator(accounts[name], [*ways]) for name in with_streams},
        _SYSTEM: {
            **system,
            "mappings": {**cast("dict[str, str]", system["mappings"]), **mappings},
            "exports": [{"service": way, "accounts": with_streams} for way in ways],
        },
        NATS_PERMISSIONS[OPERATOR].account: {
            "imports": [
                {"service": {"account": name, "subject": subject}, "to": f"{name}.$JS.API.{request}"}
                for name in with_streams
                for subject, request in ((f"$JS.API.{_STREAM_INFO}", _STREAM_INFO), *ways.items())
            ]
        },
    }


def _open_to_operator(account: dict[str, object], ways: Sequence[str]) -> dict[str, object]:
    operator = [NATS_PERMISSIONS[OPERATOR].account]
    exports, imports = (cast("list[object]", account[name]) for name in ("exports", "imports"))
    return {
        **account,
        "exports": [
            *exports,
            *({"service": each, "accounts": operator} for each in (f"$JS.API.{_STREAM_INFO}", *ways)),
        ],
        "imports": [*imports, *({"service": {"account": _SYSTEM, "subject": way}} for way in ways)],
    }


def _accounts_of_streams(teams: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the services' account, with their subjects and streams, and the subscribers', each with a copy of one.

    Between them pass only the messages that JetStream needs for that copy, which no user can send or receive, the heads
    of the audit trail, and the not-valid feed: see docs/decisions/0009 and 0017. Purging or deleting a stream requires
    a change of this configuration.
    """
    consumers = {_SHARED_ACCOUNT: _SHARED_CONSUMERS} | {_account_of(team): _TEAM_CONSUMERS for team in teams}
    return {
        SERVICES: {
            "jetstream": "enabled",
            "exports": [
                {"service": _COPYING, "accounts": [*consumers]},
                {"service": _FLOW_CONTROL, "accounts": [*consumers]},
                {"stream": f"{MIRROR_DELIVERY}.>", "accounts": [*consumers]},
                {"stream": _HEADS, "accounts": [*consumers]},
                {"stream": _NOT_VALID, "accounts": [*consumers]},
            ],
            # Imported from all of them to one subject: one request creates the copy in each account.
            "imports": [
                {"service": {"account": account, "subject": _COPY}, "to": _COPY.replace("$JS.API", SUBSCRIBERS_API)}
                for account in consumers
            ],
        },
        **{account: _subscribers(limit) for account, limit in consumers.items()},
        # JetStream's API belongs to the system account. No user can send a request that is mapped away there, not even
        # by making the server send one of its own messages to that subject, which no permission would prevent.
        _SYSTEM: {
            "mappings": {
                f"$JS.API.{request}": "refused"
                for request in (
                    *(f"STREAM.{action}.*" for action in ("UPDATE", "DELETE", "PURGE", "MSG.DELETE", "RESTORE")),
                    *("STREAM.PEER.REMOVE.*", "STREAM.LEADER.STEPDOWN.*", "CONSUMER.LEADER.STEPDOWN.*.*"),
                )
            },
        },
    }


def _subscribers(max_consumers: int) -> dict[str, object]:
    return {
        "jetstream": {"max_streams": 1, "max_consumers": max_consumers},
        "exports": [{"service": _COPY, "accounts": [SERVICES]}],
        "imports": [
            {"service": {"account": SERVICES, "subject": _COPYING}, "to": _COPYING.replace("$JS.API", SERVICES_API)},
            {"service": {"account": SERVICES, "subject": _FLOW_CONTROL}},
            {"stream": {"account": SERVICES, "subject": f"{MIRROR_DELIVERY}.>"}},
            {"stream": {"account": SERVICES, "subject": _HEADS}},
            {"stream": {"account": SERVICES, "subject": _NOT_VALID}},
        ],
    }


def nats_server_config(
    passwords: Mapping[str, str],
    *,
    port: int,
    store_dir: Path,
    host: str = "127.0.0.1",
    sync: bool = False,
) -> str:
    """Render the configuration of a NATS server; it contains the passwords.

    Args:
        passwords: The password of each user: those of ``NATS_PERMISSIONS``, their successors, and teams.
        port: The client port; there is no other listener.
        store_dir: Where JetStream keeps its streams.
        host: The address to listen on.
        sync: Flush every message to disk before its acknowledgement, instead of every two minutes.
    """
    accounts = _accounts(passwords)
    users: dict[str, list[dict[str, object]]] = {account: [] for account in accounts}
    for user, password in passwords.items():
        permissions = permissions_of(user)
        account = permissions.account if permissions else _account_of(user)
        users[account].append(_nats_user(user, password, permissions or NATS_PERMISSIONS["subscriber"]))
    configuration = {
        "host": host,
        "port": port,
        "max_payload": 1024 * 1024,
        "jetstream": {"store_dir": str(store_dir), "sync_interval": "always" if sync else "2m"},
        "accounts": {name: {**account, "users": users[name]} for name, account in accounts.items()},
        "system_account": _SYSTEM,
    }
    return json.dumps(configuration, indent=2, ensure_ascii=False)  # NATS reads JSON, except for \u escapes


def _nats_user(user: str, password: str, permissions: NatsPermissions) -> dict[str, object]:
    return {
        "user": user,
        "password": password,
        "permissions": {
            "publish": {"allow": permissions.publish},
            "subscribe": {"allow": permissions.subscribe},
            "allow_responses": permissions.allow_responses,
        },
    }
