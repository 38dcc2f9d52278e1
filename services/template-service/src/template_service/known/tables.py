"""The projection of management-service's events, and how far it has come."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, Text

from identity_common.stores.tables import Key, tenant_id
from template_service.schema import metadata


def _revision() -> Column[int]:
    """Return management's revision of the event that a row comes from: an older one, repeated, changes nothing."""
    return Column("revision", BigInteger, nullable=False, server_default="0")


known_users = Table(
    "known_users",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key),
    Column("is_suspended", Boolean, nullable=False),
    Column("tokens_valid_after", BigInteger, nullable=False),
    # Case-folded text that is searched: id, names, addresses, numbers.
    Column("search_key", Key, nullable=False),
    # A UserState as JSON.
    Column("state", Text, nullable=False),
    _revision(),
)

known_applications = Table(
    "known_applications",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("type", Text, nullable=False),
    # An ApplicationState as JSON, without its secrets.
    Column("state", Text, nullable=False),
    _revision(),
)

known_resources = Table(
    "known_resources",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("indicator", Key, nullable=False),
    _revision(),
)

# A scope may be known before its resource is, or after it is gone; it grants only while both are there.
known_scopes = Table(
    "known_scopes",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("resource_id", Key, nullable=False),
    Column("name", Key, nullable=False),
    _revision(),
    Index("known_scopes_by_resource", "tenant_id", "resource_id", "id"),
)

directory_position = Table(
    "directory_position",
    metadata,
    tenant_id(),
    # Which incarnation of the stream: positions in another one mean nothing.
    Column("stream", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    # Management's watermark: everything up to here is in the tables; -1 before the first.
    Column("revision", BigInteger, nullable=False),
    Column("complete", Boolean, nullable=False),
    # The watermark as far as it was read. It counts when nothing was left behind it: of an aggregate that has changed
    # again the stream has only the newer state, which may stand behind the watermark that covers the older one.
    Column("read_revision", BigInteger, nullable=False, server_default="-1"),
)
