"""Packaging: distributions are installed from this tree only, with complete metadata."""

from __future__ import annotations

import email
import re
import tomllib
import zipfile
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from identity_common.version import VERSION

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in ROOT.glob("*/*/pyproject.toml"))
NAMES = {tomllib.loads((package / "pyproject.toml").read_text())["project"]["name"] for package in PACKAGES}
LICENSE = (ROOT / "LICENSE").read_bytes()

# A command that installs or builds, up to the next command; continued lines are joined.
COMMAND = re.compile(
    r"(?:\bpip (?:install|wheel)|\buv (?:add|pip install|tool install)|\$\(PIP\)|\$INSTALL)(?!\w)[^&;`\n]*"
)
OURS = re.compile(r"\blibs/|\bservices/|,\$\(PACKAGES\)|\bstead_")
FROM_THIS_TREE = {"--no-index", "--no-deps"}


def unsafe_installations(text: str) -> list[str]:
    """Return the commands that could take one of our packages, or what it depends on, from a registry."""
    commands = COMMAND.findall(text.replace("\\\n", " "))
    return [each for each in commands if OURS.search(each) and not set(each.split()) >= FROM_THIS_TREE]


def named_installations(text: str) -> list[str]:
    """Return the commands that name one of our packages as a registry would, with or without an extra."""
    return [
        command
        for command in COMMAND.findall(text)
        for word in re.findall(r"[^\s\"']+", command)
        if (name := re.match(r"[A-Za-z0-9._-]+", word)) and canonicalize_name(name[0]) in {*NAMES, "stead"}
    ]


def test_every_package_of_the_workspace_is_named_after_the_product() -> None:
    assert sorted(NAMES) == [
        "stead-all-in-one",
        "stead-common",
        "stead-console",
        "stead-management-service",
        "stead-provision",
        "stead-sdk",
        "stead-template-service",
        "stead-token-service",
        "stead-verifier",
    ]


def test_packages_and_images_have_one_version() -> None:
    files = [ROOT / "pyproject.toml", *(package / "pyproject.toml" for package in PACKAGES)]
    versions = {tomllib.loads(file.read_text())["project"]["version"] for file in files}
    versions |= set(re.findall("^ARG VERSION=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert versions == {VERSION}


def test_the_lock_names_no_package_of_the_workspace() -> None:
    """Such a name would be fetched from a registry, where it may belong to an attacker."""
    names = locked("requirements.lock").keys()
    assert len(names) > 50
    assert not names & {*NAMES, "stead"}


def locked(name: str) -> dict[str, str]:
    """Return the entries of a lock by the name of their distribution."""
    entries = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / name).read_text().strip())
    return {canonicalize_name(re.match(r"[A-Za-z0-9._-]+", entry)[0]): entry for entry in entries}  # type: ignore[index]


def test_running_needs_a_part_of_what_testing_needs() -> None:
    """Of the same versions; and everything that the packages of the workspace depend on, here and on macOS."""
    run, whole = locked("requirements-run.lock"), locked("requirements.lock")
    assert run.items() < whole.items()
    assert not run.keys() & {"pytest", "mypy", "ruff", "playwright", "hypothesis", "schemathesis"}
    environments = [
        {"sys_platform": system.lower(), "platform_system": system, "platform_machine": machine}
        for system, machine in (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64"))
    ]
    needed, seen = [*NAMES, "hatchling", "editables"], set()
    while needed:
        requirement = Requirement(needed.pop())
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            for each in map(Requirement, metadata.requires(name) or []):
                marker = each.marker
                if marker is None or any(marker.evaluate({**known, "extra": extra}) for known in environments):
                    needed.append(str(each))
    assert {name for name, _ in seen} - NAMES <= run.keys()


def test_workspace_packages_are_installed_from_this_tree_and_never_from_a_registry() -> None:
    for file in (ROOT / "Makefile", ROOT / "Dockerfile", *(ROOT / ".ci").iterdir()):
        assert unsafe_installations(file.read_text()) == []


@pytest.mark.parametrize("option", sorted(FROM_THIS_TREE))
@pytest.mark.parametrize(("file", "commands"), [("Makefile", 1), ("Dockerfile", 7)])
def test_each_installation_without_one_of_these_options_is_found(file: str, commands: int, option: str) -> None:
    assert len(unsafe_installations((ROOT / file).read_text().replace(option, ""))) == commands


@pytest.mark.heavy
def test_nothing_tells_to_install_a_workspace_package_from_a_registry() -> None:
    """Documents, docstrings and messages: the names are ours in this tree only."""
    kinds = {".md", ".py", ".html", ".yaml", ".yml", ".toml", ".json", ""}
    texts = {
        path.relative_to(ROOT): path.read_text()
        for path in (*ROOT.glob("*"), *ROOT.glob("[!.]*/**/*"))
        if path.is_file() and path.suffix in kinds and "node_modules" not in path.parts
    }
    assert sum(bool(COMMAND.search(text)) for text in texts.values()) > 5
    assert {str(path): found for path, text in texts.items() if (found := named_installations(text))} == {}


@pytest.mark.parametrize("words", ["stead-sdk", "'stead-sdk[events]'", '"stead_common[tracing]>=0.1"', "-U stead"])
def test_such_a_command_is_found(words: str) -> None:
    assert len(named_installations(f"Run `pip install {words}` first.")) == 1


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_wheel_carries_its_metadata_and_the_license(package: Path, tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(package)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        (metadata_file,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata: Message = email.message_from_bytes(archive.read(metadata_file))
        licensed_under = archive.read(metadata_file.replace("METADATA", "licenses/LICENSE"))

    assert (metadata["License-Expression"], metadata.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert licensed_under == LICENSE
    assert "Stead" in metadata["Summary"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload(decode=True) == (package / "README.md").read_bytes()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_license_of_every_package_is_a_regular_file(package: Path) -> None:
    """A link to the one in the root would dangle in a source distribution."""
    assert not (package / "LICENSE").is_symlink()
    assert (package / "LICENSE").read_bytes() == LICENSE
