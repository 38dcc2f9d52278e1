"""``/api/configs/oidc/not-valid-keys``: the keys of the not-valid feed without their private parts."""

import msgspec
from litestar import Controller, get, post
from litestar.di import NamedDependency

from identity_common.access.management_api import require_management
from identity_common.failures import Conflict
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import documented
from token_service.not_valid import FeedKeys, FeedKeyStatus, NextFeedKeyWaitsError, StoredFeedKey


class NotValidKeyView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A key of the not-valid feed without its private part.

    Attributes:
        tenant_id: Id of the tenant.
        id: Its ``kid``.
        created_at: Milliseconds since the epoch.
        status: ``Next`` is published and will sign; ``Current`` signs; ``Previous`` no longer signs, and is deleted
            within an hour.
        signs_from: When ``Next`` becomes ``Current``, milliseconds since the epoch; absent for the others.
    """

    tenant_id: str
    id: str
    created_at: int
    status: FeedKeyStatus
    signs_from: int | None = None


class NotValidKeyRotation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Options of a rotation.

    Attributes:
        emergency: Set it if a key has leaked: all other keys are deleted, and the new one signs at once.
    """

    emergency: bool = False


class NotValidKeyController(Controller):
    """Lists and rotates the keys of the not-valid feed."""

    path = "/api/configs/oidc/not-valid-keys"
    tags = ["Signing keys"]  # noqa: RUF012 - the framework's way
    guards = [require_management]  # noqa: RUF012 - the framework's way

    @get("/", operation_id="ListNotValidKeys", summary="List the keys of the not-valid feed, newest first")
    async def list_keys(
        self, feed_keys: NamedDependency[FeedKeys], tenant_id: NamedDependency[str]
    ) -> list[NotValidKeyView]:
        """Return every key with its status."""
        return [_view(key, tenant_id) for key in await feed_keys.stored()]

    @post(
        "/rotate",
        operation_id="RotateNotValidKeys",
        summary="Replace the key of the not-valid feed",
        status_code=200,
        opt=documented(body=NotValidKeyRotation, body_required=False),
    )
    async def rotate(
        self, request: JsonRequest, feed_keys: NamedDependency[FeedKeys], tenant_id: NamedDependency[str]
    ) -> list[NotValidKeyView]:
        """Return all keys after the rotation.

        The new key is published at once and signs from `signsFrom` on, when verifiers must have read it; the feed
        continues without a gap. With `emergency`, all other keys are deleted and the new one signs at once; verifiers
        that follow the feed then reload its keys. No token becomes invalid. After a 503, list the keys before trying
        again.
        """
        options = await request.options_as(NotValidKeyRotation)
        try:
            rotated = await feed_keys.rotate(emergency=options.emergency)
        except NextFeedKeyWaitsError:
            message = "The key of the last rotation does not sign yet; wait until it does."
            raise Conflict("oidc.next_key_too_young", message) from None
        return [_view(key, tenant_id) for key in rotated]


def _view(key: StoredFeedKey, tenant_id: str) -> NotValidKeyView:
    return NotValidKeyView(
        tenant_id=tenant_id,
        id=key.kid,
        created_at=key.created_at,
        status=key.status,
        signs_from=key.signs_from if key.status == "Next" else None,
    )
