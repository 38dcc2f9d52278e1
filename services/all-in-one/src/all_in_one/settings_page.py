"""``python -m all_in_one.settings_page``: write docs/operations/settings.md from the settings of the services.

The structs name them and their docstrings explain them; this module adds only the variables that no struct has.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import FieldInfo

import console.settings
import management_service.settings
import template_service.settings
import token_service.settings
from identity_common.http.openapi.descriptions import attribute_descriptions
from identity_common.settings import ApiSettings, ServiceSettings, is_secret

PAGE: Final = Path(__file__).parents[4] / "docs" / "operations" / "settings.md"

_SERVICES: Final[dict[str, type[ServiceSettings]]] = {
    "console": console.settings.Settings,
    "management-service": management_service.settings.Settings,
    "template-service": template_service.settings.Settings,
    "token-service": token_service.settings.Settings,
}
_UNITS: Final = {"_s": "seconds", "_ms": "milliseconds", "_mib": "MiB", "_bytes": "bytes"}

_BEGINNING: Final = """\
# Settings

`make settings` writes this page from the structs that the services read; a test compares the two.

A service reads its environment once, at start: restart its replicas to apply a new value. If variables are invalid, the
service reports all of them, by name and without their values, and exits with status 2. An empty variable counts as
missing.

Instead of a variable `X`, a service accepts `X_FILE`, the path of a file that holds the value: use it for secrets.
Setting both is an error. List items are separated by commas. Secrets have no default.
"""

_END: Final = """\
## Traces

Each service and all-in-one also read the standard variables of OpenTelemetry: see [Monitoring](monitoring.md#traces).

## all-in-one

`make run` (`python -m all_in_one --port 3000 --directory .local`) passes the variables above to every service that has
them. By default `ENVIRONMENT` is `development`, `ALLOW_HTTP_LOOPBACK_REDIRECTS` is `true`, `OUTGOING_NETWORKS` are
those of this machine, and the keys are in files in the directory. `BASE_URL` and `DATABASE_URL` are ignored; the file
variants of these two, of the other addresses and of the keys are refused.

The first four name servers to use instead of the embedded ones; set all of them, or none. There are no file variants.

| variable | meaning | secret |
|---|---|---|
| `POSTGRES_URL` | `postgresql://user:password@host:port/name` of a superuser; roles and databases are created | yes |
| `REDIS_URL` | `redis://user:password@host:port` of a user with all permissions; users are created | yes |
| `NATS_URL` | `nats://host:port`, without a user; of a cluster several, with commas between them | no |
| `NATS_PASSWORDS` | JSON: the password of each user, `management`, `token`, `template`, `subscriber`, teams | yes |
| `STOP_WITH_PARENT` | a process id, set by `make`: end when that process ends | no |

## provision

Command-line options only: see `python -m provision --help`. The exception is `python -m provision nats`, which reads
`NATS_PASSWORDS` as above. Passwords and keys are in the directory that `--secrets` names; the first `render` or
`secrets` creates them.

## The verifier process

Command-line options (see `python -m verifier --help` and [the guide](../guides/proxy.md)) or, except for `--host`
and `--port`, variables of the same names in capitals. `CLIENT_SECRET`, or the file that `CLIENT_SECRET_FILE` names, has
the secret of the application that reads the not-valid feed.

## bootstrap in Kubernetes

With `BOOTSTRAP_SECRET_NAME`, `python -m management_service bootstrap` also reads `KUBERNETES_SERVICE_HOST` and
`KUBERNETES_SERVICE_PORT`, which Kubernetes sets in every pod.

## Docker Compose

| variable | meaning | default |
|---|---|---|
| `BASE_URL` | as above | `http://localhost:PORT` |
| `PORT` | port of the edge, on the loopback address | `3000` |
| `NATS_PORT`, `PROMETHEUS_PORT`, `GRAFANA_PORT` | likewise, for these servers | `4222`, `9090`, `3001` |
| `TAG` | tag of the images | `dev` |
| `REVISION`, `CREATED` | labels of the images, set by `make images`: the commit and its time | `unknown` |

## The SDK

The SDK reads no variables: its settings are arguments.
"""


def page() -> str:
    """Return the content of the page."""
    shared = [*ServiceSettings.__struct_fields__]
    with_an_api = [field for field in ApiSettings.__struct_fields__ if field not in shared]
    tables = [
        _table("Of every service", ServiceSettings, shared),
        _table("Of every service but the console", ApiSettings, with_an_api),
    ]
    for name, settings in _SERVICES.items():
        own = [field for field in settings.__struct_fields__ if field not in {*shared, *with_an_api}]
        tables.append(_table(f"Of {name}" if name.endswith("-service") else f"Of the {name}", settings, own))
    return "\n".join((_BEGINNING, *tables, _END))


def _table(title: str, settings: type[ServiceSettings], names: Sequence[str]) -> str:
    fields = {field.name: field for field in msgspec.structs.fields(settings)}
    meanings = attribute_descriptions(settings)
    rows = [
        f"| `{name.upper()}` | {_cell(meanings[name], fields)} | {_default(fields[name])} | {_unit(name)} | "
        f"{'yes' if is_secret(fields[name].type) else 'no'} |"
        for name in names
    ]
    return "\n".join(
        (f"## {title}", "", "| variable | meaning | default | unit | secret |", "|---" * 5 + "|", *rows, "")
    )


def _cell(text: str, fields: Collection[str]) -> str:
    """Return a description as Markdown, with the variables in place of the fields."""
    named = re.sub(r"(?<=[`{])\w+(?=[`}])", lambda name: name[0].upper() if name[0] in fields else name[0], text)
    return named.replace("``", "`").replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default in (None, "", ()):
        return "none"
    if isinstance(field.default, bool):
        return "`true`" if field.default else "`false`"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def _unit(name: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")


if __name__ == "__main__":
    PAGE.write_text(page())
