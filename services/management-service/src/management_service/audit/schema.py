"""The tables of the audit trail. The migrations create them."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    and_,
    any_,
    false,
    func,
    literal,
    literal_column,
    select,
    text,
)

from identity_common.stores.tables import Key, tenant_id
from management_service.schema import metadata


def audit_hash(tenant_id: ColumnElement[str], *members: ColumnElement[str]) -> ColumnElement[int]:
    """Return the hash of a tenant and of members of an entry, by which indexes of the trail find it."""
    hashed: ColumnElement[int] = literal_column("0", BigInteger)
    for each in (tenant_id, *members):
        hashed = func.hashtextextended(each, hashed, type_=BigInteger)
    return hashed


def audit_hash_sql(*members: str) -> str:
    """Return the hash as PostgreSQL shows it in the definition of an index."""
    hashed = "0::bigint"
    for each in ("tenant_id", *members):
        hashed = f"hashtextextended({each}, {hashed})"
    return hashed


def _hash_of(*members: str) -> ColumnElement[int]:
    return literal_column(audit_hash_sql(*members), BigInteger)


_WALKED: Final = ("operation", "application_id", "user_id", "requested_by", "actor_id", "organization_id")
_WALKED_WITH_KEY: Final = ("user_id", "application_id", "organization_id")
AUDIT_STATISTICS: Final = {
    **{each: audit_hash_sql(each) for each in (*_WALKED, "subject_token_id")},
    **{f"{each}_and_key": audit_hash_sql(each, "key") for each in _WALKED_WITH_KEY},
}
"""What a partition has statistics of, by name: the planner uses none that a partial index has."""


AUDIT_REQUEST_ID: Final = """split_part(split_part(entry, '"requestId":"', 2), '"', 1)"""
"""The request id in the JSON of an entry, without parsing it: an index takes it from every entry."""
audit_outcome = literal_column("audit_outcome(key)", Text)
"""How what an entry tells of ended: its key says it, so that no index has to read the JSON of every entry."""
audit_ticket = literal_column("audit_ticket(entry)", Text)
"""The ticket of an impersonation, in lower case."""

audit_entries = Table(
    "audit_entries",
    metadata,
    tenant_id(),
    Column("occurred_at", BigInteger, primary_key=True),
    Column("number", BigInteger, primary_key=True, server_default=text("nextval('audit_entry_number')")),
    Column("id", Key, nullable=False),
    Column("log", Key, nullable=False),
    Column("epoch", Key, nullable=False),
    Column("sequence", BigInteger),
    Column("key", Key, nullable=False),
    Column("operation", Key),
    Column("application_id", Key),
    Column("user_id", Key),
    Column("written_user_id", Key),  # replicas of the previous release read it; nothing writes it any more
    Column("requested_by", Key),
    Column("actor_id", Key),
    Column("organization_id", Key),
    Column("subject_token_id", Key),
    Column("entry", Text, nullable=False),
    Column("leaf_index", BigInteger),
    Column("salt", LargeBinary),
    Column("personal_hash", LargeBinary),
    Index("audit_entries_numbered", _hash_of("log", "epoch"), "sequence", "occurred_at", unique=True),
    Index("audit_entries_by_id", _hash_of("id")),
    Index("audit_entries_by_request_id", _hash_of(AUDIT_REQUEST_ID)),
    Index("audit_entries_by_key", _hash_of("key"), "occurred_at"),
    Index(  # most entries tell of a success
        "audit_entries_by_outcome",
        *("tenant_id", audit_outcome, "occurred_at", "number"),
        postgresql_where=text("audit_outcome(key) <> 'success'"),
    ),
    *(  # partial: most entries have few of these members, and an indexed null costs as much as a value
        Index(
            f"audit_entries_by_{column}",
            *(_hash_of(column), "occurred_at"),
            postgresql_where=text(f"{column} IS NOT NULL"),
        )
        for column in _WALKED
    ),
    Index(  # an impersonation has few entries: they are sorted
        "audit_entries_by_subject_token_id",
        _hash_of("subject_token_id"),
        postgresql_where=text("subject_token_id IS NOT NULL"),
    ),
    Index(  # a user may have few entries of a key among a million sign-ins
        "audit_entries_by_user_id_and_key",
        *(_hash_of("user_id", "key"), "occurred_at"),
        postgresql_where=text("user_id IS NOT NULL"),
    ),
    *(  # the entries about impersonations: an application may have few of them among a million token requests
        Index(
            f"audit_impersonations_by_{column}",
            *(_hash_of(column, "key"), "occurred_at"),
            postgresql_where=text(f"{column} IS NOT NULL AND subject_token_id IS NOT NULL"),
        )
        for column in ("application_id", "organization_id")
    ),
    Index(
        "audit_impersonations_by_words",
        literal_column("search_words(name_sort_key(audit_context(entry)))"),
        postgresql_using="gin",
        postgresql_where=text("key = 'subject-token.issued'"),
    ),
    Index(
        "audit_impersonations_by_ticket",
        *("tenant_id", audit_ticket, "occurred_at", "number"),
        postgresql_where=text("key = 'subject-token.issued' AND audit_ticket(entry) IS NOT NULL"),
    ),
    postgresql_partition_by="RANGE (occurred_at)",
)
"""The audit trail, in one partition a month; each is created by the ingestion and dropped after the retention."""


def has_audit_members(tenant_id: ColumnElement[str] | str, **members: ColumnElement[str] | str) -> ColumnElement[bool]:
    """Return the condition that an entry of a tenant has these members, by the index of their hash."""
    return and_(has_audit_hash(tenant_id, **members), are_audit_members(tenant_id, **members))


def has_audit_hash(tenant_id: ColumnElement[str] | str, **members: ColumnElement[str] | str) -> ColumnElement[bool]:
    """Return the condition that an entry has the hash of these members; others may have it, too."""
    own = audit_hash(audit_entries.c.tenant_id, *(audit_entries.c[name] for name in members))
    return own == audit_hash(*map(_as_text, (tenant_id, *members.values())))


def has_audit_hash_of_any(
    tenant_id: ColumnElement[str] | str, name: str, values: ColumnElement[Sequence[str]]
) -> ColumnElement[bool]:
    """Return the condition that an entry has the hash of one of some values of a member."""
    value = func.unnest(values, type_=Text).column_valued("value")
    hashes = select(audit_hash(_as_text(tenant_id), value)).scalar_subquery()
    own = audit_hash(audit_entries.c.tenant_id, audit_entries.c[name])
    return own == any_(func.array(hashes, type_=ARRAY(BigInteger)))


def are_audit_members(tenant_id: ColumnElement[str] | str, **members: Any) -> ColumnElement[bool]:
    """Return the condition that an entry of a tenant has these members, for rows that an index has found.

    COALESCE hides it from the planner, which would walk all entries of the tenant while a partition is small, and keep
    that plan. Of a member it would multiply what it expects with what it expects of the hash, and then sort what is so
    little instead of walking an index.
    """
    own = (audit_entries.c[name] == value for name, value in members.items())
    return func.coalesce(and_(audit_entries.c.tenant_id == tenant_id, *own), false())


def _as_text(value: ColumnElement[str] | str) -> ColumnElement[str]:
    return literal(value, Text) if isinstance(value, str) else value


audit_targets = Table(
    "audit_targets",
    metadata,
    tenant_id(),
    Column("target_id", Key, primary_key=True),
    Column("occurred_at", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    postgresql_partition_by="RANGE (occurred_at)",
)
"""The ids in the path and body of each write, and of what it changed, with the key of its entry; set by a trigger."""

audit_parties = Table(
    "audit_parties",
    metadata,
    tenant_id(),
    Column("party_id", Key, primary_key=True),
    Column("occurred_at", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    postgresql_partition_by="RANGE (occurred_at)",
)
"""The parties of an impersonation, with the keys of those of its entries that do not name them; set by a trigger."""

audit_numberings = Table(
    "audit_numberings",
    metadata,
    tenant_id(),
    Column("log", Key, primary_key=True),
    Column("epoch", Key, primary_key=True),
    Column("number", BigInteger, nullable=False, server_default=text("nextval('audit_entry_number')")),
    Column("last_sequence", BigInteger, nullable=False),
)
"""How far each numbering of each log was ingested."""

audit_figures = Table(
    "audit_figures",
    metadata,
    tenant_id(),
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("key", Key, primary_key=True),
    Column("entries", BigInteger, nullable=False),
    postgresql_with={"fillfactor": 50},
)
"""Number of entries by hour and key; ``hour`` is when it begins."""

audit_trees = Table(
    "audit_trees",
    metadata,
    tenant_id(),
    Column("log_id", Key, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("signed_size", BigInteger, nullable=False, server_default=text("0")),
    Column("signed_root", LargeBinary),
    Column("head", Text),
)
"""The Merkle tree of a tenant's trail, and its last signed head."""

audit_tiles = Table(
    "audit_tiles",
    metadata,
    tenant_id(),
    Column("level", Integer, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("hashes", LargeBinary, nullable=False),
)
"""Hashes of the tree, 256 of one level in a row; level 0 has the leaves, also those of dropped partitions."""

audit_keys = Table(
    "audit_keys",
    metadata,
    tenant_id(),
    Column("kid", Key, primary_key=True),
    Column("private_key", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
"""The sealed private keys that sign heads."""

audit_erasures = Table(
    "audit_erasures",
    metadata,
    tenant_id(),
    Column("user_id", Key, primary_key=True),
    Column("is_pending", Boolean, nullable=False),
    Column("after_time", BigInteger, nullable=False, server_default=text("0")),
    Column("after_number", BigInteger, nullable=False, server_default=text("0")),
    Index("audit_erasures_pending", "tenant_id", "user_id", postgresql_where=text("is_pending")),
)
"""Deleted users; an erasure is pending while entries after its position may still have a personal part."""

audit_positions = Table(
    "audit_positions",
    metadata,
    tenant_id(),
    Column("stream_created", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
)
"""How far the stream was ingested, and which incarnation of it."""
