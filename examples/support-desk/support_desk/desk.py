"""The actions of an agent: list the customers, act as one of them, and stop."""

from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx2 as httpx
import msgspec

from stead import (
    AsyncAccessTokenVerifier,
    AsyncIdentityClient,
    OAuthError,
    Unavailable,
    async_exchange_subject_token,
)
from support_desk import backend, orders_api
from support_desk.backend import Customer
from support_desk.orders_api import Answer, Order
from support_desk.sessions import BegunImpersonation, Impersonation, Session

_SCOPES: Final = (orders_api.READ, orders_api.WRITE)
_T = TypeVar("_T")


class Refused(Exception):  # noqa: N818 - named for the answer
    """A program refused the request; the text is for the agent.

    Attributes:
        status: HTTP status of the refusal.
    """

    def __init__(self, message: str, *, status: int) -> None:
        self.status = status
        super().__init__(message)


class SignInAgain(Exception):  # noqa: N818 - named for what to do
    """The agent must sign in again, or more strongly, before acting as a customer.

    Attributes:
        begun: What goes on after it.
    """

    def __init__(self, begun: BegunImpersonation) -> None:
        self.begun = begun
        super().__init__(f"the agent must sign in again for {begun.id}")


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """This application as a client of Stead, and the programs that it calls.

    Attributes:
        base_url: Base URL of Stead.
        client_id: Of a Traditional application with token exchange allowed.
        client_secret: One of its secrets.
        backend_url: URL of the integrator's backend.
        orders_url: URL of the Orders API.
        orders_resource: The resource indicator of the Orders API.
    """

    base_url: str
    client_id: str
    client_secret: str
    backend_url: str
    orders_url: str
    orders_resource: str

    def __repr__(self) -> str:
        return f"Application({self.client_id!r})"


class _SubjectToken(msgspec.Struct, frozen=True, rename="camel"):
    subject_token: str
    impersonation_id: str


