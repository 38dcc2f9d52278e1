"""The edge, in the client: sends each request to the service that the routing table names, replicas in turn."""

import contextlib
import itertools
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import httpx

from identity_common.http.routing import Service, service_for


class EdgeTransport(httpx.BaseTransport):
    """For clients that know one address of the system while its services are processes on ports of their own."""

    def __init__(self, replicas: Mapping[Service, Sequence[str]]) -> None:
        self._inner = httpx.HTTPTransport()
        self._turns = {service: itertools.cycle(map(httpx.URL, urls)) for service, urls in replicas.items()}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        service = service_for(request.url.path)
        assert service is not None
        target = next(self._turns[service])
        request.url = request.url.copy_with(scheme=target.scheme, host=target.host, port=target.port)
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


class KeysEdge:
    """The edge as far as the services themselves need it: one address for the published keys, whoever is there.

    Attributes:
        replicas: Addresses of token-service; the first that answers will do.
        url: Of the keys.
    """

    def __init__(self) -> None:
        self.replicas: Sequence[str] = ()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/oidc/jwks"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _keys(self) -> bytes | None:
        for url in self.replicas:
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"{url}/oidc/jwks")
                if answer.status_code == 200:
                    return answer.content
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        edge = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys = edge._keys()
                self.send_response(503 if keys is None else 200)
                self.send_header("Cache-Control", "max-age=300")
                self.end_headers()
                self.wfile.write(keys or b"")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
