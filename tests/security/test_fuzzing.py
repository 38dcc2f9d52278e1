"""Schema-based fuzzing: every service answers valid and invalid requests as the OpenAPI document says.

The examples of the short form are the same in every run, so that a failure comes from the change under test. Those of
the long form, and with ``FUZZ_EXAMPLES``, the number over all operations, are chosen at random.
"""

import json
import os
import zlib
from collections.abc import Iterator
from typing import Any, Final

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS
from schemathesis.config import SchemathesisConfig
from schemathesis.core import NOT_SET
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import TestPhase

from identity_common.http.routing import Service, service_for
from identity_common.revisions import HEADER
from management_service.app import SWAGGER
from provision import ServerAddresses
from tests.support.fuzzed_system import FuzzedSystem
from tests.support.lengths import IS_LONG, length

SERVICES: Final[tuple[Service, ...]] = ("management", "template", "token")
WEIGHTS: Final = {"/oidc/token": 25}
"""Operations with more than one share of the examples: this one serves every grant."""

WHOLE: dict[str, Any] = json.loads(SWAGGER.read_bytes())
LINES: Final = "/api/users/import"
"""Lines of JSON, each of which is refused by itself in a 200: ``management/test_moving_in.py`` has wrong ones."""
PATHS = {path: found for path, found in WHOLE["paths"].items() if service_for(path) in SERVICES and path != LINES}
EXAMPLES: Final = int(os.environ.get("FUZZ_EXAMPLES", length(short=300, long=10_000)))
IS_RANDOM: Final = IS_LONG or "FUZZ_EXAMPLES" in os.environ
SHARE: Final = EXAMPLES / sum(WEIGHTS.get(path, 1) * len(operations) for path, operations in PATHS.items())


def examples(weight: int) -> dict[str, int]:
    return {"max-examples": max(1, int(SHARE * weight))}


SCHEMA = schemathesis.openapi.from_dict(
    {**WHOLE, "paths": PATHS},
    config=SchemathesisConfig.from_dict(
        {
            # the token endpoint ignores unknown parameters; component/common/test_query_parameters.py has those of /api
            "generation": {"mode": "all", "allow-extra-parameters": False, **examples(1)},
            "operations": [{"include-path": path, "generation": examples(weight)} for path, weight in WEIGHTS.items()],
            # The service reports the first of several errors: If-Match comes before the body. 413 is possible, although
            # a small body cannot cause it.
            "checks": {
                "negative_data_rejection": {
                    "expected-statuses": ["400", "401", "403", "404", "405", "412", "413", "415", "422"]
                }
            },
        }
    ),
)
# The schema does not hold every rule: user names, addresses and indicators have rules of their own.
_NOT_PROMISED = [check for check in CHECKS.get_all() if check.__name__ == "positive_data_acceptance"]


@pytest.fixture(scope="session")
def system(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedSystem]:
    """The running system."""
    system = FuzzedSystem(servers, tmp_path_factory.mktemp("fuzz"))
    try:
        system.start()
        yield system
    finally:
        system.stop()


@pytest.fixture(scope="module")
def session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # else it looks for proxies at each request
    return session


@pytest.mark.slow
@SCHEMA.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=not IS_RANDOM)
def test_every_answer_is_as_the_document_says(
    case: schemathesis.Case, system: FuzzedSystem, session: requests.Session
) -> None:
    if is_left_to_the_long_form(case) or names_another_path(case):
        return
    chance = checksum(case.path_parameters, case.body)
    use_existing_objects(case, system, chance)
    headers, credentials = system.authorization(case.path, case.body, chance >> 20)
    answer = case.call(base_url=system.base_url, session=session, headers=headers, auth=credentials, timeout=30)
    not_promised = _NOT_PROMISED
    if answer.status_code == 503 and HEADER in case.headers:  # the awaited revision never arrives
        not_promised = [*_NOT_PROMISED, schemathesis.checks.not_a_server_error]
    case.validate_response(answer, excluded_checks=not_promised, headers=headers)


def is_left_to_the_long_form(case: schemathesis.Case) -> bool:
    """Tell whether the short form skips a case: two of three of the thousands that the schema gives without chance."""
    if case.meta is None or case.meta.phase.name is not TestPhase.COVERAGE:
        return False
    parts = case.path_parameters, case.query, sorted(case.headers or ()), case.body
    return checksum(case.method, case.path, *parts) % 3 >= length(short=1, long=3)


def names_another_path(case: schemathesis.Case) -> bool:
    """Tell whether the path is that of another operation: an id is missing, or a segment that clients resolve."""
    return not {"", ".", ".."}.isdisjoint(map(str, (case.path_parameters or {}).values()))


def checksum(*values: object) -> int:
    """Return a number that is the same in every run; a missing body is shown with its address in memory."""
    return zlib.crc32(repr([None if value is NOT_SET else value for value in values]).encode())


def use_existing_objects(case: schemathesis.Case, system: FuzzedSystem, chance: int) -> None:
    """Name existing objects in three of four cases; values that were generated to be invalid stay."""
    if chance % 4 == 0:
        return
    if case.path_parameters and not is_negative(case, ParameterLocation.PATH):
        case.path_parameters.update(system.existing(case.path, set(case.path_parameters)))
    if case.path == "/oidc/token" and isinstance(case.body, dict) and not is_negative(case, ParameterLocation.BODY):
        case.body = system.improved(case.body, chance >> 2)
        if HEADER in case.headers and chance >> 18 & 3:
            case.headers[HEADER] = "management:1"


def is_negative(case: schemathesis.Case, location: ParameterLocation) -> bool:
    return case.meta is not None and case.meta.is_negative_at(location)


def test_every_service_has_operations_to_be_fuzzed() -> None:
    assert {service_for(path) for path in PATHS} == set(SERVICES)
