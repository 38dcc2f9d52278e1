"""Redis: a user for each service, with exactly the keys and commands that it needs."""

import contextlib
import hashlib
from collections.abc import Mapping

from identity_common.lean_imports import without
from provision.errors import ProvisionError

with without("opentelemetry.sdk.metrics"):  # as in identity_common.stores
    import redis

REDIS_ADMIN = "default"

REDIS_PRIMARY = "stead"
"""The name under which sentinels know the primary."""

_SENTINEL = "sentinel"
"""The user of one sentinel at another; with the password of the administrator, which both have."""

_CONNECTING_TO_SENTINEL = ("ping", "hello", "auth", "client|setinfo", "client|setname")
_CONNECTING = (*_CONNECTING_TO_SENTINEL, "select")
"""The commands of a connecting client."""

_TOKEN_COMMANDS = (
    *("get", "getdel", "mget", "set", "del", "unlink", "exists", "type", "scan"),
    *("expire", "pexpire", "expireat", "pexpireat", "persist", "ttl", "pttl", "incr", "incrby", "decr", "decrby"),
    *("hset", "hsetnx", "hget", "hmget", "hgetall", "hdel", "hexists", "hincrby", "hlen"),
    *("sadd", "srem", "smembers", "sismember", "scard"),
    *("zadd", "zrem", "zcard", "zscore", "zrange", "zrangebyscore", "zremrangebyscore"),
    *("xadd", "xlen", "xrange", "xdel"),
    *("eval", "evalsha", "script|load", "script|exists", "multi", "exec", "discard", "watch", "unwatch"),
    *("wait", "info", "role", "time"),
)

_REVOCATIONS = ("%R~identity:*:revocations", "%R~identity:*:revocation:*")
"""token-service's copy of the revocations, for the services that check access tokens."""


_IMPERSONATIONS = "~identity:*:impersonation:*"
"""The impersonations that began: by which application, and of which user."""


def _commands(*commands: str) -> tuple[str, ...]:
    return tuple(f"+{command}" for command in (*commands, *_CONNECTING))


_ENDS = f"(~identity:*:revocation:impersonations:* ~identity:*:revocation:{'?' * 21} +eval +get +set +pttl)"
"""Revocations of impersonations, by party and by id, which management-service ends: none of a key or of one token."""

_SIGN_IN_ATTEMPTS = "(~identity:*:sign-in-attempts:* +eval +hget +hincrby +hdel +ttl +expire +del)"
"""management-service's counts of wrong passwords: a selector, so that its commands apply to these keys alone."""

_REQUESTED_MAILS = "(~identity:*:mails:recipient:* +eval +get +set +incr +ttl +expire)"
"""Counts of mails with links, by recipient."""

_MINTING_LOG_KEYS = "~identity:*:audit:subject-tokens ~identity:*:audit:subject-tokens:numbering"
_MINTING_SCRIPT = f"(~identity:*:subject-token:* {_IMPERSONATIONS} {_MINTING_LOG_KEYS} +eval +evalsha)"
"""A script may take the key of a subject token; each of its commands needs a permission of its own."""
_SUBJECT_TOKEN_LOG = f"({_MINTING_LOG_KEYS} +eval +evalsha +xadd +xlen +xrange +xdel +hget +hset +hincrby +del +time)"
"""Entries that wait for the audit trail, and their numbering."""

_CONSOLE_SESSIONS = (
    "(~identity:*:console-session:* ~identity:*:account-session:* +hget +hset +hgetall +expire +set +eval +get +del)"
)
"""Sessions of the console and of the account page, which only a browser's cookie opens."""
_CONSOLE_SIGN_INS = (
    "(~identity:*:console-sign-in:* ~identity:*:console-sign-ins:* ~identity:*:account-sign-in:*"
    " ~identity:*:account-sign-ins:* +set +getdel +eval +get +incr +decr +ttl +expire)"
)
"""Sign-ins that either has begun, and their number per address."""

