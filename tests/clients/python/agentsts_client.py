"""agentsts-core as an agent that exchanges a subject token: by itself, then with an actor token."""

import asyncio
import os

from agentsts.core.client import STSClient, STSConfig, TokenExchangeError, TokenType
from conversation import seen

SETTING = os.environ
CONFIG = STSConfig(well_known_uri=f"{SETTING['ISSUER']}/.well-known/openid-configuration")


async def main() -> None:
    """Exchange both tokens, and one of them twice."""
    requested = {
        "subject_token_type": TokenType.ACCESS_TOKEN,
        "resource": SETTING["RESOURCE"],
        "scope": "read:things",
        "additional_parameters": {"client_id": SETTING["CLIENT_ID"]},
    }
    async with STSClient(CONFIG) as client:
        impersonated = await client.impersonate(subject_token=SETTING["SUBJECT_TOKEN"], **requested)
        delegated = await client.delegate(
            subject_token=SETTING["OTHER_SUBJECT_TOKEN"],
            actor_token=SETTING["ACTOR_TOKEN"],
            actor_token_type=TokenType.ACCESS_TOKEN,
            **requested,
        )
        try:
            await client.impersonate(subject_token=SETTING["SUBJECT_TOKEN"], **requested)
        except TokenExchangeError as refusal:
            refused = refusal.error
    seen(
        impersonated=impersonated.access_token,
        delegated=delegated.access_token,
        scope=delegated.scope,
        type=delegated.issued_token_type.value,
        refused=refused,
    )


asyncio.run(main())
