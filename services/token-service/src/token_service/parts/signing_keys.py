"""The signing keys, and the longest lifetime of the tokens that they sign."""

from collections.abc import Callable
from typing import cast

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.sealing import SealingKeys
from token_service.directory import InMemoryDirectory
from token_service.grants.targets import ORGANIZATION_TOKEN_TTL_S, USERINFO_TOKEN_TTL_S
from token_service.presented_tokens.revocations import Revocations
from token_service.settings import Settings
from token_service.tokens.keys import SigningKeys
from token_service.tokens.signing import SigningAlgorithm


def signing_keys(
    settings: Settings, engine: AsyncEngine, in_memory: InMemoryDirectory, revocations: Revocations
) -> SigningKeys:
    """Return the keys, each kept until the last token that it may have signed has expired."""
    return SigningKeys(
        engine,
        SealingKeys(settings.key_encryption_keys),
        revocations,
        tenant_id=settings.tenant_id,
        algorithm=cast("SigningAlgorithm", settings.signing_algorithm),
        longest_lifetime_s=longest_lifetime_s(in_memory),
    )


def longest_lifetime_s(in_memory: InMemoryDirectory) -> Callable[[], int]:
    """Return a function for the longest lifetime of an access token, seconds; it changes with the resources."""
    return lambda: max(USERINFO_TOKEN_TTL_S, ORGANIZATION_TOKEN_TTL_S, in_memory.longest_lifetime_s)