class Desk:
    """Acts on behalf of the agent of a session."""

    def __init__(self, application: Application, http: httpx.AsyncClient) -> None:
        self._application = application
        self._http = http
        self._verifier = AsyncAccessTokenVerifier(base_url=application.base_url, audience=application.orders_resource)

    def new_client(self) -> AsyncIdentityClient:
        """Return a client for an agent who has yet to sign in."""
        return AsyncIdentityClient(
            self._application.base_url,
            self._application.client_id,
            self._application.client_secret,
            scopes=[backend.READ, backend.IMPERSONATE],
            resources=[backend.AUDIENCE],
            http=self._http,
        )

    async def customers(self, session: Session) -> list[Customer]:
        """Return the customers.

        Raises:
            Refused: The agent lacks the permission to see them.
        """
        bearer = await session.client.get_access_token(backend.AUDIENCE)
        answer = await self._send("GET", f"{self._application.backend_url}/api/customers", bearer)
        return _decode(answer, list[Customer], refusal="Your account cannot see customers.")

    async def impersonate(self, session: Session, customer: Customer, *, reason: str, ticket_id: str) -> None:
        """Let the agent act as a customer: the three steps of impersonation.

        Raises:
            Refused: The backend refused.
            SignInAgain: The policy of impersonations demands another sign-in of the agent first.
            OAuthError: The token endpoint refused.
        """
        own = await session.client.get_access_token(backend.AUDIENCE)
        await self.stop(session)  # one customer at a time; if this fails, no new impersonation has begun
        answer = await self._send(
            "POST",
            f"{self._application.backend_url}/api/request-impersonation",
            own,
            json={"userId": customer.id, "reason": reason, "ticketId": ticket_id},
        )
        issued = _decode(answer, _SubjectToken, refusal="Your account cannot act as customers.")
        session.begun = BegunImpersonation(
            id=issued.impersonation_id,
            customer=customer,
            reason=reason,
            ticket_id=ticket_id,
            subject_token=issued.subject_token,
        )
        await self.go_on(session)

    async def go_on(self, session: Session) -> None:
        """Exchange the subject token of an impersonation that has begun.

        A refusal for the sign-in of the agent does not spend it, so that this can be called again after another one.

        Raises:
            SignInAgain: The policy of impersonations demands another sign-in of the agent first.
            Refused: The subject token has expired meanwhile.
            OAuthError: The token endpoint refused for another reason.
        """
        begun, session.begun = session.begun, None
        if begun is None:
            return
        try:
            bearer = await self._exchange(begun.subject_token, await session.client.get_access_token())
        except OAuthError as error:
            if error.requires_sign_in:
                session.begun = msgspec.structs.replace(begun, acr_values=error.acr_values, max_age_s=error.max_age_s)
                raise SignInAgain(session.begun) from None
            if error.error == "invalid_request":
                raise Refused("This took too long. Choose the customer again.", status=403) from None
            raise
        token = await self._verifier.verify(bearer)
        session.impersonation = Impersonation(begun.id, begun.customer, begun.reason, begun.ticket_id, bearer, token)

    async def orders(self, session: Session, impersonation: Impersonation) -> Answer:
        """Read the customer's orders on behalf of the customer.

        Raises:
            Refused: The impersonation was ended, or the token has expired.
        """
        answer = await self._send("GET", f"{self._application.orders_url}/orders", impersonation.bearer)
        return self._of_customer(session, answer, Answer)

    async def cancel_order(self, session: Session, impersonation: Impersonation, number: str) -> None:
        """Cancel an order on behalf of the customer.

        Raises:
            Refused: The impersonation was ended, the token has expired or lacks the scope, or there is no such order.
        """
        url = f"{self._application.orders_url}/orders/{quote(number, safe='')}/cancellation"
        self._of_customer(session, await self._send("POST", url, impersonation.bearer), Order)

    async def stop(self, session: Session) -> None:
        """End the impersonation.

        This desk's Orders API follows the not-valid feed, and refuses the token within a second.

        Raises:
            Refused: The backend refused.
            httpx.HTTPError: It did not answer; the impersonation goes on.
        """
        impersonation = session.impersonation
        if impersonation is None:
            return
        own = await session.client.get_access_token(backend.AUDIENCE)
        url = f"{self._application.backend_url}/api/end-impersonation"
        answer = await self._send("POST", url, own, json={"impersonationId": impersonation.id})
        _require_success(answer, refusal="Your account can no longer act as customers.")
        session.impersonation = None

    async def _exchange(self, subject_token: str, actor_token: str) -> str:
        issued = await async_exchange_subject_token(
            self._application.base_url,
            client_id=self._application.client_id,
            client_secret=self._application.client_secret,
            subject_token=subject_token,
            actor_token=actor_token,
            resource=self._application.orders_resource,
            scope=_SCOPES,
            http=self._http,
        )
        return issued.access_token

    def _of_customer(self, session: Session, answer: httpx.Response, type_: type[_T]) -> _T:
        if answer.status_code == httpx.codes.UNAUTHORIZED:  # there is no refresh token: the agent starts again
            session.impersonation = None
            raise Refused("You no longer act as this customer: that was ended, or the time is up.", status=403)
        return _decode(answer, type_, refusal="The customer's own permissions do not allow this.")

    async def _send(self, method: str, url: str, bearer: str, *, json: object = None) -> httpx.Response:
        return await self._http.request(method, url, headers={"Authorization": f"Bearer {bearer}"}, json=json)


def _decode(answer: httpx.Response, type_: type[_T], *, refusal: str) -> _T:
    """Return the content of a successful response.

    Args:
        answer: The response of one of the other two programs.
        type_: The type of its content.
        refusal: The text for the agent if the access token lacks a scope.

    Raises:
        Refused: The program refused.
        Unavailable: The program failed.
    """
    _require_success(answer, refusal=refusal)
    return msgspec.json.decode(answer.content, type=type_)


def _require_success(answer: httpx.Response, *, refusal: str) -> None:
    if answer.is_success:
        return
    if answer.is_server_error:
        raise Unavailable(f"{answer.request.url.path} answered {answer.status_code}")
    error = msgspec.json.decode(answer.content, type=dict[str, Any])
    if error.get("error") == "insufficient_scope":
        raise Refused(refusal, status=answer.status_code)
    raise Refused(str(error.get("error_description", error.get("detail", ""))), status=answer.status_code)
