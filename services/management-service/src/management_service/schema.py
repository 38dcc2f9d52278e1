"""The tables of management-service but those of the audit trail: SQL joins across them. The migrations create them."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
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

users = Table(
    "users",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("username", Text),
    Column("username_key", Key),
    Column("primary_email", Text),
    Column("primary_email_key", Key),
    Column("primary_phone", Text),
    Column("primary_phone_key", Key),
    Column("name", Key),
    Column("avatar", Text),
    Column("external_id", Key),
    Column("is_email_verified", Boolean, nullable=False),
    Column("password_hash", Text),
    Column("allows_password", Boolean, nullable=False, server_default="false"),
    Column("is_suspended", Boolean, nullable=False),
    Column("tokens_valid_after", BigInteger, nullable=False),
    Column("custom_data", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("second_factors", ARRAY(Text), nullable=False, server_default="{}"),
    Column("search_key", Key, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    sort_key(),
    UniqueConstraint("tenant_id", "username_key", name="users_username_unique"),
    UniqueConstraint("tenant_id", "primary_email_key", name="users_primary_email_unique"),
    UniqueConstraint("tenant_id", "primary_phone_key", name="users_primary_phone_unique"),
    Index("users_by_name", "tenant_id", "sort_key", "name", "id"),
    Index(
        "users_external_id_unique",
        "tenant_id",
        "external_id",
        unique=True,
        postgresql_where=text("external_id IS NOT NULL"),
    ),
    words_index("users", "name", "username", "primary_email", "primary_phone"),
)

# Maintained by triggers of ``users``; the number is the sum of all parts (docs/decisions/0039).
user_counts = Table(
    "user_counts",
    metadata,
    tenant_id(),
    Column("part", BigInteger, Identity(always=True), primary_key=True),
    Column("users", BigInteger, nullable=False),
)

passkeys = Table(
    "passkeys",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("user_id", Key, nullable=False),
    Column("credential_id", LargeBinary, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("sign_count", BigInteger, nullable=False),
    Column("aaguid", Key, nullable=False),
    Column("name", Text, nullable=False),
    Column("transports", ARRAY(Text), nullable=False),
    Column("is_backup_eligible", Boolean, nullable=False),
    Column("is_backed_up", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("last_used_at", BigInteger),
    reference("passkeys", "user_id", "users"),
    UniqueConstraint("tenant_id", "credential_id", name="passkeys_credential_unique"),
    Index("passkeys_by_user", "tenant_id", "user_id", "created_at", "id"),
)

user_handles = Table(
    "user_handles",
    metadata,
    tenant_id(),
    Column("user_id", Key, primary_key=True),
    Column("handle", LargeBinary, nullable=False),
    reference("user_handles", "user_id", "users"),
)

invitations = Table(
    "invitations",
    metadata,
    tenant_id(),
    Column("user_id", Key, primary_key=True),
    Column("sha256", Key, nullable=False),
    Column("tokens_valid_after", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("scopes", ARRAY(Text)),
    Column("created_at", BigInteger),
    Column("inviter_id", Text),
    Column("application_id", Text),
    reference("invitations", "user_id", "users"),
    UniqueConstraint("tenant_id", "sha256", name="invitations_sha256_unique"),
    Index("invitations_by_expiry", "tenant_id", "expires_at", "user_id"),
)

mailed_links = Table(
    "mailed_links",
    metadata,
    tenant_id(),
    Column("kind", Key, primary_key=True),
    Column("subject", Key, primary_key=True),
    Column("sha256", Key, nullable=False),
    Column("user_id", Key),
    Column("address", Text, nullable=False),
    Column("tokens_valid_after", BigInteger),
    Column("context", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    reference("mailed_links", "user_id", "users"),
    UniqueConstraint("tenant_id", "sha256", name="mailed_links_sha256_unique"),
    Index("mailed_links_by_expiry", "tenant_id", "expires_at"),
    Index("mailed_links_by_user", "tenant_id", "user_id"),
)

mail_failures = Table(
    "mail_failures",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("recipient", Text, nullable=False),
    Column("user_id", Key),
    Column("code", Integer),
    Column("answer", Text, nullable=False),
    Column("occurred_at", BigInteger, nullable=False),
    reference("mail_failures", "user_id", "users"),
    Index("mail_failures_by_time", "tenant_id", "occurred_at", "id"),
    Index("mail_failures_by_user", "tenant_id", "user_id"),
)

authenticators = Table(
    "authenticators",
    metadata,
    tenant_id(),
    Column("user_id", Key, primary_key=True),
    Column("id", Key, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("last_used_at", BigInteger),
    reference("authenticators", "user_id", "users"),
)
"""The secret of each user's authenticator app, and the time step of the last code that was accepted."""

