"""``POST /api/subject-tokens``: a hot path."""

from typing import Final

from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope

from identity_common.access.management_api import UnrevokedTokens, recognize
from identity_common.http.auditing import recorded_user_agent
from identity_common.http.client_address import client_address
from identity_common.http.json_body import read_body
from identity_common.http.openapi.declarations import Content, Documented, Operation
from identity_common.http.query_parameters import require_declared
from identity_common.http.raw_routes import Posted, posted
from identity_common.rights.operations import REQUIREMENTS
from management_service.authentication import Authentication
from management_service.subject_tokens.caller import CallerCheck
from management_service.subject_tokens.rules import SubjectTokenCreation
from management_service.subject_tokens.service import MintedSubjectToken, SubjectTokens
from management_service.subject_tokens.store import RequestOrigin

PATH: Final = "/api/subject-tokens"

_OPERATION: Final = Operation(
    method="POST",
    operation_id="CreateSubjectToken",
    summary="Mint a subject token",
    description="Mint a one-time token that stands for a user until an application exchanges it.",
    tags=("Subject tokens",),
    status=201,
    body=Content(SubjectTokenCreation),
    answer=Content(MintedSubjectToken),
    more=Documented(refuses=(404,), headers=("Cache-Control", "Impersonation-Id")),
)


_NEEDED: Final = REQUIREMENTS[_OPERATION.operation_id]


def subject_token_route(
    subject_tokens: SubjectTokens, tokens: UnrevokedTokens, authentication: Authentication, *, trusted_proxies: int
) -> ASGIRouteHandler:
    """Return the route."""

    async def mint(scope: Scope, receive: Receive) -> Posted:
        token = await recognize(scope, tokens, _NEEDED)
        async with CallerCheck(tokens, authentication, token) as check:
            if scope["query_string"]:
                require_declared(scope["query_string"], _OPERATION.more)
            creation = await read_body(scope, receive, SubjectTokenCreation)
            origin = RequestOrigin(client_address(scope, trusted_proxies=trusted_proxies), recorded_user_agent(scope))
            minted, impersonation_id = await subject_tokens.mint(creation, check, origin)
        return Posted(minted, {"Impersonation-Id": impersonation_id})

    return posted(PATH, mint, headers={"Cache-Control": "no-store"}, operation=_OPERATION)
