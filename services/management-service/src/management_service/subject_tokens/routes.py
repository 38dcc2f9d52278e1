"""``POST /api/subject-tokens``."""

from typing import Final

from litestar import Response, post
from litestar.di import NamedDependency
from litestar.exceptions import HTTPException

from identity_common.api_errors import ApiError
from identity_common.json_body import JsonRequest
from identity_common.openapi import documented
from management_service.subject_tokens.rules import SubjectTokenCreation
from management_service.subject_tokens.service import MintedSubjectToken, SubjectTokens

_NO_STORE: Final = {"Cache-Control": "no-store"}


@post(
    "/subject-tokens",
    operation_id="CreateSubjectToken",
    summary="Mint a subject token",
    tags=["Subject tokens"],
    opt=documented(body=SubjectTokenCreation, refuses=(404,), headers=("Cache-Control",)),
)
async def create_subject_token(
    request: JsonRequest, subject_tokens: NamedDependency[SubjectTokens]
) -> Response[MintedSubjectToken]:
    """Mint a one-time token that stands for a user until an application exchanges it."""
    try:
        wish = await request.body_as(SubjectTokenCreation)
    except (ApiError, HTTPException):
        # Minting judges the caller as far as that takes a store, and a bad body never gets there: 401 goes first.
        await subject_tokens.require_good_caller(request.auth)
        raise
    return Response(await subject_tokens.mint(request.auth, wish), headers=_NO_STORE)
