"""One request of a signed-in user of one of the sites: the session, the API on the user's behalf, and the response."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import httpx2 as httpx
import msgspec
from litestar import Request, Response

from console.credentials import ClientCredentials
from console.forms import Form
from console.languages import LANGUAGES
from console.pending import PendingSignIns
from console.rendering import Pages, redirect
from console.sessions import Notice, Session, Sessions
from identity_common.http.auditing import recorded_user_agent
from identity_common.http.client_address import client_address, forwarded_for
from identity_common.pages.cookies import Cookies
from identity_common.signed_values import SignedValues
from identity_common.stores.source_limit import SourceLimit
from stead import AsyncIdentityClient, AsyncManagementClient
from stead.errors import OAuthError, SignInRequired, Unavailable
from stead.manage.lists import AsyncListing, ListPage

REFRESH: Final = "X-Refresh"
"""Header of the requests of a page that refreshes itself."""

_REFRESH_WAIT_S: Final = 12.0
_REFRESH_POLL_S: Final = 0.1

AnyRequest = Request[Any, Any, Any]
T = TypeVar("T")


class SignInNeeded(Exception):  # noqa: N818 - the name is what happened
    """No user is signed in in this browser, or no longer.

    Attributes:
        prompt: Of the sign-in that is needed; None if an earlier one in this browser will do.
        login_hint: Prefills the user name.
        acr_values: How strong the sign-in must be; empty for any.
        action: What the user does there besides; None for nothing.
        return_to: Path of the page after the sign-in; None for that which needs it.
        notice: Shown by the page after the sign-in; None for none.
    """

    prompt: str | None = None
    login_hint: str | None = None
    acr_values: tuple[str, ...] = ()
    action: str | None = None
    return_to: str | None = None
    notice: str | None = None


class RecentSignInNeeded(SignInNeeded):
    """A user is signed in, but too long ago, or too weakly, for what changes how they sign in."""

    prompt = "login"

    def __init__(self, login_hint: str | None, acr_values: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.login_hint = login_hint
        self.acr_values = acr_values


class ActionNeeded(SignInNeeded):
    """A signed-in user sets up a factor, which happens on the pages of the sign-in."""

    def __init__(self, action: str, *, login_hint: str | None, return_to: str, notice: str) -> None:
        super().__init__()
        self.action = action
        self.notice = notice
        self.login_hint = login_hint
        self.return_to = return_to


class NoSuchPage(Exception):  # noqa: N818
    """Nothing exists at this URL."""


class BeyondTheEnd(Exception):  # noqa: N818
    """The list has no page with the number in the URL: it was shortened, or the number was typed."""


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A set of pages with a sign-in of its own.

    Attributes:
        name: First part of the names of its keys in Redis.
        home: Path of its first page; all others are below.
        scopes: Requested at the sign-in, besides those that the SDK always requests.
        resource: Indicator of the API that its pages call; None for what a userinfo token admits to.
    """

    name: str
    home: str
    scopes: tuple[str, ...]
    resource: str | None

    @property
    def cookie(self) -> str:
        """The name of its cookie."""
        return f"identity-{self.name}"

    @property
    def callback(self) -> str:
        """The path that the sign-in redirects to."""
        return f"{self.home}/callback"


