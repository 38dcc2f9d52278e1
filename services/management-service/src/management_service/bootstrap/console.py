"""Creates what the console needs: clients of it and the account page, a role for administrators, and the first of them.

The account page has a client of its own: what the console demands of a sign-in is not demanded of all users.

Idempotent, and no password is changed: a user is created only while no live user holds the role, without a password but
with an invitation to choose one.
"""

from typing import Final

from identity_common.identifiers import new_id, new_secret
from identity_common.outbox.changes import Changes
from identity_common.paging import Page
from identity_common.rights.roles import ADMINISTRATOR
from identity_common.serving import CommandError
from identity_common.wire.events import DemandedLevel
from management_service.applications.rules import (
    ApplicationCreation,
    ApplicationUpdate,
    CustomClientMetadata,
    OidcClientMetadata,
)
from management_service.applications.service import Applications
from management_service.applications.store import Application, ApplicationFilter
from management_service.bootstrap.first_client import ClientSecrets, role_granting
from management_service.bootstrap.kubernetes_secret import KubernetesSecret
from management_service.factors.enrolments import hand_out_code
from management_service.invitations.rules import MAX_MINUTES
from management_service.invitations.service import Invitations
from management_service.provider_people import find_people
from management_service.roles.assignments import Assignments
from management_service.roles.rules import RoleCreation
from management_service.roles.service import Roles
from management_service.sign_in_policy.store import find_policy
from management_service.users.rules import FieldSearch, UserCreation, UserSearch
from management_service.users.service import Users
from management_service.users.store import User, lock_user

APPLICATION_NAME: Final = "Console"
ACCOUNT_APPLICATION_NAME: Final = "Account page"
USERNAME: Final = "administrator"

_ROLE: Final = RoleCreation(name=ADMINISTRATOR.name, description=ADMINISTRATOR.description, type="User")
_WHOLE: Final = Page(size=None)
_FIRST: Final = Page(size=1)


