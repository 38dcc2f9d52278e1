"""The edges in front of the services, each rendered from the routing table.

Owns the paths of an edge. Host names, TLS and the choice of a gateway are the operator's.
"""

from collections.abc import Callable, Mapping
from typing import Final

from provision.edges.gateway import gateway
from provision.edges.ingress import ingress_nginx, ingress_traefik
from provision.edges.nginx import nginx, nginx_in_kubernetes

FORMS: Final[Mapping[str, Callable[[], str]]] = {
    "nginx": nginx,
    "nginx-in-kubernetes": nginx_in_kubernetes,
    "gateway": gateway,
    "ingress-nginx": ingress_nginx,
    "ingress-traefik": ingress_traefik,
}
