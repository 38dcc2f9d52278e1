"""What users copy from documents and examples works. The packages of the library may be rearranged, these names not."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import stead
import stead.errors

ROOT = Path(__file__).parents[3]
IMPORT = re.compile(r"^ *from (stead[\w.]*) import (?:\(([^)]*)\)|([^\n(#]+))", re.MULTILINE)


def documented_imports() -> set[tuple[str, str]]:
    """Return every name that the documents and examples import from the library, with its module."""
    found = [ROOT / "README.md", ROOT / "libs/sdk/README.md"]
    found += [path for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text() for path in found if path.suffix in {".md", ".py"}]
    return {
        (module, name)
        for text in texts
        for module, several, few in IMPORT.findall(text)
        for name in re.findall(r"\w+", several or few)
    }


def test_every_documented_import_works() -> None:
    documented = documented_imports()
    assert {module for module, _ in documented} == {"stead", "stead.events"}
    assert len(documented) > 20
    assert {(module, name) for module, name in documented if not hasattr(import_module(module), name)} == set()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (
            "stead.audit",
            "PERSONAL_MEMBERS Finding Head InvalidHead KeySet Report is_consistent is_included leaf_of read_head "
            "root_of verify_export",
        ),
        (
            "stead.event_types",
            "CloudEvent OrganizationPermissionState OrganizationRoleState OrganizationState MemberState "
            "GrantedPermission MemberPermissionsState",
        ),
        ("stead.errors", "InvalidId"),
    ],
)
def test_names_that_the_package_itself_lacks_stay_in_their_documented_module(module: str, names: str) -> None:
    assert [name for name in names.split() if not hasattr(import_module(module), name)] == []


def test_every_error_is_in_the_module_that_shows_the_tree() -> None:
    public = {name: getattr(stead, name) for name in stead.__all__}
    named = {name for name, it in public.items() if inspect.isclass(it) and issubclass(it, Exception)}
    assert len(named) == 16
    assert {name for name in named if getattr(stead.errors, name, None) is not getattr(stead, name)} == set()


def test_every_model_is_in_the_module_of_models() -> None:
    models = import_module("stead.models")
    shared = set(stead.__all__) & set(models.__all__)
    assert len(shared) > 30
    assert {name for name in shared if getattr(models, name) is not getattr(stead, name)} == set()
