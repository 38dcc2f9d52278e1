"""Sends the console's requests to the services."""

from collections.abc import Mapping
from typing import Final

import httpx2 as httpx

from identity_common.http.routing import Service, service_for
from identity_common.telemetry.outgoing import outgoing_request

CONSOLE_TIMEOUT_S: Final = 10.0


class RoutedTransport(httpx.AsyncBaseTransport):
    """Sends each request to the service that serves its path, as the edge would.

    Inside a cluster the public address may be unreachable.

    Args:
        base_url: The public address, which the requests name.
        addresses: Internal addresses of services; the others are reached at the public address.
    """

    def __init__(self, base_url: str, addresses: Mapping[Service, str]) -> None:
        self._prefix = httpx.URL(base_url).path.rstrip("/")
        self._addresses = {service: httpx.URL(address) for service, address in addresses.items()}
        self._transport = httpx.AsyncHTTPTransport(retries=0)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request within the trace of the current one."""
        service = service_for(request.url.path.removeprefix(self._prefix))
        if service is not None and (inside := self._addresses.get(service)) is not None:
            request.url = request.url.copy_with(scheme=inside.scheme, host=inside.host, port=inside.port)
        with outgoing_request(f"{request.method} {service}-service") as headers:
            request.headers.update(headers)
            return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