class ConsoleBootstrap:
    """Creates the console's client and administrator through the service's own operations.

    Args:
        minimum_acr: How strongly users must have signed in to a console that is created; None for any sign-in.
    """

    def __init__(
        self,
        *,
        roles: Roles,
        applications: Applications,
        users: Users,
        invitations: Invitations,
        assignments: Assignments,
        changes: Changes,
        tenant_id: str,
        base_url: str,
        minimum_acr: DemandedLevel | None,
    ) -> None:
        self._roles = roles
        self._applications = applications
        self._users = users
        self._invitations = invitations
        self._assignments = assignments
        self._changes = changes
        self._tenant_id = tenant_id
        self._minimum_acr = minimum_acr
        self._callback = f"{base_url}/console/callback"  # all that an earlier version registered
        self._callbacks = [self._callback, f"{base_url}/account/callback"]
        self._addresses = OidcClientMetadata(
            redirect_uris=self._callbacks,
            post_logout_redirect_uris=[f"{base_url}/console", f"{base_url}/account"],
        )
        self._account_addresses = OidcClientMetadata(
            redirect_uris=[f"{base_url}/account/callback"], post_logout_redirect_uris=[f"{base_url}/account"]
        )

    async def client(self, secret: KubernetesSecret) -> DemandedLevel | None:
        """Write the credentials of both clients to a Secret, unless those in it are valid.

        Returns:
            The console's minimum.

        Raises:
            CommandError: Another application has the console's name; or the Secret cannot be read or written.
        """
        earlier = await secret.read() or {}
        console = await self._ensure_console(earlier.get("console_client_id"))
        account = await self._ensure_account(earlier.get("account_client_id"))
        values: dict[str, str] = {}
        for site, application in (("console", console), ("account", account)):
            id_key, secret_key = f"{site}_client_id", f"{site}_client_secret"
            known = earlier.get(secret_key) if earlier.get(id_key) == application.id else None
            client_secret = await ClientSecrets(self._applications).valid(application.id, known)
            values |= {id_key: application.id, secret_key: client_secret}
        if values != earlier:
            await secret.write(values)
        return console.minimum_acr

    async def administrator(
        self, secret: KubernetesSecret, *, scope_id: str, minimum_acr: DemandedLevel | None
    ) -> None:
        """Create an administrator, and write ``username`` and ``invitation``, unless there is one already.

        Users count who can sign in (``administrators``). If only the password is missing, the user is invited again if
        the Secret has no valid invitation, for example after a crash. If what the console demands is missing of all of
        them, the Secret gets an ``enrolment_code`` for one.

        Args:
            secret: The Secret to write to.
            scope_id: The scope ``all`` of the Management API.
            minimum_acr: The console's minimum.

        Raises:
            CommandError: Another role has the name; or the Secret cannot be read or written.
        """
        role_id = await role_granting(self._roles, _ROLE, scope_id)
        holders, _ = await self._assignments.list_users(role_id, _WHOLE)
        live = [holder for holder in holders if not holder.is_suspended]
        async with self._changes.unpublished() as connection:
            at_providers = await find_people(connection, self._tenant_id, [holder.id for holder in live])
        if any("passkey" in holder.second_factors and at_providers.get(holder.id, True) for holder in live):
            return
        earlier = await secret.read() or {}
        candidates = [holder for holder in live if holder.identifier and holder.id not in at_providers]
        candidates.sort(key=lambda holder: holder.identifier != earlier.get("username"))  # the one invited earlier
        signing_in = [holder for holder in candidates if holder.has_password]
        signing_in += [holder for holder in live if at_providers.get(holder.id, False)]
        if signing_in:
            if not any(holder.second_factors for holder in signing_in):
                await self._hand_out_code(signing_in[0], secret, minimum_acr)
            return
        invited = candidates[0] if candidates else await self._create_administrator(role_id)
        if not await self._invitations.is_valid(invited.id, earlier.get("invitation", "")):
            invitation = new_secret()
            await secret.write({"username": invited.identifier or "", "invitation": invitation})
            await self._invitations.create(invited.id, minutes=MAX_MINUTES, value=invitation)

    async def _hand_out_code(self, user: User, secret: KubernetesSecret, minimum_acr: DemandedLevel | None) -> None:
        """Write a code with which an administrator sets up the factor without which the console cannot be used."""
        async with self._changes.unpublished() as connection:
            policy = await find_policy(connection, self._tenant_id)
            is_required = policy is not None and policy.second_factor == "required"
            if minimum_acr is None and not is_required:
                return
            if await lock_user(connection, self._tenant_id, user.id) is None:
                return
            code, _ = await hand_out_code(connection, self._tenant_id, user.id)
        await secret.write({"username": user.identifier or "", "enrolment_code": code})

    async def _create_administrator(self, role_id: str) -> User:
        is_named = UserSearch(fields=(FieldSearch("username", USERNAME, "exact"),))
        _, others = await self._users.list_users(_FIRST, is_named, without=())
        username = f"{USERNAME}_{new_id()[:4]}" if others else USERNAME
        user = await self._users.create(UserCreation(username=username, name="Administrator"))
        await self._assignments.add_roles("user", user.id, [role_id])
        return user

    async def _ensure_account(self, earlier_id: str | None) -> Application:
        """Return the account page's application, creating it if missing, with the redirect URIs of ``base_url``."""
        named = await self._named(ACCOUNT_APPLICATION_NAME)
        wanted = self._account_addresses
        for application in named:
            if application.id == earlier_id or list(application.redirect_uris) == wanted.redirect_uris:
                return await self._applications.update(application.id, ApplicationUpdate(oidc_client_metadata=wanted))
        return await self._applications.create(
            ApplicationCreation(name=ACCOUNT_APPLICATION_NAME, type="Traditional", oidc_client_metadata=wanted)
        )

    async def _named(self, name: str) -> list[Application]:
        only = ApplicationFilter(types=("Traditional",), is_third_party=False)
        found, _ = await self._applications.list_applications(_WHOLE, only, without=())
        return [each for each in found if each.name == name]

    async def _ensure_console(self, earlier_id: str | None) -> Application:
        """Return the console's application, creating it if missing, with the redirect URIs of ``base_url``.

        A name alone proves nothing: the application is the one that the Secret names, or that redirects to the console
        and has what needs ``all``.
        """
        named = await self._named(APPLICATION_NAME)
        known = [each for each in named if each.id == earlier_id]
        for application in (*known, *filter(self._is_ours, named)):
            update = ApplicationUpdate(oidc_client_metadata=self._addresses)
            return await self._applications.update(application.id, update)
        if named:
            raise CommandError(
                f"the application {APPLICATION_NAME!r} ({named[0].id}) does not redirect to {self._callback} alone,"
                " or has no allowManagementApi: rename or delete it; or, if it is the console's, change that"
            )
        return await self._applications.create(
            ApplicationCreation(
                name=APPLICATION_NAME,
                type="Traditional",
                oidc_client_metadata=self._addresses,
                custom_client_metadata=CustomClientMetadata(allow_management_api=True, minimum_acr=self._minimum_acr),
            )
        )

    def _is_ours(self, application: Application) -> bool:
        """Return whether an application with the console's name is the console; without the right it may be a decoy."""
        registered = set(application.redirect_uris)
        is_redirected_to_us = {self._callback} <= registered <= set(self._callbacks)
        return application.allow_management_api and is_redirected_to_us
