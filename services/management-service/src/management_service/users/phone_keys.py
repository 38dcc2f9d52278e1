"""The canonical keys of phone numbers that earlier releases stored as they were written.

They took one number in two notations for two: then one user gets the canonical key, the one that has it already or else
the first by id, and the others keep theirs, with which they still sign in.
"""

from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from identity_common.telemetry.logs import get_logger
from management_service.phone_numbers import phone_key

_log = get_logger(__name__)

_REPORTED_USERS: Final = 100

_NEXT: Final = text(
    """
    SELECT tenant_id, id, primary_phone, primary_phone_key FROM users
    WHERE primary_phone_key IS NOT NULL AND (tenant_id, id) > (:tenant, :id)
    ORDER BY tenant_id, id LIMIT 1000
    """
)
_SET_KEY: Final = text(
    """
    UPDATE users SET primary_phone_key = :key
    WHERE tenant_id = :tenant AND id = :id AND primary_phone = :phone
        AND NOT EXISTS (SELECT FROM users WHERE tenant_id = :tenant AND primary_phone_key = :key)
    """
)
_HOLDER: Final = text("SELECT id FROM users WHERE tenant_id = :tenant AND primary_phone_key = :key")


def canonicalize_phone_keys(connection: Connection) -> None:
    """Store the canonical key of each phone number, and log the users whose number another user has.

    Reads the table in batches, and locks the rows that it changes until the transaction ends. It may be repeated, and
    then logs the users that are left.
    """
    kept: list[str] = []
    last = {"tenant": "", "id": ""}
    while batch := connection.execute(_NEXT, last).all():
        for tenant_id, user_id, phone, key in batch:
            if (canonical := phone_key(phone)) != key:
                values = {"tenant": tenant_id, "id": user_id, "phone": phone, "key": canonical}
                if not _is_set(connection, values) and (holder := connection.scalar(_HOLDER, values)):
                    kept.append(f"{user_id}={holder}")
        last = {"tenant": batch[-1].tenant_id, "id": batch[-1].id}
    if kept:
        users = " ".join(kept[:_REPORTED_USERS])
        _log.warning("users.phone-in-use", count=len(kept), ids=users)


def _is_set(connection: Connection, values: dict[str, Any]) -> bool:
    try:
        with connection.begin_nested():
            return bool(connection.execute(_SET_KEY, values).rowcount)
    except IntegrityError:  # a replica has just stored the number
        return False
