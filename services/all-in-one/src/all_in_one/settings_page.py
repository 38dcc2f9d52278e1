"""``python -m all_in_one.settings_page``: write docs/operations/settings.md from the settings of the services.

The structs name them and their docstrings explain them; this module adds only the variables that no struct has.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import FieldInfo

import management_service.settings
import template_service.settings
import token_service.settings
from identity_common.http.openapi_descriptions import attribute_descriptions
from identity_common.settings import ServiceSettings, is_secret

PAGE: Final = Path(__file__).parents[4] / "docs" / "operations" / "settings.md"

_SERVICES: Final[dict[str, type[ServiceSettings]]] = {
    "management-service": management_service.settings.Settings,
    "template-service": template_service.settings.Settings,
    "token-service": token_service.settings.Settings,
}
_UNITS: Final = {"_s": "seconds", "_ms": "milliseconds", "_mib": "MiB", "_bytes": "bytes"}

_BEGINNING: Final = """\
# Settings

`make settings` writes this page from the structs that the services read; a test compares the two.

A service reads its environment once, when it starts: a new value takes a restart of its replicas. Invalid variables are
reported all at once, by name and without their values, and end the start with status 2. An empty variable counts as
missing.

Each variable `X` of a service can be given as `X_FILE` instead, the path of a file that holds the value: use it for
secrets. Both at once are an error. Lists are separated by commas. A secret has no default.
"""

_END: Final = """\
## Traces

Each service and all-in-one also read the standard variables of OpenTelemetry: see [Monitoring](monitoring.md#traces).

## all-in-one

`make run` (`python -m all_in_one --port 3000 --directory .local`) passes the variables above to every service that has
them. `ENVIRONMENT` is `development` by default, and the keys are in files in the directory by default. `BASE_URL` and
`DATABASE_URL` are ignored; the file variants of these two, of the other addresses and of the keys are refused.

These four name servers to use in place of the embedded ones: all of them, or none. They have no file variant.

| variable | meaning | secret |
|---|---|---|
| `POSTGRES_URL` | `postgresql://user:password@host:port/name` of a superuser; roles and databases are created | yes |
| `REDIS_URL` | `redis://user:password@host:port` of a user with all permissions; users are created | yes |
| `NATS_URL` | `nats://host:port`, without a user | no |
| `NATS_PASSWORDS` | JSON: the password of each user, `management`, `token`, `template`, `subscriber`, teams | yes |
| `STOP_WITH_PARENT` | a process id, set by `make`: end when that process ends | no |

## provision

Options of the command line, see `python -m provision --help`. `python -m provision nats` alone reads a variable,
`NATS_PASSWORDS` as above. Passwords and keys are in the directory that `--secrets` names: the first `render` or
`secrets` creates them.

## The verifier process

Options of the command line, see `python -m stead.verifier --help` and [the guide](../guides/proxy.md), or, but for
`--host` and `--port`, variables of the same names in capitals. The secret of the application that reads the not-valid
feed is in `CLIENT_SECRET`, or in a file that `CLIENT_SECRET_FILE` names.

## bootstrap in Kubernetes

With `BOOTSTRAP_SECRET_NAME`, `python -m management_service bootstrap` also reads `KUBERNETES_SERVICE_HOST` and
`KUBERNETES_SERVICE_PORT`, which Kubernetes sets in every pod.

## Docker Compose

| variable | meaning | default |
|---|---|---|
| `BASE_URL` | as above | `http://localhost:PORT` |
| `PORT` | of the edge, on the loopback address | `3000` |
| `NATS_PORT`, `PROMETHEUS_PORT`, `GRAFANA_PORT` | likewise, of these servers | `4222`, `9090`, `3001` |
| `TAG` | of the images | `dev` |
| `REVISION`, `CREATED` | labels of the images that are built: the commit and its time, by `make images` | `unknown` |

## The verifier

`stead.AccessTokenVerifier` and the rest of the SDK read no variables: their settings are arguments.
"""


def page() -> str:
    """Return the content of the page."""
    tables = [_table("Of every service", ServiceSettings, ServiceSettings.__struct_fields__)]
    for name, settings in _SERVICES.items():
        own = [field for field in settings.__struct_fields__ if field not in ServiceSettings.__struct_fields__]
        tables.append(_table(f"Of {name}", settings, own))
    return "\n".join((_BEGINNING, *tables, _END))


def _table(title: str, settings: type[ServiceSettings], names: Sequence[str]) -> str:
    fields = {field.name: field for field in msgspec.structs.fields(settings)}
    meanings = attribute_descriptions(settings)
    rows = [
        f"| `{name.upper()}` | {_cell(meanings[name])} | {_default(fields[name])} | {_unit(name)} | "
        f"{'yes' if is_secret(fields[name].type) else 'no'} |"
        for name in names
    ]
    return "\n".join(
        (f"## {title}", "", "| variable | meaning | default | unit | secret |", "|---" * 5 + "|", *rows, "")
    )


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default in (None, ""):
        return "none"
    if isinstance(field.default, bool):
        return "`true`" if field.default else "`false`"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def _unit(name: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")


if __name__ == "__main__":
    PAGE.write_text(page())
