"""``/api/configs/oidc/private-keys``: the signing keys without their private parts, for the Management API."""

import msgspec
from litestar import Controller, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from identity_common.access.management_api import require_management
from identity_common.failures import Conflict, missing_by_id
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import documented
from token_service.tokens.keys import KeyStatus, NextKeyTooYoungError, SigningKeyInUseError, SigningKeys, StoredKey
from token_service.tokens.signing import SigningAlgorithm


class PrivateKeyView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A signing key without its private part.

    Attributes:
        tenant_id: Id of the tenant.
        id: Its ``kid``.
        created_at: Milliseconds since the epoch.
        signing_key_algorithm: ``alg`` of the tokens that it signs (RFC 7518).
        status: ``Next`` is published and signs after the next rotation; ``Current`` signs; ``Previous`` no longer
            signs.
    """

    tenant_id: str
    id: str
    created_at: int
    signing_key_algorithm: SigningAlgorithm
    status: KeyStatus


class Rotation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Options of a rotation.

    Attributes:
        signing_key_algorithm: Of the new Next; the configured one by default.
        emergency: Set it if the current key has leaked: it is retired at once, even if the next key is young.
    """

    signing_key_algorithm: SigningAlgorithm | None = None
    emergency: bool = False


class PrivateKeyController(Controller):
    """Lists, rotates and deletes signing keys."""

    path = "/api/configs/oidc/private-keys"
    tags = ["Signing keys"]  # noqa: RUF012 - the framework's way
    guards = [require_management]  # noqa: RUF012 - the framework's way

    @get("/", operation_id="ListPrivateKeys", summary="List the signing keys, newest first")
    async def list_keys(
        self, keys: NamedDependency[SigningKeys], tenant_id: NamedDependency[str]
    ) -> list[PrivateKeyView]:
        """Return every key with its status."""
        return [_view(key, tenant_id) for key in await keys.stored()]

    @post(
        "/rotate",
        operation_id="RotatePrivateKeys",
        summary="Make the next key the current one",
        status_code=200,
        opt=documented(body=Rotation, body_required=False),
    )
    async def rotate(
        self, request: JsonRequest, keys: NamedDependency[SigningKeys], tenant_id: NamedDependency[str]
    ) -> list[PrivateKeyView]:
        """Return all keys after the rotation.

        The current key becomes the previous one and stays published until its last token has expired. With `emergency`,
        it is deleted instead, and every service refuses the tokens that it has signed from then on. Verifiers elsewhere
        refuse them when they reload the keys. After a 503, list the keys before trying again: another emergency
        rotation would retire the new current key.
        """
        options = await request.options_as(Rotation)
        try:
            rotated = await keys.rotate(options.signing_key_algorithm, emergency=options.emergency)
        except NextKeyTooYoungError:
            message = "Verifiers may not know the next key yet; wait until it has been published for long enough."
            raise Conflict("oidc.next_key_too_young", message) from None
        return [_view(key, tenant_id) for key in rotated]

    @delete(
        "/{key_id:str}",
        operation_id="DeletePrivateKey",
        summary="Delete a signing key that is not the current one",
        opt=documented(refuses=(422,)),
    )
    async def delete_key(self, key_id: FromPath[str], keys: NamedDependency[SigningKeys]) -> None:
        """Delete a key; every service refuses the tokens that it has signed from then on.

        Verifiers elsewhere refuse them when they reload the keys.

        A deleted next key is replaced by a new one, which can become current once it has been published for long
        enough.
        """
        try:
            found = await keys.delete(key_id)
        except SigningKeyInUseError:
            raise Conflict("oidc.key_in_use", "The current key cannot be deleted; rotate first.") from None
        if not found:
            raise missing_by_id("entity.not_found")


def _view(key: StoredKey, tenant_id: str) -> PrivateKeyView:
    return PrivateKeyView(
        tenant_id=tenant_id,
        id=key.kid,
        created_at=key.created_at,
        signing_key_algorithm=key.algorithm,
        status=key.status,
    )