recovery_codes = Table(
    "recovery_codes",
    metadata,
    tenant_id(),
    Column("user_id", Key, primary_key=True),
    Column("sha256", Key, primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    reference("recovery_codes", "user_id", "users"),
)

factor_enrolments = Table(
    "factor_enrolments",
    metadata,
    tenant_id(),
    Column("user_id", Key, primary_key=True),
    Column("origin", Key, primary_key=True),
    Column("code_sha256", Key),
    Column("attempts", Integer, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    reference("factor_enrolments", "user_id", "users"),
    Index("factor_enrolments_by_expiry", "tenant_id", "expires_at"),
)
"""Who may set up a first factor: with a code, or without one just after a mailed link."""

applications = Table(
    "applications",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text),
    Column("type", Text, nullable=False),
    Column("is_third_party", Boolean, nullable=False),
    Column("redirect_uris", ARRAY(Text), nullable=False),
    Column("post_logout_redirect_uris", ARRAY(Text), nullable=False),
    Column("allow_token_exchange", Boolean, nullable=False),
    Column("exchanged_valid_after", BigInteger, nullable=False, server_default="0"),
    Column("allow_management_api", Boolean, nullable=False, server_default="false"),
    Column("cors_allowed_origins", ARRAY(Text), nullable=False),
    Column("id_token_ttl_s", Integer, nullable=False),
    Column("refresh_token_ttl_days", Integer, nullable=False),
    Column("rotate_refresh_token", Boolean, nullable=False),
    Column("always_issue_refresh_token", Boolean, nullable=False),
    Column("token_endpoint_auth_method", Text, nullable=False),
    Column("require_pkce", Boolean, nullable=False),
    Column("minimum_acr", Text),
    Column("logo_uri", Text),
    Column("primary_color", Text),
    Column("custom_data", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    sort_key(),
    CheckConstraint("NOT (is_third_party AND allow_token_exchange)", name="applications_third_party_exchange"),
    CheckConstraint("require_pkce OR NOT is_third_party", name="applications_third_party_pkce"),
    Index("applications_by_name", "tenant_id", "sort_key", "name", "id"),
    words_index("applications", "name", "description"),
)

application_secrets = Table(
    "application_secrets",
    metadata,
    tenant_id(),
    Column("application_id", Key, primary_key=True),
    Column("name", Key, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    sort_key(),
    reference("application_secrets", "application_id", "applications"),
)

resources = Table(
    "resources",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("indicator", Text, nullable=False),
    Column("access_token_ttl_s", Integer, nullable=False),
    Column("tokens_valid_after", BigInteger, nullable=False, server_default="0"),
    Column("is_default", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    sort_key(),
    UniqueConstraint("tenant_id", "indicator", name="resources_indicator_unique"),
    Index("resources_by_name", "tenant_id", "sort_key", "name", "id"),
    words_index("resources", "name", "indicator"),
)

scopes = Table(
    "scopes",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("resource_id", Key, nullable=False),
    Column("name", Key, nullable=False),
    Column("description", Text),
    Column("created_at", BigInteger, nullable=False),
    sort_key(),
    UniqueConstraint("tenant_id", "resource_id", "name", name="scopes_name_unique"),
    reference("scopes", "resource_id", "resources"),
    words_index("scopes", "name", "description"),
)

roles = Table(
    "roles",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("is_default", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    sort_key(),
    UniqueConstraint("tenant_id", "name", name="roles_name_unique"),
    words_index("roles", "name", "description"),
)
Index("roles_default", roles.c.tenant_id, roles.c.id, postgresql_where=roles.c.is_default)

role_scopes = Table(
    "role_scopes",
    metadata,
    tenant_id(),
    Column("role_id", Key, primary_key=True),
    Column("scope_id", Key, primary_key=True),
    reference("role_scopes", "role_id", "roles"),
    reference("role_scopes", "scope_id", "scopes"),
    Index("role_scopes_by_scope", "tenant_id", "scope_id", "role_id"),
)

user_roles = Table(
    "user_roles",
    metadata,
    tenant_id(),
    Column("user_id", Key, primary_key=True),
    Column("role_id", Key, primary_key=True),
    reference("user_roles", "user_id", "users"),
    reference("user_roles", "role_id", "roles"),
    Index("user_roles_by_role", "tenant_id", "role_id", "user_id"),
)

application_roles = Table(
    "application_roles",
    metadata,
    tenant_id(),
    Column("application_id", Key, primary_key=True),
    Column("role_id", Key, primary_key=True),
    reference("application_roles", "application_id", "applications"),
    reference("application_roles", "role_id", "roles"),
    Index("application_roles_by_role", "tenant_id", "role_id", "application_id"),
)

impersonation_ends = Table(
    "impersonation_ends",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("slot", Integer, nullable=False),
    Column("begun_until", BigInteger),
    Column("expires_at", BigInteger, nullable=False),
    Index("impersonation_ends_by_slot", "tenant_id", "slot"),
)

party_ends = Table(
    "party_ends",
    metadata,
    tenant_id(),
    Column("party", Key, primary_key=True),
    Column("ended_at", BigInteger, primary_key=True),
    Column("cause", Key, nullable=False),
    Column("ended_by", Key),
    Index("party_ends_by_time", "tenant_id", "ended_at"),
)

longest_lifetimes = Table(
    "longest_lifetimes",
    metadata,
    tenant_id(),
    Column("lifetime_s", Integer, nullable=False),
)
"""The longest lifetime that any resource's access tokens have had."""

impersonation_policies = Table(
    "impersonation_policies",
    metadata,
    tenant_id(),
    Column("require_actor", Boolean, nullable=False),
    Column("require_context", ARRAY(Text), nullable=False),
    Column("excluded_roles", ARRAY(Text), nullable=False),
    Column("actor_max_age_s", Integer),
    Column("actor_acr", Text),
)
"""Ids of roles in an array, not in a relation: minting reads a policy in the statement that finds the user."""

sign_in_policies = Table(
    "sign_in_policies",
    metadata,
    tenant_id(),
    Column("registration", Key, nullable=False),
    Column("registration_domains", ARRAY(Text), nullable=False),
    Column("second_factor", Key, nullable=False, server_default="optional"),
)

connectors = Table(
    "connectors",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("issuer", Key, nullable=False),
    Column("client_id", Key),
    Column("sealed_secret", LargeBinary),
    Column("scope", Key, nullable=False, server_default="openid profile email"),
    Column("match_claim", Key, nullable=False),
    Column("is_enabled", Boolean, nullable=False),
    Column("display_name", Text),
    Column("logo_uri", Text),
    Column("allowed_domains", ARRAY(Text), nullable=False, server_default="{}"),
    Column("required_claims", Text, nullable=False, server_default="[]"),
    Column("groups_claim", Key),
    Column("sync_profile", Boolean, nullable=False, server_default="false"),
    Column("session_max_age_s", Integer),
    Column("actor_clients", ARRAY(Text), nullable=False),
    Column("trusted_factors", Text, nullable=False),
    Column("closed_at", BigInteger, nullable=False, server_default="0"),
    Column("admits_since", BigInteger, nullable=False, server_default="0"),
    Column("created_at", BigInteger, nullable=False),
    sort_key(),
    UniqueConstraint("tenant_id", "name", name="connectors_name_unique"),
    UniqueConstraint("tenant_id", "issuer", name="connectors_issuer_unique"),
)

connector_domains = Table(
    "connector_domains",
    metadata,
    tenant_id(),
    Column("domain", Key, primary_key=True),
    Column("connector_id", Key, nullable=False),
    reference("connector_domains", "connector_id", "connectors"),
    Index("connector_domains_by_connector", "tenant_id", "connector_id"),
)

identities = Table(
    "identities",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("user_id", Key, nullable=False),
    Column("connector_id", Key, nullable=False),
    Column("value", Key, nullable=False),
    Column("signed_in_at", BigInteger),
    Column("email_domain", Key),
    Column("groups", ARRAY(Text), nullable=False, server_default="{}"),
    Column("created_at", BigInteger, nullable=False),
    reference("identities", "user_id", "users"),
    reference("identities", "connector_id", "connectors"),
    UniqueConstraint("tenant_id", "connector_id", "value", name="identities_value_unique"),
    Index("identities_by_user", "tenant_id", "user_id", "created_at", "id"),
)

# What counts once, until it would have expired: tickets for a link, and logout tokens of providers.
spent_tickets = Table(
    "spent_tickets",
    metadata,
    tenant_id(),
    Column("sha256", Key, primary_key=True),
    Column("expires_at", BigInteger, nullable=False),
    Index("spent_tickets_by_expiry", "tenant_id", "expires_at"),
)

claims_functions = Table(
    "claims_functions",
    metadata,
    tenant_id(),
    Column("kind", Key, primary_key=True),
    Column("last_version", Integer, nullable=False),
    Column("active_version", Integer),
)

claims_function_versions = Table(
    "claims_function_versions",
    metadata,
    tenant_id(),
    Column("kind", Key, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("script", Text, nullable=False),
    Column("sealed_environment_variables", Text, nullable=False),
    Column("environment_variable_names", ARRAY(Text), nullable=False),
    Column("context_sample", Text),
    Column("token_sample", Text),
    Column("block_issuance_on_error", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by_application_id", Text, nullable=False),
    Column("created_by_user_id", Text),
    ForeignKeyConstraint(
        ["tenant_id", "kind"],
        ["claims_functions.tenant_id", "claims_functions.kind"],
        name="claims_function_versions_kind_fkey",
    ),
)
