"""``/api/impersonations``."""

from typing import Final

from litestar import Controller, Response, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, JSONBody

from identity_common.access.management_api import Caller, admitted_caller, require_management, require_subject_tokens
from identity_common.http.openapi import documented
from management_service.impersonations.rules import EndedImpersonations, selected_party
from management_service.impersonations.service import Impersonations

_DEPENDENCIES: Final = {"caller": Provide(admitted_caller, sync_to_thread=False)}


class ImpersonationController(Controller):
    """Ends impersonations one by one: for callers that may mint subject tokens, too."""

    path = "/impersonations"
    tags = ("Impersonations",)
    guards = (require_subject_tokens,)
    dependencies = _DEPENDENCIES

    @post(
        "/{impersonation_id:str}/end",
        operation_id="EndImpersonation",
        summary="End an impersonation",
        status_code=204,
        opt=documented(refuses=(404,)),
    )
    async def end(
        self,
        impersonation_id: FromPath[str],
        caller: NamedDependency[Caller],
        impersonations: NamedDependency[Impersonations],
    ) -> Response[None]:
        """End an impersonation by its id (Impersonation-Id): its subject token, and every token that was got from it.

        With the scope subject-tokens, only those that this application asked for, for a day. It may be ended again.
        """
        return Response(None, headers=await impersonations.end(caller, impersonation_id))


class ImpersonationsController(Controller):
    """Ends impersonations of a party."""

    path = "/impersonations"
    tags = ("Impersonations",)
    guards = (require_management,)

    @post("/end", operation_id="EndImpersonations", summary="End impersonations", status_code=204)
    async def end_all(
        self, data: JSONBody[EndedImpersonations], impersonations: NamedDependency[Impersonations]
    ) -> Response[None]:
        """End all impersonations of a user, by an actor, by a client, within an organization, or all there are.

        Ends those that have begun by now; later ones are not affected.
        """
        return Response(None, headers=await impersonations.end_all(selected_party(data)))
