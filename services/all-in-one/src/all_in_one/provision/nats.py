"""NATS: users, accounts, subjects, and the server configuration that says so."""

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from identity_common.bus.streams import MIRROR_DELIVERY, SERVICES_API, STREAMS, SUBSCRIBERS_API
from identity_common.wire.events import STREAM_EVENTS, STREAM_STATE

_STREAMS = (
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.>",
    *(f"$JS.API.STREAM.CREATE.{stream.name}" for stream in STREAMS),
    f"{SUBSCRIBERS_API}.STREAM.CREATE.{STREAM_EVENTS}",
    "$JS.API.STREAM.MSG.GET.>",
    "$JS.API.DIRECT.GET.>",
)
"""Create our streams and read single messages."""


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
        publish=("identity-internal.>", "identity-relay.*.management", *_STREAMS),
        subscribe=("_INBOX_management.>", "identity-relay.*.management", "identity-rpc.*.password-check"),
        allow_responses=True,  # answers to password checks go to the inbox of the asking service
    ),
    "template": NatsPermissions(
        publish=("identity.>", "identity-relay.*.template", *_STREAMS, *_consuming(STREAM_STATE)),
        subscribe=(
            "_INBOX_template.>",
            "identity-relay.*.template",
            # These wake requests that wait for a change.
            *(f"identity.*.{kind}.>" for kind in ("member", "role", "permission", "organization")),
        ),
    ),
    "token": NatsPermissions(
        publish=("identity-rpc.*.password-check", *_STREAMS, *_consuming(STREAM_STATE)),
        subscribe=("_INBOX_token.>", "identity-relay.>"),
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
        subscribe=("_INBOX.>",),
    ),
}
"""The services, each with inboxes below ``_INBOX_<service>``; and the read-only ``subscriber`` for other teams."""

_COPYING = f"$JS.API.CONSUMER.CREATE.{STREAM_EVENTS}"
_FLOW_CONTROL = f"$JS.FC.{STREAM_EVENTS}.>"
_COPY = f"$JS.API.STREAM.CREATE.{STREAM_EVENTS}"

_NATS_ACCOUNTS: Mapping[str, Mapping[str, object]] = {
    "SERVICES": {
        "jetstream": "enabled",
        "exports": [
            {"service": _COPYING, "accounts": ["SUBSCRIBERS"]},
            {"service": _FLOW_CONTROL, "accounts": ["SUBSCRIBERS"]},
            {"stream": f"{MIRROR_DELIVERY}.>", "accounts": ["SUBSCRIBERS"]},
        ],
        "imports": [
            {"service": {"account": "SUBSCRIBERS", "subject": _COPY}, "to": _COPY.replace("$JS.API", SUBSCRIBERS_API)},
        ],
    },
    "SUBSCRIBERS": {
        "jetstream": {"max_streams": 1, "max_consumers": 1000},
        "exports": [{"service": _COPY, "accounts": ["SERVICES"]}],
        "imports": [
            {"service": {"account": "SERVICES", "subject": _COPYING}, "to": _COPYING.replace("$JS.API", SERVICES_API)},
            {"service": {"account": "SERVICES", "subject": _FLOW_CONTROL}},
            {"stream": {"account": "SERVICES", "subject": f"{MIRROR_DELIVERY}.>"}},
        ],
    },
    # JetStream's API belongs to the system account. No user reaches a request that is mapped away there, not even by
    # making the server send one of its own messages to it, which no permission would stop.
    "SYSTEM": {
        "mappings": {
            f"$JS.API.{request}": "refused"
            for request in (
                *(f"STREAM.{action}.*" for action in ("UPDATE", "DELETE", "PURGE", "MSG.DELETE", "RESTORE")),
                *("STREAM.PEER.REMOVE.*", "STREAM.LEADER.STEPDOWN.*", "CONSUMER.LEADER.STEPDOWN.*.*"),
            )
        },
    },
}
"""One account for the services' subjects and streams, and one for the subscribers with a copy of one stream.

Only the messages that JetStream needs for that copy pass between them, and no user can use those: see
docs/decisions/0009. Changing, purging or deleting a stream takes a change of this configuration.
"""


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
        passwords: The password of each user.
        port: The client port; there is no other listener.
        store_dir: Where JetStream keeps its streams.
        host: The address to listen on.
        sync: Flush every message to disk before its acknowledgement, instead of every two minutes.
    """
    accounts = {
        name: {**account, "users": [_nats_user(user, passwords[user]) for user in _nats_users(name)]}
        for name, account in _NATS_ACCOUNTS.items()
    }
    configuration = {
        "host": host,
        "port": port,
        "max_payload": 1024 * 1024,
        "jetstream": {"store_dir": str(store_dir), "sync_interval": "always" if sync else "2m"},
        "accounts": accounts,
        "system_account": "SYSTEM",
    }
    return json.dumps(configuration, indent=2, ensure_ascii=False)  # NATS reads JSON, except for \u escapes


def _nats_users(account: str) -> list[str]:
    return [user for user, permissions in NATS_PERMISSIONS.items() if permissions.account == account]


def _nats_user(user: str, password: str) -> dict[str, object]:
    permissions = NATS_PERMISSIONS[user]
    return {
        "user": user,
        "password": password,
        "permissions": {
            "publish": {"allow": permissions.publish},
            "subscribe": {"allow": permissions.subscribe},
            "allow_responses": permissions.allow_responses,
        },
    }
