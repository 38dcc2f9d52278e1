"""What is deployed agrees with its sources: the edge with the routing table, the images' locks with the tested pins."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from identity_common.http.routing import FALLBACK, NOT_ROUTED, ROUTES, process_of, service_for
from provision.edges.nginx import nginx

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "locks").glob("*.lock"))
LOCATION = re.compile(
    r"^    location (?:~ (?P<expression>\S+)|/) \{ (?:return 404|set \$service (?P<service>[\w-]+);)", re.MULTILINE
)


def pins(lock: Path) -> dict[str, str]:
    """Return the text of each pin, with its hashes, by name."""
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*?\])?==[^\n]*(?:\n    .*)*", lock.read_text(), re.MULTILINE)
    return dict(zip(found, re.split(r"^(?=\S)", lock.read_text(), flags=re.MULTILINE)[1:], strict=True))


@pytest.mark.parametrize(
    "path",
    [
        *(pattern.replace("{}", "u1").replace("/*", "/below") for pattern, _ in ROUTES),
        *(pattern.replace("{}", "u1").removesuffix("/*") for pattern, _ in ROUTES),
        *(pattern.replace("/*", "/below") for pattern in NOT_ROUTED),
        "/",
        "/api/users/u1/organizations/o1",
        "/api/organizationsX",
        "/oidcX",
        "/healthy",
    ],
)
def test_the_edge_chooses_what_the_routing_table_says(path: str) -> None:
    locations = [(each["expression"] or "", each["service"]) for each in LOCATION.finditer(nginx())]
    assert locations[-1] == ("", process_of(FALLBACK))
    chosen = next(service for expression, service in locations if re.search(expression, path))
    expected = service_for(path)
    assert chosen == (expected and process_of(expected))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_the_pins_of_an_image_are_those_that_are_tested(lock: Path) -> None:
    tested = pins(ROOT / "requirements.lock")
    assert {name: text for name, text in pins(lock).items() if tested.get(name) != text} == {}
    assert "://" not in lock.read_text()


def test_the_verifier_has_what_it_needs_and_no_more() -> None:
    locked = {canonicalize_name(name) for name in pins(ROOT / "locks" / "verifier.lock")}
    assert locked == needed_by(Requirement("stead-verifier")) - {"stead-common", "stead-sdk", "stead-verifier"}


def needed_by(requirement: Requirement) -> set[str]:
    """Return the distributions that a requirement installs here, itself included."""
    extras = requirement.extras or {""}
    found = {canonicalize_name(requirement.name)}
    for each in map(Requirement, metadata.requires(requirement.name) or []):
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
            found |= needed_by(each)
    return found
