"""The images of the Dockerfile: their size, labels and version, and the languages of their pages."""

import json
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from identity_common.version import VERSION
from tests.support.fingerprint import IN_AN_IMAGE, fingerprint

pytestmark = [pytest.mark.deployed, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
IMAGES = ("token-service", "management-service", "template-service", "console", "provision", "verifier")
REVISION, CREATED = "0123456789abcdef0123456789abcdef01234567", "2026-11-25T01:02:03+00:00"
MOST_BYTES = 100_000_000

every_image = pytest.mark.parametrize("image", IMAGES)


def docker(*words: str, given: str | None = None) -> str:
    finished = subprocess.run(
        ["docker", *words], cwd=ROOT, input=given, capture_output=True, text=True, timeout=800, check=False
    )
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
    return finished.stdout


@cache
def built(image: str) -> str:
    """Build an image; return its name."""
    name = f"stead/{image}:test"
    arguments = ("--build-arg", f"REVISION={REVISION}", "--build-arg", f"CREATED={CREATED}")
    docker("build", "--quiet", "--target", image, "--tag", name, *arguments, ".")
    return name


@cache
def base() -> str:
    """Return the name of an image that is the base alone."""
    (name,) = re.findall(r"^FROM (\S+) AS runtime$", DOCKERFILE, re.MULTILINE)
    docker("build", "--quiet", "--tag", "stead/base:test", "-", given=f"FROM {name}\n")
    return "stead/base:test"


def layers(image: str) -> list[int]:
    """Return the size of every layer in bytes, the newest first."""
    return list(map(int, docker("history", "--human=false", "--format", "{{.Size}}", image).split()))


@every_image
def test_the_layers_beyond_the_base_have_less_than_100_megabytes(
    image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of_base, of_image = layers(base()), layers(built(image))
    assert of_image[-len(of_base) :] == of_base
    beyond = sum(of_image[: -len(of_base)])
    with capsys.disabled():
        print(f"\n{image}: {beyond / 1e6:.1f} MB beyond the base")
    assert 0 < beyond < MOST_BYTES


@every_image
def test_an_image_says_what_it_is(image: str) -> None:
    labels = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", built(image)))
    prefix = "org.opencontainers.image."
    assert {name.removeprefix(prefix): value for name, value in labels.items() if name.startswith(prefix)} == {
        "title": f"stead-{image}",
        "description": described(image),
        "version": VERSION,
        "revision": REVISION,
        "created": CREATED,
        "vendor": "Stead",
        "licenses": "Apache-2.0",
    }


def described(image: str) -> str:
    """Return the description of the package."""
    project = tomllib.loads((ROOT / f"services/{image}/pyproject.toml").read_text())["project"]
    return str(project["description"])


@every_image
def test_an_image_has_the_fingerprint_of_the_tree_that_it_was_built_from(image: str) -> None:
    assert docker("run", "--rm", "--entrypoint", "cat", built(image), IN_AN_IMAGE) == f"{fingerprint()}\n"


@every_image
def test_an_image_prints_its_version_without_a_writable_file_system(image: str) -> None:
    docker_options = ("--read-only", "--cap-drop", "ALL", "--network", "none")
    assert docker("run", "--rm", *docker_options, built(image), "--version") == f"{VERSION}\n"


@every_image
def test_an_image_runs_as_a_user_that_owns_nothing(image: str) -> None:
    program = "import os; print(os.getuid(), os.access('/', os.W_OK), os.access('/opt/stead', os.W_OK))"
    shown = docker("run", "--rm", "--entrypoint", "python", built(image), "-c", program)
    assert shown.split() == ["65532", "False", "False"]


@pytest.mark.parametrize(
    ("image", "pages"),
    [
        ("token-service", "token_service.sign_in.pages"),
        ("console", "console"),
    ],
)
def test_the_pages_have_every_language_of_the_catalogues(image: str, pages: str) -> None:
    program = f"from {pages}.languages import LANGUAGES; print(*sorted(LANGUAGES.by_tag))"
    shown = docker("run", "--rm", "--entrypoint", "python", built(image), "-c", program)
    catalogues = ROOT.glob(f"services/{image}/src/{pages.replace('.', '/')}/catalogues/*.po")
    assert shown.split() == sorted({"en", *(path.stem for path in catalogues)})
