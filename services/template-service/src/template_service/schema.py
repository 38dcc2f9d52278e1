"""All tables of template-service: its SQL joins them across resources.

Does not own the tables of the outbox (``identity_common.outbox``), nor how any of them is read and written: each
resource's ``store.py`` does.
"""

from typing import Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Computed,
    ForeignKeyConstraint,
    Identity,
    Index,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from identity_common.stores.names import sort_key
from identity_common.stores.tables import Key, reference, tenant_id
from identity_common.stores.words import words_index

metadata = MetaData()


# The template: organization permissions, organization roles, and what the roles grant.

permissions = Table(
    "permissions",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text),
    # Incremented by every change of the row: part of the ETag of a member's permissions.
    Column("version", BigInteger, nullable=False),
    sort_key(),
    UniqueConstraint("tenant_id", "name", name="permissions_name_unique"),
    words_index("permissions", "name", "description"),
)

roles = Table(
    "roles",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text),
    Column("type", Text, nullable=False),
    # Incremented by every change of the row or of what the role grants: part of the ETag of a member's permissions.
    Column("version", BigInteger, nullable=False),
    sort_key(),
    UniqueConstraint("tenant_id", "name", name="roles_name_unique"),
    words_index("roles", "name", "description"),
)

role_permissions = Table(
    "role_permissions",
    metadata,
    tenant_id(),
    Column("role_id", Key, primary_key=True),
    Column("permission_id", Key, primary_key=True),
    reference("role_permissions", "role_id", "roles"),
    reference("role_permissions", "permission_id", "permissions"),
    Index("role_permissions_by_permission", "tenant_id", "permission_id", "role_id"),
)

role_scopes = Table(
    "role_scopes",
    metadata,
    tenant_id(),
    Column("role_id", Key, primary_key=True),
    Column("scope_id", Key, primary_key=True),
    reference("role_scopes", "role_id", "roles"),
    reference("role_scopes", "scope_id", "known_scopes"),
    Index("role_scopes_by_scope", "tenant_id", "scope_id", "role_id"),
)


# Organizations, their members, and the roles that the members hold.

organizations = Table(
    "organizations",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text),
    Column("custom_data", Text, nullable=False),
    Column("is_mfa_required", Boolean, nullable=False),
    # JSON objects, stored and returned as they are.
    Column("color", Text, nullable=False),
    Column("branding", Text, nullable=False),
    Column("custom_css", Text),
    Column("created_at", BigInteger, nullable=False),
    sort_key(),
    Index("organizations_by_name", "tenant_id", "sort_key", "name", "id"),
    words_index("organizations", "name", "description"),
)

# Neither members nor member_roles has a foreign key to organizations or roles: the time to delete one of those must not
# depend on its number of members. Every read ignores the rows left behind; the fan-out deletes them later.
LISTED_IN: Final = "tenant_id || '/' || organization_id || '/' || member_type"

members = Table(
    "members",
    metadata,
    tenant_id(),
    Column("organization_id", Key, primary_key=True),
    Column("member_id", Key, primary_key=True),
    Column("member_type", Text, nullable=False),
    Column("joined_at", BigInteger, nullable=False),
    Column("rejoined", Boolean, nullable=False, server_default="false"),
    # It belongs to the organization for the groups that a provider names, and for nothing else: it goes with them.
    Column("by_groups", Boolean, nullable=False, server_default="false"),
    # Copied from known_users or known_applications by triggers.
    Column("name", Key),
    Column("search_key", Key),
    # The list that the member is in. While its statistics predate the growth of an organization, the planner would use
    # an index that begins with the organization's id even to look up one member.
    Column("listed_in", Key, Computed(LISTED_IN, persisted=True)),
    sort_key(),
    Index("members_by_member", "tenant_id", "member_id", "organization_id"),
    Index("members_by_name", "listed_in", "sort_key", "name", "member_id"),
)

