"""An HTTPRoute of the Gateway API."""

from itertools import groupby
from operator import itemgetter
from typing import Final

from identity_common.http.routing import Service, expression, process_of
from provision.edges.kubernetes import PORT, TABLE, header

_HEAD: Final = """\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: stead
spec:
  parentRefs:
    - name: stead
  rules:
"""

# No limit, as it applies to the whole response: it would cut off the events of the not-valid feed and the export of the
# audit trail. Some implementations stop after 15 s by default, and a poll of permissions waits for 20 s.
_TIMEOUTS: Final = "      timeouts: {request: 0s}\n"


def gateway() -> str:
    """Return the HTTPRoute.

    A pattern with a wildcard is a ``RegularExpression``, whose precedence depends on the implementation: it must come
    before the prefix ``/api``.
    """
    by_service = groupby(sorted(TABLE, key=itemgetter(1)), key=itemgetter(1))
    rules = [_rule(service, [pattern for pattern, _ in routes]) for service, routes in by_service]
    return header("gateway") + (_HEAD + "".join(rules)).rstrip()


def _rule(service: Service, patterns: list[str]) -> str:
    matches = "".join(f"        - path: {{type: {kind}, value: '{value}'}}\n" for kind, value in map(_match, patterns))
    backend = f"        - {{name: {process_of(service)}, port: {PORT}}}\n"
    return f"    - matches:\n{matches}{_TIMEOUTS}      backendRefs:\n{backend}"


def _match(pattern: str) -> tuple[str, str]:
    if pattern.endswith("/*") and "{}" not in pattern:
        return "PathPrefix", pattern.removesuffix("/*")
    return "RegularExpression", f"^{expression(pattern)}$"
