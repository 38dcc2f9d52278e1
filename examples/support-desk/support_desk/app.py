"""The web application: pages and forms; what they do is ``desk``."""

import hmac
import time
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Request, get, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import NotFoundException, PermissionDeniedException
from litestar.params import FromPath, URLEncodedBody
from litestar.response import Redirect, Template

from stead import SignInRequired
from support_desk.backend import Customer
from support_desk.desk import Desk, Refused
from support_desk.sessions import Session, Sessions
from support_desk.views import STYLE, TEMPLATES, Problems, page, protection, see_other

_Request = Request[Any, Any, Any]


class ImpersonationForm(msgspec.Struct, frozen=True):
    """What the agent has filled in; the backend judges it."""

    reason: str = ""
    ticket: str = ""


@get("/")
async def show_customers(
    request: _Request, sessions: NamedDependency[Sessions], desk: NamedDependency[Desk]
) -> Template | Redirect:
    """Show the customers to an agent, and to everybody else where to sign in."""
    session = sessions.signed_in(request)
    if session is None:
        return page("welcome.html")
    if session.impersonation is not None:
        return see_other("/customer")
    return page("customers.html", session, customers=await desk.customers(session))


@get("/sign-in")
async def sign_in(request: _Request, sessions: NamedDependency[Sessions], desk_url: NamedDependency[str]) -> Redirect:
    """Send the browser to the identity service."""
    session, cookies = sessions.find(request), []
    if session is None:
        session, cookie = sessions.begin()
        cookies = [cookie]
    return see_other(session.client.sign_in_url(f"{desk_url}/callback"), cookies=cookies)


@get("/callback")
async def come_back(request: _Request, sessions: NamedDependency[Sessions]) -> Redirect:
    """Take the answer that the browser brings, and begin a session under another id."""
    session = sessions.find(request)
    if session is None:
        raise SignInRequired("unknown_state")
    await session.client.handle_callback(str(request.url))
    sessions.end(request)
    _, cookie = sessions.begin(session.client)
    return see_other("/", cookies=[cookie])


@post("/sign-out")
async def sign_out(
    request: _Request,
    session: NamedDependency[Session],
    sessions: NamedDependency[Sessions],
    desk: NamedDependency[Desk],
    desk_url: NamedDependency[str],
) -> Redirect:
    """End everything, here and at the identity service."""
    await desk.stop(session)
    return see_other(session.client.sign_out_url(f"{desk_url}/"), cookies=[sessions.end(request)])


@get("/customers/{customer_id:str}")
async def ask_why(
    customer_id: FromPath[str], session: NamedDependency[Session], desk: NamedDependency[Desk]
) -> Template | Redirect:
    """Ask for the reason and the ticket before the agent acts as a customer."""
    customer = await _customer(session, desk, customer_id)
    return page("reason.html", session, customer=customer, form=ImpersonationForm(), problem="")


@post("/customers/{customer_id:str}/impersonation")
async def impersonate(
    customer_id: FromPath[str],
    data: URLEncodedBody[ImpersonationForm],
    session: NamedDependency[Session],
    desk: NamedDependency[Desk],
) -> Template | Redirect:
    """Act as a customer from now on."""
    customer = await _customer(session, desk, customer_id)
    try:
        await desk.impersonate(session, customer, reason=data.reason, ticket_id=data.ticket)
    except Refused as refused:
        return page("reason.html", session, status=refused.status, customer=customer, form=data, problem=str(refused))
    return see_other("/customer")


@get("/customer")
async def show_orders(session: NamedDependency[Session], desk: NamedDependency[Desk]) -> Template | Redirect:
    """Show the orders of the customer whom the agent acts as, and whose token that is."""
    impersonation = session.impersonation
    if impersonation is None:
        return see_other("/")
    answer = await desk.orders(session, impersonation)
    minutes = max(0, round((impersonation.token.expires_at - time.time()) / 60))
    return page("customer.html", session, answer=answer, token=impersonation.token, minutes=minutes)


@post("/customer/orders/{number:str}/cancellation")
async def cancel_order(
    number: FromPath[str], session: NamedDependency[Session], desk: NamedDependency[Desk]
) -> Redirect:
    """Cancel an order in the customer's name."""
    if session.impersonation is not None:
        await desk.cancel_order(session, session.impersonation, number)
    return see_other("/customer")


@post("/stop")
async def stop(session: NamedDependency[Session], desk: NamedDependency[Desk]) -> Redirect:
    """Act as nobody else any more."""
    await desk.stop(session)
    return see_other("/")


@get("/style.css", media_type=MediaType.CSS)
async def style() -> bytes:
    """Return the stylesheet."""
    return STYLE


def create_app(desk: Desk, *, desk_url: str, identity_url: str) -> Litestar:
    """Return the application.

    Args:
        desk: What it does.
        desk_url: Where browsers find it.
        identity_url: Where the identity service is.
    """
    sessions = Sessions(desk.new_client, secure=desk_url.startswith("https:"))

    def signed_in(request: _Request) -> Session:
        session = sessions.signed_in(request)
        if session is None:
            raise SignInRequired("not_signed_in")
        return session

    async def require_own_form(request: _Request) -> None:
        """Let no form through that does not come from a page of this session (CSRF)."""
        if request.method == "POST":
            sent = str((await request.form()).get("csrf_token", ""))
            if not hmac.compare_digest(sent.encode(), signed_in(request).csrf_token.encode()):
                raise PermissionDeniedException("This form is not from a page of yours, or the page is too old.")

    return Litestar(
        [
            *(show_customers, sign_in, come_back, sign_out, ask_why, impersonate),
            *(show_orders, cancel_order, stop, style),
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
    raise NotFoundException("There is no such customer.")
