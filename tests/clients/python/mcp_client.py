"""The client of the Model Context Protocol: it is refused, reads what the server says about itself, and signs in."""

import asyncio
import os
from urllib.parse import parse_qs, urlsplit

import httpx2
from conversation import seen, visit
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

ISSUER, RESOURCE = os.environ["ISSUER"], os.environ["RESOURCE"]
REDIRECT_URIS = [os.environ["REDIRECT_URI"]]
SCOPE = "read:things offline_access"


class Storage:
    """The tokens of one user, and the client id that an administrator has created."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client = OAuthClientInformationFull.model_validate(
            {
                "client_id": os.environ["CLIENT_ID"],
                "redirect_uris": REDIRECT_URIS,
                "token_endpoint_auth_method": "none",
                "scope": SCOPE,
            }
        )

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Network(httpx2.AsyncBaseTransport):
    """The real network, and a server of the protocol at the resource."""

    def __init__(self) -> None:
        self._real = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.host != urlsplit(RESOURCE).hostname:
            return await self._real.handle_async_request(request)
        if "/.well-known/" in request.url.path:
            scopes = SCOPE.split()
            document = {"resource": RESOURCE, "authorization_servers": [ISSUER], "scopes_supported": scopes}
            return httpx2.Response(200, json=document)
        return httpx2.Response(200 if "Authorization" in request.headers else 401)


async def main() -> None:
    storage, returned = Storage(), dict[str, list[str]]()

    async def leave(url: str) -> None:
        returned.update(parse_qs(urlsplit(visit(url)).query))

    async def come_back() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=returned["code"][0], state=returned["state"][0], iss=returned["iss"][0])

    metadata = OAuthClientMetadata.model_validate({"redirect_uris": REDIRECT_URIS, "scope": SCOPE})
    provider = OAuthClientProvider(RESOURCE, metadata, storage, leave, come_back)
    async with httpx2.AsyncClient(auth=provider, transport=Network()) as client:
        answer = await client.get(RESOURCE)
    tokens = storage.tokens
    seen(status=answer.status_code, scope=tokens.scope if tokens else None, iss=returned["iss"][0])


asyncio.run(main())