REDIS_RULES: Mapping[str, tuple[str, ...]] = {
    # Minting is a script that stores and records; management-service can neither read nor spend a subject token.
    "management": (
        *("%W~identity:*:subject-token:*", _IMPERSONATIONS, *_REVOCATIONS, *_commands("set", "mget", "info", "wait")),
        *(_SIGN_IN_ATTEMPTS, _REQUESTED_MAILS, _MINTING_SCRIPT, _SUBJECT_TOKEN_LOG, _ENDS),
    ),
    "template": (*_REVOCATIONS, *_commands("mget")),
    "console": (*_commands(), _CONSOLE_SESSIONS, _CONSOLE_SIGN_INS),
    "token": ("~identity:*", *_commands(*_TOKEN_COMMANDS)),
}
"""Key patterns and commands of each Redis user, as ACL rules."""


_NO_PERMISSIONS = ("resetkeys", "resetchannels", "clearselectors", "nocommands")


def provision_redis(redis_url: str, passwords: Mapping[str, str], *, keep_passwords: bool = False) -> None:
    """Create or update each service's user with exactly its rules; they survive a restart if there is an ACL file.

    Connections stay open. An existing user is not enabled again: an operator may have disabled it.

    Args:
        redis_url: Of a user with all permissions.
        passwords: The services' passwords.
        keep_passwords: Set those of new users only, since the others may have been rotated.

    Raises:
        ProvisionError: The server is unreachable, or refuses.
    """
    try:
        with redis.Redis.from_url(redis_url, socket_timeout=30, decode_responses=True) as client:
            known = client.execute_command("ACL", "USERS")
            for user in REDIS_RULES:
                rules: tuple[str, ...] = (*_NO_PERMISSIONS, *REDIS_RULES[user])
                if user not in known:
                    rules = ("on", *rules)
                if user not in known or not keep_passwords:
                    rules = ("resetpass", _redis_password(passwords[user]), *rules)
                client.execute_command("ACL", "SETUSER", user, *rules)
            with contextlib.suppress(redis.ResponseError):  # no ACL file, or one that is rendered and read-only
                client.execute_command("ACL", "SAVE")
    except ValueError:
        raise ProvisionError("the URL of Redis is not valid: redis://user:password@host:port") from None
    except redis.RedisError as error:
        raise ProvisionError.at("Redis", redis_url, error) from error


def redis_acl_file(passwords: Mapping[str, str]) -> str:
    """Render the ACL file of a server with the services' users and an administrator."""
    users = {user: _redis_rules(user, passwords) for user in REDIS_RULES}
    users[REDIS_ADMIN] = ("on", _redis_password(passwords[REDIS_ADMIN]), "~*", "&*", "+@all")
    return "".join(f"user {user} {' '.join(rules)}\n" for user, rules in users.items())


def redis_replication_config(passwords: Mapping[str, str]) -> str:
    """Render the settings with which a server logs in at its primary; they contain the password."""
    return f"masteruser {REDIS_ADMIN}\nmasterauth {passwords[REDIS_ADMIN]}\n"


def sentinel_acl_file(passwords: Mapping[str, str]) -> str:
    """Render the ACL file of a sentinel: it tells every client the primary, and other sentinels may do everything."""
    asking = ("sentinel|masters", "sentinel|get-master-addr-by-name", *_CONNECTING_TO_SENTINEL)
    everyone = ("on", "nopass", *(f"+{command}" for command in asking))
    sentinels = ("on", _redis_password(passwords[REDIS_ADMIN]), "~*", "&*", "+@all")
    return f"user default {' '.join(everyone)}\nuser {_SENTINEL} {' '.join(sentinels)}\n"


def sentinel_config(passwords: Mapping[str, str]) -> str:
    """Render how a sentinel logs in at the servers and at other sentinels; it contains the password."""
    password = passwords[REDIS_ADMIN]
    return (
        f"sentinel sentinel-user {_SENTINEL}\nsentinel sentinel-pass {password}\n"
        f"sentinel auth-user {REDIS_PRIMARY} {REDIS_ADMIN}\nsentinel auth-pass {REDIS_PRIMARY} {password}\n"
    )


def _redis_rules(user: str, passwords: Mapping[str, str]) -> tuple[str, ...]:
    return ("on", _redis_password(passwords[user]), *REDIS_RULES[user])


def _redis_password(password: str) -> str:
    """Return the password as an ACL rule; its plain hash reveals nothing, since it is random."""
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"
