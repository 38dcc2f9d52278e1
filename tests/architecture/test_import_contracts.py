"""The import contracts of pyproject.toml cover every module that they are about."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
HANDLER = re.compile(
    r"^ *@(?:get|post|put|patch|delete|head|route|asgi)\(|\bHTTPRouteHandler\(|\(Controller\):", re.MULTILINE
)
EDGES = re.compile(  # what speaks HTTP, or builds what does
    r"\w+_service\.(?:__main__|app|asgi|(?:\w+\.)?\w*routes|parts\.(?!shared_with_commands$).+)"
    r"|management_service\.subject_tokens\.caller"
    r"|template_service\.(?:member_permissions\.access|members\.guards)"
    r"|token_service\.(?:endpoints|openapi|sign_in\.pages)\..+"
    r"|token_service\.sign_in\.(?:backchannel_logout|invitation|\w+_pages?|recovery|registration|sign_out|verification)"
)


def modules(*folders: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the source of every module below these folders of packages."""
    for folder in folders:
        for source in ROOT.glob(f"{folder}/*/src"):
            for path in source.rglob("*.py"):
                yield ".".join(path.relative_to(source).with_suffix("").parts), path.read_text()


def sources(contract: str) -> re.Pattern[str]:
    """Return an expression that matches the modules to which a contract applies."""
    (names,) = (each["source_modules"] for each in CONTRACTS if each["name"] == contract)
    return re.compile("|".join(re.escape(name).replace(r"\*", r"\w+") + r"(?:\..*)?" for name in names))


@pytest.mark.heavy
def test_every_module_that_says_it_is_pure_is_kept_so() -> None:
    pure = {name for name, text in modules("libs", "services") if "Pure" in (ast.get_docstring(ast.parse(text)) or "")}
    assert len(pure) > 10
    covered = sources("Pure modules import no framework and no driver")
    assert {name for name in pure if not covered.fullmatch(name)} == set()


def test_no_module_with_handlers_may_import_a_driver() -> None:
    with_handlers = {
        name for name, text in modules("services") if HANDLER.search(text) and not name.endswith("_service.app")
    }
    assert len(with_handlers) > 10
    covered = sources("Endpoints and routes hold no SQL and no driver")
    assert {name for name in with_handlers if not covered.fullmatch(name)} == set()


def test_every_module_behind_the_edges_is_kept_from_http() -> None:
    behind = {
        name
        for name, _ in modules("services")
        if name.partition(".")[0].endswith("_service")
        and not re.search(r"\.(?:__init__$|migrations\.)", name)
        and not EDGES.fullmatch(name)
    }
    assert len(behind) > 10
    covered = sources("Use cases, rules and stores know no HTTP")
    assert {name for name in behind if not covered.fullmatch(name)} == set()


@pytest.mark.parametrize(
    "contract", [each for each in CONTRACTS if each["type"] == "layers"], ids=lambda each: each["name"]
)
def test_every_module_of_a_package_has_a_layer(contract: dict[str, object]) -> None:
    assert contract.get("exhaustive") is True
