"""The page of a link of an invitation to an organization, which accepts it for the account with the invited address.

It works signed in or not. The account that joins is always the one with the invited address, which the page names: the
link shows that its reader receives mail there. One that is signed in here and has another address does not join.
"""

from typing import Final

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler

from identity_common.wire.account_links import InvitationFound, Joined, JoinOrganization, ReadInvitation, Refused
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.link_pages import LinkPages, visitor
from token_service.sign_in.pages.browser import Browser
from token_service.sign_in.pages.consent import identifier_of
from token_service.sign_in.pages.cookies import INVITATION
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest
from token_service.sign_in.pages.views import page
from token_service.sign_in.steps import SignedIn

_INVITATION: Final = "/sign-in/invitation"


class InvitationPages:
    """Accepts invitations, by a form: a link is opened by programs that scan mails, too.

    Args:
        pages: What the pages of links have in common.
        flow: Knows who is signed in.
    """

    def __init__(self, pages: LinkPages, flow: SignInFlow) -> None:
        self._pages = pages
        self._links = pages.links
        self._flow = flow

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(_INVITATION, include_in_schema=False, exception_handlers=PROBLEMS)
        async def show(request: AnyRequest) -> Response[str]:
            browser = self._pages.browser(request)
            opened = self._pages.opened(browser, _INVITATION, INVITATION)
            return opened if isinstance(opened, Response) else await self._show(browser, opened)

        @post(_INVITATION, include_in_schema=False, exception_handlers=PROBLEMS, status_code=200)
        async def accept(request: AnyRequest) -> Response[str]:
            return await self._accept(self._pages.browser(request))

        return [show, accept]

    async def _show(
        self, browser: Browser, link: str | None, *, name: str = "", problem: str | None = None
    ) -> Response[str]:
        """Show the form; this changes nothing."""
        if link is None:
            return self._pages.not_valid(browser)
        who = await self._signed_in(browser)
        found = await self._links.ask(ReadInvitation(link=link, user_id=_id_of(who)), InvitationFound)
        if isinstance(found, Refused):
            return self._refused(browser, found)
        return page(
            "invitation.html",
            browser.language(browser.query()),
            has_script=found.account == "new",
            action=_INVITATION,
            link=link,
            found=found,
            other=_other(who, found.address),
            name=name,
            problem=problem,
        )

    async def _accept(self, browser: Browser) -> Response[str]:
        form = await self._pages.form(browser)
        link, name, password = (form.get(field) or "" for field in ("link", "name", "password"))
        if password != (form.get("repeated") or ""):
            return await self._show(browser, link, name=name, problem="mismatch")
        who = await self._signed_in(browser)
        question = JoinOrganization(
            link=link, user_id=_id_of(who), name=name, password=password, visitor=visitor(browser)
        )
        joined = await self._links.ask(question, Joined)
        if isinstance(joined, Refused):
            return await self._show(browser, link, name=name, problem=joined.reason)
        language, organization = browser.language(browser.query()), joined.organization
        shown = page("invitation_accepted.html", language, organization=organization, sign_in=None)
        shown.cookies.append(self._pages.cookies.clear(INVITATION))
        return shown

    async def _signed_in(self, browser: Browser) -> SignedIn | None:
        """Return the user signed in at this browser, as strongly as each sign-in must be: not by half of it."""
        who = await self._flow.signed_in(browser.session_cookie)
        return who if who is not None and self._flow.is_usual(who) else None

    def _refused(self, browser: Browser, refused: Refused) -> Response[str]:
        if refused.reason == "account-not-accepted":
            return page("invitation_refused.html", browser.language(browser.query()), status=403)
        return self._pages.not_valid(browser)


def _id_of(who: SignedIn | None) -> str | None:
    return who.person.user.id if who else None


def _other(who: SignedIn | None, address: str) -> str | None:
    """Return the name of the account that is signed in, if it has another address."""
    if who is None or (who.person.user.primary_email or "").casefold() == address.casefold():
        return None
    return identifier_of(who.person.user)
