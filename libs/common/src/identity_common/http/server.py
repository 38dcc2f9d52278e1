"""Options of uvicorn for all servers, standalone and embedded."""

from collections.abc import Mapping
from typing import Any, Final

GRACEFUL_SHUTDOWN_S: Final = 10
"""How long a process that is told to stop completes its requests."""

_KEEP_ALIVE_S: Final = 75  # longer than a proxy in front keeps idle connections, so that the proxy closes them

SERVER_OPTIONS: Final[Mapping[str, Any]] = {
    "loop": "uvloop",
    "http": "identity_common.http.connection:HttpConnection",
    "ws": "none",
    "lifespan": "on",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,  # the services read X-Forwarded-For themselves, behind a configured number of proxies
    "timeout_keep_alive": _KEEP_ALIVE_S,
}
"""Arguments of ``uvicorn.Config`` and ``uvicorn.run``."""
