"""One request of a person about their own account. Nothing here depends on roles: everyone has an account."""

import time
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

from litestar import Response

from console.forms import Form
from console.languages import LANGUAGES
from console.signed_in import ActionNeeded, RecentSignInNeeded, SignedInRequest, Site
from identity_common.oauth import SCOPE_ACCOUNT, SCOPE_IMPERSONATIONS
from stead import MyAccount
from stead.errors import ApiError, RecentSignInRequired, TooManyAttempts

HOME: Final = "/account"

_MINUTE_S: Final = 60
_RECENT_S: Final = 300  # half of what the API accepts, so that there is time to fill in a form

T = TypeVar("T")


def account_site() -> Site:
    """Return the account page, which a userinfo token of any user admits to."""
    return Site(name="account", home=HOME, scopes=("email", SCOPE_ACCOUNT, SCOPE_IMPERSONATIONS), resource=None)


class AccountRequest(SignedInRequest):
    """One request of a person.

    Attributes:
        account: The person's account, as it is stored.
    """

    account: MyAccount

    @property
    def language(self) -> str:
        """The language of the page: that of the account, or else that of the browser."""
        return LANGUAGES.choose(self.account.profile.locale, self.original.headers.get("Accept-Language"))

    @property
    def _frame(self) -> Mapping[str, Any]:
        account = self.account
        name = account.name or account.username or account.primary_email or account.id
        return {"person": name, "may_change": True, "account": account}

    async def open(self) -> None:
        """Read the account, so that no page is shown of an account whose sign-in has ended.

        Raises:
            SignInNeeded: The session has ended.
            Unavailable: A service did not answer.
        """
        await super().open()
        self.account = await self.api.my_account.get()

    async def ended(self, template: str) -> Response[str]:
        """End the session after a change that has ended its sign-in, and answer with a page that says so.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self.session.end()
        return self._context.pages.render(template, self.language)

    def require_recent_sign_in(self) -> None:
        """Let the person sign in before a form is shown that only a recent sign-in may send.

        Raises:
            RecentSignInNeeded: The sign-in is too old.
        """
        if time.time() - self._client.claims().get("auth_time", 0) > _RECENT_S:
            raise self._recent_sign_in_needed()

    async def by_recent_sign_in(self, change: Awaitable[T]) -> T:
        """Carry out a change that needs a recent sign-in.

        Raises:
            RecentSignInNeeded: The sign-in is too old or too weak; nothing was changed.
        """
        try:
            return await change
        except RecentSignInRequired as required:
            raise self._recent_sign_in_needed(required.acr_values) from None

    def action_needed(self, action: str, *, return_to: str) -> ActionNeeded:
        """Return what lets the person set up a factor on the pages of the sign-in.

        Args:
            action: Of the authorization request.
            return_to: Path of the page afterwards, which says what was done.
        """
        return ActionNeeded(action, login_hint=self._login_hint, return_to=return_to, notice=f"account.{action}")

    @property
    def _login_hint(self) -> str | None:
        account = self.account
        return account.username or account.primary_email or account.primary_phone

    def _recent_sign_in_needed(self, acr_values: tuple[str, ...] = ()) -> RecentSignInNeeded:
        return RecentSignInNeeded(self._login_hint, acr_values)


def refuse(form: Form, error: ApiError, fields: Mapping[str, str]) -> None:
    """Set the errors that the API reports; of a limit, when to try again.

    Args:
        form: The form.
        error: The refusal.
        fields: The field of each error code.
    """
    form.refuse(error, fields)
    if isinstance(error, TooManyAttempts):
        form.problem = "too_many"
        form.add("wait", str(-(-int(error.retry_after or _MINUTE_S) // _MINUTE_S)))