member_roles = Table(
    "member_roles",
    metadata,
    tenant_id(),
    Column("organization_id", Key, primary_key=True),
    Column("member_id", Key, primary_key=True),
    Column("role_id", Key, primary_key=True),
    # Why the member holds it: ``manual``, ``jit`` or ids of connectors; never empty.
    Column("origins", ARRAY(Text), nullable=False, server_default="{manual}"),
    ForeignKeyConstraint(
        ["tenant_id", "organization_id", "member_id"],
        ["members.tenant_id", "members.organization_id", "members.member_id"],
        name="member_roles_member_fkey",
        ondelete="CASCADE",
    ),
    Index("member_roles_by_role", "tenant_id", "role_id", "organization_id", "member_id"),
)


# Deleting an organization deletes its invitations at once, unlike its members: they are few.
# Addresses that were sent invitations a short time ago: deleting an invitation must not make room for another mail.
mailed_invitees = Table(
    "mailed_invitees",
    metadata,
    tenant_id(),
    # Of the address regardless of case and composition, which an erased person leaves nothing else of.
    Column("sha256", Key, primary_key=True),
    Column("sent_at", ARRAY(BigInteger), nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("mailed_invitees_by_expiry", "tenant_id", "expires_at"),
)

organization_invitations = Table(
    "organization_invitations",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("organization_id", Key, nullable=False),
    Column("invitee", Key, nullable=False),
    # The address regardless of case and composition.
    Column("invitee_key", Key, nullable=False),
    Column("inviter_id", Key),
    Column("accepted_user_id", Key),
    # Some of them may be deleted by now.
    Column("role_ids", ARRAY(Text), nullable=False),
    # Pending past its expiry means expired.
    Column("status", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    # When the last mail was queued; empty for none.
    Column("sent_at", ARRAY(BigInteger), nullable=False),
    # Of the link in the last mail; only while the invitation is pending.
    Column("link_sha256", Key),
    reference("organization_invitations", "organization_id", "organizations"),
    UniqueConstraint("tenant_id", "link_sha256", name="organization_invitations_link_unique"),
    Index(
        "organization_invitations_pending_unique",
        "tenant_id",
        "organization_id",
        "invitee_key",
        unique=True,
        postgresql_where=text("status = 'Pending'"),
    ),
    Index("organization_invitations_by_address", "tenant_id", "invitee_key", "id"),
    Index("organization_invitations_by_organization", "tenant_id", "organization_id", "invitee_key", "id"),
    Index("organization_invitations_by_user", "tenant_id", "accepted_user_id"),
)


# Who joins an organization just in time, and with which roles.

jit_email_domains = Table(
    "jit_email_domains",
    metadata,
    tenant_id(),
    Column("organization_id", Key, primary_key=True),
    # In lower case, as ``ProviderGroupsState.email_domain`` is.
    Column("email_domain", Key, primary_key=True),
    reference("jit_email_domains", "organization_id", "organizations"),
    Index("jit_email_domains_by_domain", "tenant_id", "email_domain", "organization_id"),
)

jit_sso_connectors = Table(
    "jit_sso_connectors",
    metadata,
    tenant_id(),
    Column("organization_id", Key, primary_key=True),
    Column("connector_id", Key, primary_key=True),
    reference("jit_sso_connectors", "organization_id", "organizations"),
    reference("jit_sso_connectors", "connector_id", "known_connectors"),
    Index("jit_sso_connectors_by_connector", "tenant_id", "connector_id", "organization_id"),
)

# As with the assignments of members, nothing refers to roles: the time to delete one must not depend on how many
# organizations name it. Every read ignores the ids of deleted roles.
jit_roles = Table(
    "jit_roles",
    metadata,
    tenant_id(),
    Column("organization_id", Key, primary_key=True),
    Column("role_id", Key, primary_key=True),
    reference("jit_roles", "organization_id", "organizations"),
)

jit_groups = Table(
    "jit_groups",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("organization_id", Key, nullable=False),
    Column("connector_id", Key, nullable=False),
    # A value of the connector's claim of groups.
    Column("group_value", Key, nullable=False),
    # Some of them may be deleted by now.
    Column("role_ids", ARRAY(Text), nullable=False),
    reference("jit_groups", "organization_id", "organizations"),
    reference("jit_groups", "connector_id", "known_connectors"),
    UniqueConstraint("tenant_id", "connector_id", "group_value", "organization_id", name="jit_groups_group_unique"),
    Index("jit_groups_by_organization", "tenant_id", "organization_id", "group_value", "id"),
)


# The fan-out: the permissions last published of each member, and the requests to compare them with the present ones.

# A row outlives its member: its version continues when the member rejoins.
published_permissions = Table(
    "published_permissions",
    metadata,
    tenant_id(),
    Column("organization_id", Key, primary_key=True),
    Column("member_id", Key, primary_key=True),
    Column("member_type", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("permissions", Text, nullable=False),
    # A fan-out updates all rows of a page at once; their next versions fit beside them, and the index stays as it is.
    postgresql_with={"fillfactor": 50},
)

fan_outs = Table(
    "fan_outs",
    metadata,
    tenant_id(),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("cause", Text, nullable=False),
    Column("role_id", Key),
    Column("organization_id", Key),
    Column("member_ids", ARRAY(Text)),
    # The last member that was processed.
    Column("after_organization_id", Key, nullable=False, server_default=""),
    Column("after_member_id", Key, nullable=False, server_default=""),
)


# The projection of management-service's events, and its position in the stream.


def _revision() -> Column[int]:
    """Return the column for the revision of the event that a row comes from; older events do not change the row."""
    return Column("revision", BigInteger, nullable=False, server_default="0")


known_users = Table(
    "known_users",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key),
    Column("is_suspended", Boolean, nullable=False),
    Column("tokens_valid_after", BigInteger, nullable=False),
    # Case-folded text to search in: id, names, addresses, numbers.
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

# A scope may arrive before its resource and outlive it; it grants nothing without its resource.
known_scopes = Table(
    "known_scopes",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("resource_id", Key, nullable=False),
    Column("name", Key, nullable=False),
    _revision(),
    sort_key(),
    Index("known_scopes_by_resource", "tenant_id", "resource_id", "id"),
)

known_connectors = Table(
    "known_connectors",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    _revision(),
)

# What the last sign-in with each identity said. It may arrive before its user.
known_identities = Table(
    "known_identities",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("user_id", Key, nullable=False),
    Column("connector_id", Key, nullable=False),
    Column("email_domain", Key),
    Column("groups", ARRAY(Text), nullable=False),
    # Deleted; the row goes when it has been applied.
    Column("is_gone", Boolean, nullable=False),
    # Whether the memberships and roles of its user are what it says.
    Column("is_applied", Boolean, nullable=False),
    _revision(),
    Index("known_identities_by_user", "tenant_id", "user_id", "connector_id"),
    Index("known_identities_to_apply", "tenant_id", "id", postgresql_where=text("NOT is_applied")),
)

# The previous release reads a copy of the stream, at positions of its own. The next release drops it.
directory_position = Table(
    "directory_position",
    metadata,
    tenant_id(),
    Column("stream", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("read_revision", BigInteger, nullable=False, server_default="-1"),
)

projection_position = Table(
    "projection_position",
    metadata,
    tenant_id(),
    # Identifies the incarnation of the stream; positions in different ones are not comparable.
    Column("stream", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    # Management's watermark: everything up to this revision is in the tables; -1 before the first.
    Column("revision", BigInteger, nullable=False),
    Column("complete", Boolean, nullable=False),
    # The highest watermark read. It becomes the revision once the end of the stream is reached: the stream keeps one
    # message per aggregate, so the newer state of one may come after the watermark that covers its older state.
    Column("read_revision", BigInteger, nullable=False, server_default="-1"),
    # Of the last sign-in through a connector that was applied; -1 before the first.
    Column("applied_revision", BigInteger, nullable=False, server_default="-1"),
)
