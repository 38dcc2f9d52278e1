"""What an impersonation needs, made through the Management API: resource, scopes, role, customer, application."""

import httpx
import msgspec

from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from stead import ManagementClient

RESOURCE = "https://shop.example.com/api"


class Impersonation(msgspec.Struct, frozen=True, kw_only=True):
    """Ids and secrets of one set-up."""

    user_id: str
    role_id: str
    resource_id: str
    client_id: str
    client_secret: str

    def form(self, subject_token: str) -> dict[str, str]:
        """Return the form of an exchange for the resource."""
        return {
            "grant_type": GRANT_TOKEN_EXCHANGE,
            "subject_token": subject_token,
            "subject_token_type": TOKEN_TYPE_ACCESS_TOKEN,
            "resource": RESOURCE,
            "scope": "read:orders write:orders",
        }

    @property
    def auth(self) -> httpx.BasicAuth:
        return httpx.BasicAuth(self.client_id, self.client_secret)


def set_up(management: ManagementClient, *, resource: str = RESOURCE) -> Impersonation:
    """Make everything and return it."""
    made = management.resources.create("Shop", resource)
    scopes = [management.resources.create_scope(made.id, name).id for name in ("read:orders", "write:orders")]
    role = management.roles.create(f"Shopper of {made.id}", "may see and change orders", "User", scopes)
    user = management.users.create(name="Customer")
    management.users.assign_roles(user.id, [role.id])
    application = management.applications.create(
        name="Shop", type="Traditional", custom_client_metadata={"allowTokenExchange": True}
    )
    secret = management.applications.create_secret(application.id, "first")
    return Impersonation(
        user_id=user.id,
        role_id=role.id,
        resource_id=made.id,
        client_id=application.id,
        client_secret=secret.value or "",
    )
