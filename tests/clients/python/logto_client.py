"""Logto's SDK for Python: sign-in, tokens for a resource and an organization, refresh, sign-out."""

import asyncio
import os

from conversation import seen, visit
from logto import LogtoClient, LogtoConfig, Storage, UserInfoScope

SETTING = os.environ


class Session(dict[str, str | None], Storage):
    """The session of one user."""

    def set(self, key: str, value: str | None) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


async def main() -> None:
    session = Session()
    client = LogtoClient(
        LogtoConfig(
            endpoint=SETTING["BASE_URL"],
            appId=SETTING["CLIENT_ID"],
            appSecret=SETTING["CLIENT_SECRET"],
            resources=[SETTING["RESOURCE"]],
            scopes=[UserInfoScope.email, UserInfoScope.organizations, "read:things", SETTING["PERMISSION"]],
        ),
        session,
    )
    await client.handleSignInCallback(visit(await client.signIn(SETTING["REDIRECT_URI"])))
    claims = client.getIdTokenClaims()
    person = await client.fetchUserInfo()
    of_organization = await client.getOrganizationTokenClaims(SETTING["ORGANIZATION"])
    of_resource = await client.getAccessTokenClaims(SETTING["RESOURCE"])
    before = client.getRefreshToken()
    session.delete("accessTokenMap")  # as if they had expired: the SDK has no call for it
    renewed = await client.getAccessTokenClaims(SETTING["RESOURCE"])
    rotated = before != client.getRefreshToken()
    gone = visit(await client.signOut(SETTING["GOODBYE"]))
    seen(
        sub=claims.sub,
        organizations=claims.organizations,
        name=person.name,
        organization=[of_organization.aud, of_organization.scope],
        resource=[of_resource.aud, of_resource.scope],
        renewed=[renewed.aud, renewed.jti != of_resource.jti, rotated],
        authenticated=client.isAuthenticated(),
        goodbye=gone,
    )


asyncio.run(main())
