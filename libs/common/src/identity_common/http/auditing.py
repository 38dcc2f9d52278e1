"""Notes the current request for the audit trail: once a guard has admitted it, and once its body is decoded."""

from collections.abc import Mapping
from typing import Final

import msgspec
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from identity_common.audited_request import AUDITED_REQUEST, AuditedRequest
from identity_common.http.request_headers import header_values

RECORDED_PARAMETERS: Final = frozenset(
    {
        *("user_id", "application_id", "resource_id", "scope_id", "role_id"),
        *("organization_id", "organization_role_id", "permission_id", "impersonation_id", "key_id"),
        *("session_id", "factor_id", "organization_invitation_id", "sso_connector_id", "group_id"),
    }
)
"""Path parameters that hold ids. Others hold names, which may be personal: they are not recorded."""

_MAX_USER_AGENT: Final = 256
_MAX_ID: Final = 128
_MAX_GIVEN: Final = 100
_OF_IDS: Final = ("Id", "Ids")
_NO_ID_OF_OURS: Final = frozenset({"externalId"})
"""May be personal, such as an e-mail address: the trail would keep it beyond an erasure."""


def audit_request(
    scope: Scope,
    handler: BaseRouteHandler,
    *,
    application_id: str | None,
    user_id: str | None,
    token_id: str,
    address: str,
) -> None:
    """Store the current request for the audit trail."""
    parameters: Mapping[str, object] = scope.get("path_params", {})
    request = AuditedRequest(
        operation=str(getattr(handler, "operation_id", None) or handler.handler_name),
        application_id=application_id,
        user_id=user_id,
        token_id=token_id,
        address=_printable(address)[:_MAX_ID],
        user_agent=recorded_user_agent(scope),
        ids={name: str(value)[:_MAX_ID] for name, value in parameters.items() if name in RECORDED_PARAMETERS},
    )
    AUDITED_REQUEST.set(request)


def recorded_user_agent(scope: Scope) -> str:
    """Return the ``User-Agent`` of a request for an entry: printable, at most 256 characters."""
    return _printable(" ".join(header_values(scope, b"user-agent")))[:_MAX_USER_AGENT]


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(filter(str.isprintable, text))


def audit_body(value: object, kind: object) -> None:
    """Record the names of the members of a decoded body, and the ids in it.

    Nothing is recorded of a body that is not a struct: its members may be free-form.
    """
    request = AUDITED_REQUEST.get()
    if request is not None and isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        request.members = tuple(sorted(value))
        named = (name for name in request.members if name.endswith(_OF_IDS) and name not in _NO_ID_OF_OURS)
        request.given = {name: ids for name in named if (ids := _ids(value[name]))}


def _ids(value: object) -> tuple[str, ...]:
    """Return the ids in a member, at most the first 100."""
    given = value if isinstance(value, list) else [value]
    return tuple(each[:_MAX_ID] for each in given[:_MAX_GIVEN] if isinstance(each, str))