class Storage:
    """The storage of the SDK's client: a dict that is written to the session afterwards."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def get(self, key: str) -> str | None:
        """Return a value; None if there is none."""
        return self.values.get(key)

    def set(self, key: str, value: str) -> None:
        """Store a value."""
        self.values[key] = value

    def remove(self, key: str) -> None:
        """Remove a value."""
        self.values.pop(key, None)


class SiteContext(msgspec.Struct, frozen=True, kw_only=True):
    """What all requests to a site share.

    Attributes:
        site: The site.
        base_url: The public address.
        trusted_proxies: How many proxies append to ``X-Forwarded-For``, in front of each service.
        pending: Sign-ins that have begun.
        begun: Limits how many of them an address may have.
        marks: Sign the cookies of browsers that have had a session; see ``marked``.
        pages: Renders pages.
        http: Shared by all sites.
    """

    site: Site
    base_url: str
    trusted_proxies: int
    sessions: Sessions
    pending: PendingSignIns
    begun: SourceLimit
    marks: SignedValues
    credentials: ClientCredentials
    cookies: Cookies
    pages: Pages
    http: httpx.AsyncClient

    @property
    def home(self) -> str:
        """The URL of the first page."""
        return f"{self.base_url}{self.site.home}"

    @property
    def callback_url(self) -> str:
        """The URL that the sign-in redirects to."""
        return f"{self.base_url}{self.site.callback}"

    def forwarded(self, request: AnyRequest) -> dict[str, str]:
        """Return the headers that tell the services, for the audit trail, which browser a request is made for."""
        user_agent = recorded_user_agent(request.scope).encode("ascii", "replace").decode()
        return {
            "X-Forwarded-For": forwarded_for(request.scope, trusted_proxies=self.trusted_proxies),
            "User-Agent": user_agent.strip(),
        }

    async def revoke(self, refresh_token: str) -> None:
        """Revoke a sign-in with all its tokens (RFC 7009).

        Raises:
            NotConfigured: The console has no client any more.
            Unavailable: The service did not answer.
        """
        own = self.credentials.read(self.site.name)
        try:
            answer = await self.http.post(
                f"{self.base_url}/oidc/token/revocation",
                data={"token": refresh_token, "token_type_hint": "refresh_token"},
                auth=own,
            )
        except httpx.RequestError as error:
            raise Unavailable(f"the revocation got no response ({type(error).__name__})") from None
        if not answer.is_success:
            raise Unavailable(f"the revocation was refused with {answer.status_code}")

    def cookie(self, request: AnyRequest) -> str | None:
        """Return the cookie of the site."""
        return self.cookies.read(request.scope["headers"], self.site.cookie)

    def marked(self, cookie: str, person: str) -> str:
        """Return a cookie of a browser in which a user has been signed in, to which it belongs from then on."""
        return self.marks.sign(f"{cookie}.{person}")

    def last_person(self, request: AnyRequest) -> str | None:
        """Return the user who was signed in last in this browser; None if none was."""
        text = self.marks.verified(self.cookie(request) or "")
        return None if text is None else text.rpartition(".")[2]

    def address(self, request: AnyRequest) -> str:
        """Return the address of the browser that sent a request."""
        return client_address(request.scope, trusted_proxies=self.trusted_proxies)

    def client(self, storage: dict[str, str]) -> AsyncIdentityClient:
        """Return the OAuth client whose state is in a storage.

        Raises:
            NotConfigured: The console has no client yet.
        """
        own = self.credentials.read(self.site.name)
        return AsyncIdentityClient(
            self.base_url,
            own.client_id,
            own.client_secret,
            scopes=self.site.scopes,
            resources=(self.site.resource,) if self.site.resource else (),
            storage=Storage(storage),
            http=self.http,
        )


class SignedInRequest:
    """One request of a signed-in user.

    Attributes:
        original: The request, as the framework has it.
        session: The browser's session.
        api: The API, with the user's own token.
        is_refresh: Whether a page refreshes itself: notices wait for a page that is opened.
    """

    def __init__(self, context: SiteContext, request: AnyRequest, session: Session) -> None:
        self.original = request
        self.session = session
        self.is_refresh = is_refresh(request)
        self._context = context
        self._client = context.client(session.tokens.storage)
        self._forwarded = context.forwarded(request)
        self._has_unsaved = request.method == "POST"
        self.api = AsyncManagementClient(
            context.base_url,
            access_token=self._access_token,
            revision=session.memory.revision,
            headers=self._forwarded,
            http=context.http,
        )

    @property
    def language(self) -> str:
        """The language of the page."""
        return language_of(self.original)

    @property
    def base_url(self) -> str:
        """The public address."""
        return self._context.base_url

    @property
    def _frame(self) -> Mapping[str, Any]:
        """The values that the pages of the site have besides those of every page."""
        claims = self._client.claims()
        return {"person": claims.get("name") or claims.get("username") or claims["sub"]}

    def parameter(self, name: str) -> str:
        """Return a query parameter, stripped and without NUL; empty if it is missing."""
        return str(self.original.query_params.get(name, "")).replace("\0", "").strip()

    def page_number(self) -> int:
        """Return the page number in the URL; 1 unless it is a number of at most 9 digits."""
        text = self.parameter("page")
        return max(int(text), 1) if text.isascii() and text.isdecimal() and len(text) <= 9 else 1

    async def page_of(self, listed: AsyncListing[T]) -> ListPage[T]:
        """Return the page of a list that the URL names.

        Raises:
            BeyondTheEnd: The list is shorter.
        """
        number = self.page_number()
        found = await listed.page(str(number))
        if number > 1 and not found.items:
            raise BeyondTheEnd
        return found

    def typed(self) -> Form | None:
        """Return what was typed into this page's form before the user had to sign in; None if nothing was."""
        draft = self.session.memory.draft
        if draft is None or draft.path.partition("?")[0] != self.original.url.path:
            return None
        self.session.memory.draft = None
        self._has_unsaved = True
        self.session.memory.notices.append(Notice(draft.notice))
        return Form(draft.fields)

    async def page(self, template: str, *, area: str, status: int = 200, **values: Any) -> Response[str]:
        """Answer with a page, which shows the pending notices.

        Args:
            template: Its name.
            area: Marked in the navigation.
            status: HTTP status.
            values: For the template.
        """
        memory = self.session.memory
        notices: list[Notice] = []
        if not self.is_refresh:
            notices, memory.notices = memory.notices, []
        await self._remember(changed=bool(notices))
        return self._context.pages.render(
            template,
            self.language,
            status=status,
            area=area,
            notices=notices,
            own_id=self._client.claims()["sub"],
            csrf_token=self.session.csrf_token,
            path=self.original.url.path,
            now=int(time.time() * 1000),
            unsaved=self._has_unsaved,
            **self._frame,
            **values,
        )

    async def done(self, location: str, kind: str, *, secret: str | None = None, **values: str) -> Response[str]:
        """Redirect after a change; the next page reports it, and whether a service has not applied it yet.

        Args:
            location: Path of the next page.
            kind: Which text of ``notices.html``.
            secret: Shown there, once.
            values: Values of the text.
        """
        is_applied = await self._is_applied_everywhere()
        self.session.memory.notices.append(Notice(kind, values, secret))
        if not is_applied:
            self.session.memory.notices.append(Notice("behind"))
        await self._remember(changed=True)
        return redirect(location)

    async def open(self) -> None:
        """Make sure that there is an access token.

        Raises:
            SignInNeeded: The session has ended.
            Unavailable: The token endpoint did not answer.
        """
        await self._access_token(None)

    def admit(self, *, changes: bool) -> None:
        """Refuse a user who may not see this page, or change what it shows; a site without rights admits every user."""

    def _refused(self, refusal: OAuthError) -> Exception:
        """Return what a refusal of the token endpoint means."""
        del refusal
        return SignInNeeded()

    async def _is_applied_everywhere(self) -> bool:
        """Return whether all services that the next page depends on have applied every change of this session."""
        return True

    async def sign_out(self) -> str:
        """End the session and its tokens; return the URL at which the user can also end the sign-in.

        The URL has no ``id_token_hint``, because the browser is given no token; so the page asks for confirmation.

        Raises:
            StoreUnavailable: Redis does not answer.
            Unavailable: The token endpoint did not answer; the session goes on.
        """
        await self._context.revoke(self._client.state.signed_in().refresh_token or "")
        await self.session.end()
        here = {"client_id": self._client.state.client_id, "post_logout_redirect_uri": self._context.home}
        return f"{self._client.state.issuer}/session/end?{urlencode(here)}"

    async def _access_token(self, refused: str | None) -> str:
        """Return an access token for the API; renew it if it expires soon or was refused.

        Raises:
            SignInNeeded: The session has ended.
            Unavailable: The token endpoint did not answer.
        """
        state, resource = self._client.state, self._context.site.resource
        target = state.target_key(resource, None)
        try:
            token = state.usable_token(target)
            if token is not None and token != refused:
                return token
            return await self._renewed(target, refused)
        except SignInRequired:
            raise SignInNeeded from None
        except OAuthError as refusal:
            raise self._refused(refusal) from None

    async def _renewed(self, target: str, refused: str | None) -> str:
        """Renew the token; only once, even if several replicas handle requests of the session."""
        deadline = time.monotonic() + _REFRESH_WAIT_S
        while (holder := await self.session.lock_refresh()) is None:
            if time.monotonic() > deadline:
                raise Unavailable("another request is renewing the session's tokens")
            await asyncio.sleep(_REFRESH_POLL_S)
        try:
            if not await self.session.reload_tokens():
                raise SignInNeeded
            token = self._client.state.usable_token(target)
            if token is None or token == refused:
                self._client.state.drop_token(target)
                token = await self._client.get_access_token(self._context.site.resource)
                await self.session.save_tokens()
            return token
        finally:
            await self.session.unlock_refresh(holder)

    async def _remember(self, *, changed: bool) -> None:
        memory = self.session.memory
        if changed or memory.revision != self.api.last_revision:
            memory.revision = self.api.last_revision
            await self.session.save_memory()


def is_refresh(request: AnyRequest) -> bool:
    """Return whether a page refreshes itself, without the user."""
    return REFRESH in request.headers


def language_of(request: AnyRequest) -> str:
    """Return the language of a page that answers a request."""
    return LANGUAGES.choose(None, request.headers.get("Accept-Language"))
