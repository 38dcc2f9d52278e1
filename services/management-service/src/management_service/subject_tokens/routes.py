"""``POST /api/subject-tokens``: a hot path."""

from typing import Final

from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope

from identity_common.access.management_api import SCOPE_ALL, SCOPE_SUBJECT_TOKENS
from identity_common.http.api_errors import ApiError
from identity_common.http.json_body import read_body
from identity_common.http.openapi import Documented, Operation
from identity_common.http.raw_routes import posted
from management_service.authentication import Authentication
from management_service.subject_tokens.rules import SubjectTokenCreation
from management_service.subject_tokens.service import MintedSubjectToken, SubjectTokens

PATH: Final = "/api/subject-tokens"

_SCOPES: Final = frozenset({SCOPE_ALL, SCOPE_SUBJECT_TOKENS})
_OPERATION: Final = Operation(
    method="POST",
    operation_id="CreateSubjectToken",
    summary="Mint a subject token",
    description="Mint a one-time token that stands for a user until an application exchanges it.",
    tags=("Subject tokens",),
    status=201,
    body=SubjectTokenCreation,
    answer=MintedSubjectToken,
    more=Documented(refuses=(404,), headers=("Cache-Control",)),
)


def subject_token_route(authentication: Authentication, subject_tokens: SubjectTokens) -> ASGIRouteHandler:
    """Return the route."""

    async def mint(scope: Scope, receive: Receive) -> MintedSubjectToken:
        caller = await authentication.recognize(scope, one_of=_SCOPES)
        try:
            wish = await read_body(scope, receive, SubjectTokenCreation)
        except ApiError:
            # Minting judges the caller as far as that takes a store, and a bad body never gets there: 401 goes first.
            await subject_tokens.require_good_caller(caller)
            raise
        return await subject_tokens.mint(caller, wish)

    return posted(PATH, mint, headers={"Cache-Control": "no-store"}, operation=_OPERATION)
