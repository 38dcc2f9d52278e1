"""The sign-in page: a password, a passkey, or the provider of a connector.

Where connectors have domains, it asks for the identifier first: an address of such a domain leads to its provider, and
no password is asked for.
"""

from typing import Final, get_args

from identity_common.wire.events import ApplicationState
from identity_common.wire.provider_sign_in import NotAcceptedReason
from token_service.sign_in.attempts import Problem, SignInRefused
from token_service.sign_in.challenges import Challenges
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.pages.browser import Browser
from token_service.sign_in.pages.languages import LANGUAGES
from token_service.sign_in.pages.views import page
from token_service.sign_in.pending import Pending
from token_service.sign_in.pending_pages import SIGN_IN, Answer, PendingPages, query_of, stated
from token_service.sign_in.recovery import FORGOTTEN
from token_service.sign_in.registration import REGISTER

PASSKEY: Final = f"{SIGN_IN}/passkey"
IDENTIFIER: Final = f"{SIGN_IN}/identifier"
PROVIDER: Final = f"{SIGN_IN}/provider"
LEAVE_LINK: Final = f"{SIGN_IN}/connect/leave"

PROVIDER_PROBLEMS: Final[tuple[Problem, ...]] = (
    *("provider-denied", "provider-refused", "provider-unavailable", "provider-ended", "throttled"),
    *get_args(NotAcceptedReason),
)
"""What the page may state because its address says so."""


class SignInPage:
    """Shows the page.

    Args:
        flow: Knows the connectors, and whether people may register.
        pages: What the pages of a pending request have in common.
        challenges: For passkeys.
    """

    def __init__(self, flow: SignInFlow, pages: PendingPages, challenges: Challenges) -> None:
        self._flow = flow
        self._pages = pages
        self._challenges = challenges

    async def show(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        application: ApplicationState,
        identifier: str,
        refused: SignInRefused | None = None,
        *,
        asks_password: bool = False,
    ) -> Answer:
        """Show the page.

        Args:
            browser: The browser.
            pending_id: The request's id.
            pending: The request.
            application: Its client.
            identifier: As typed, or as the client expects it.
            refused: Why the user was not signed in.
            asks_password: Whether the identifier was given, and leads to no provider.
        """
        connectors, link = self._flow.connectors, pending.link
        by_password = asks_password or link is not None or not connectors.have_domains
        offered = [] if link is not None else connectors.offered
        passkey = await self._challenges.begin(
            pending_id, user_id=None, action=self._pages.form_action(browser, PASSKEY, application)
        )
        register = None
        if self._flow.offers_registration and link is None:
            register = self._without_account(REGISTER, browser, pending_id)
        return page(
            "sign_in.html" if by_password else "identifier.html",
            browser.language(browser.query()),
            application=application,
            leads_elsewhere=True,
            has_script=True,
            uses_passkeys=passkey is not None,
            images=[each.logo_uri for each in offered if each.logo_uri],
            action=self._pages.form_action(browser, SIGN_IN if by_password else IDENTIFIER, application),
            form=self._pages.form_of(browser, pending_id, pending, application),
            passkey=passkey,
            forgotten=self._without_account(FORGOTTEN, browser, pending_id),
            register=register,
            identifier=identifier if link is None else link.identifier,
            connectors=offered,
            provider_action=self._pages.form_action(browser, PROVIDER, application),
            linked=None if link is None else self._name_of(link.connector_id),
            leave_action=self._pages.form_action(browser, LEAVE_LINK, application),
            **stated(refused),
        )

    def _name_of(self, connector_id: str) -> str:
        connector = self._flow.connectors.open(connector_id)
        return connector.name if connector else ""

    @staticmethod
    def _without_account(path: str, browser: Browser, pending_id: str) -> str:
        """Return the address of a page for people who cannot sign in, which leads back to this sign-in."""
        language = LANGUAGES.requested(browser.query().get("ui_locales"))
        return f"{path}?{query_of(request=pending_id, ui_locales=language)}"


def problem_of(browser: Browser) -> SignInRefused | None:
    """Return the problem that the page's address names."""
    named = browser.query().get("problem")
    problem = next((each for each in PROVIDER_PROBLEMS if each == named), None)
    return None if problem is None else SignInRefused(problem)
