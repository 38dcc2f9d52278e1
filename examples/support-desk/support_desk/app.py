"""The web application: pages and forms. Their actions are in ``desk``."""

import contextlib
import hmac
from typing import Any

import httpx2 as httpx
import msgspec
from litestar import Litestar, MediaType, Request, get, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import NotFoundException, PermissionDeniedException
from litestar.params import FromPath, URLEncodedBody
from litestar.response import Redirect, Template

from stead import IdentityError, SignInRequired
from support_desk.backend import Customer
from support_desk.desk import Desk, Refused
from support_desk.sessions import Session, Sessions
from support_desk.views import COUNTDOWN, STYLE, TEMPLATES, Problems, page, protection, see_other

_Request = Request[Any, Any, Any]


class ImpersonationForm(msgspec.Struct, frozen=True):
    """The form of the agent; the backend validates it."""

    reason: str = ""
    ticket: str = ""


@get("/")
async def show_customers(
    request: _Request, sessions: NamedDependency[Sessions], desk: NamedDependency[Desk]
) -> Template | Redirect:
    """Show the customers to a signed-in agent, or else the sign-in link."""
    session = sessions.signed_in(request)
    if session is None:
        return page("welcome.html")
    if session.impersonation is not None:
        return see_other("/customer")
    return page("customers.html", session, customers=await desk.customers(session))


@get("/sign-in")
async def sign_in(request: _Request, sessions: NamedDependency[Sessions], desk_url: NamedDependency[str]) -> Redirect:
    """Redirect the browser to the sign-in: one that is recent and strong enough for what has begun."""
    session, cookies = sessions.find(request), []
    if session is None:
        session, cookie = sessions.begin()
        cookies = [cookie]
    begun = session.begun
    acr_values, max_age = ((), None) if begun is None else (begun.acr_values, begun.max_age_s)
    url = session.client.sign_in_url(f"{desk_url}/callback", acr_values=acr_values, max_age=max_age)
    return see_other(url, cookies=cookies)


@get("/callback")
async def callback(request: _Request, sessions: NamedDependency[Sessions]) -> Redirect:
    """Handle the authorization response, and start a session with a new id.

    The agent who began an impersonation goes on with it; another user does not.
    """
    session = sessions.find(request)
    if session is None:
        raise SignInRequired("unknown_state")
    before = session.client.claims()["sub"] if session.client.is_signed_in() else None
    claims = await session.client.handle_callback(str(request.url))
    sessions.end(request)
    renewed, cookie = sessions.begin(session.client)
    if claims["sub"] == before:
        renewed.begun = session.begun
    return see_other("/" if renewed.begun is None else "/customer", cookies=[cookie])


@post("/sign-out")
async def sign_out(
    request: _Request,
    session: NamedDependency[Session],
    sessions: NamedDependency[Sessions],
    desk: NamedDependency[Desk],
    desk_url: NamedDependency[str],
) -> Redirect:
    """End the session, here and at Stead."""
    with contextlib.suppress(httpx.HTTPError, IdentityError, Refused):  # then the impersonation expires soon
        await desk.stop(session)
    return see_other(session.client.sign_out_url(f"{desk_url}/"), cookies=[sessions.end(request)])


@get("/customers/{customer_id:str}")
async def show_form(
    customer_id: FromPath[str], session: NamedDependency[Session], desk: NamedDependency[Desk]
) -> Template | Redirect:
    """Ask for the reason and the ticket of an impersonation."""
    customer = await _customer(session, desk, customer_id)
    return page("reason.html", session, customer=customer, form=ImpersonationForm(), problem="")


@post("/customers/{customer_id:str}/impersonation")
async def impersonate(
    customer_id: FromPath[str],
    data: URLEncodedBody[ImpersonationForm],
    session: NamedDependency[Session],
    desk: NamedDependency[Desk],
) -> Template | Redirect:
    """Start acting as a customer."""
    customer = await _customer(session, desk, customer_id)
    try:
        await desk.impersonate(session, customer, reason=data.reason, ticket_id=data.ticket)
    except Refused as refused:
        return page("reason.html", session, status=refused.status, customer=customer, form=data, problem=str(refused))
    return see_other("/customer")


@get("/customer")
async def show_orders(session: NamedDependency[Session], desk: NamedDependency[Desk]) -> Template | Redirect:
    """Show the orders of the impersonated customer, and the claims of the token."""
    await desk.go_on(session)
    impersonation = session.impersonation
    if impersonation is None:
        return see_other("/")
    answer = await desk.orders(session, impersonation)
    return page("customer.html", session, answer=answer, token=impersonation.token)


@post("/customer/orders/{number:str}/cancellation")
async def cancel_order(
    number: FromPath[str], session: NamedDependency[Session], desk: NamedDependency[Desk]
) -> Redirect:
    """Cancel an order on behalf of the customer."""
    if session.impersonation is not None:
        await desk.cancel_order(session, session.impersonation, number)
    return see_other("/customer")


@post("/stop")
async def stop(session: NamedDependency[Session], desk: NamedDependency[Desk]) -> Redirect:
    """Stop acting as a customer."""
    await desk.stop(session)
    return see_other("/")


@get("/style.css", media_type=MediaType.CSS)
async def style() -> bytes:
    """Return the stylesheet."""
    return STYLE


@get("/countdown.js", media_type="text/javascript")
async def countdown() -> bytes:
    """Return the script that counts the time down."""
    return COUNTDOWN


def create_app(desk: Desk, *, desk_url: str, identity_url: str) -> Litestar:
    """Return the application.

    Args:
        desk: The actions.
        desk_url: Its address for browsers.
        identity_url: The address of Stead.
    """
    sessions = Sessions(desk.new_client, secure=desk_url.startswith("https:"))

    def signed_in(request: _Request) -> Session:
        session = sessions.signed_in(request)
        if session is None:
            raise SignInRequired("not_signed_in")
        return session

    async def require_own_form(request: _Request) -> None:
        """Refuse forms that do not come from a page of this session (CSRF)."""
        if request.method == "POST":
            sent = str((await request.form()).get("csrf_token", ""))
            if not hmac.compare_digest(sent.encode(), signed_in(request).csrf_token.encode()):
                raise PermissionDeniedException("This form does not belong to your session, or the page is too old.")

    return Litestar(
        [
            *(show_customers, sign_in, callback, sign_out, show_form, impersonate),
            *(show_orders, cancel_order, stop, style, countdown),
        ],
        dependencies={
            "sessions": Provide(lambda: sessions, sync_to_thread=False),
            "session": Provide(signed_in, sync_to_thread=False),
            "desk": Provide(lambda: desk, sync_to_thread=False),
            "desk_url": Provide(lambda: desk_url, sync_to_thread=False),
        },
        before_request=require_own_form,
        before_send=[protection(identity_url)],
        exception_handlers=Problems(sessions).handlers(),
        template_config=TEMPLATES,
        openapi_config=None,
        logging_config=None,
    )


async def _customer(session: Session, desk: Desk, customer_id: str) -> Customer:
    for customer in await desk.customers(session):
        if customer.id == customer_id:
            return customer
    raise NotFoundException("No such customer.")
