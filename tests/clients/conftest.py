"""A real browser and third-party clients against the running stack."""

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.browser import ApplicationSite, Inspector, Visitor
from tests.support.world import Client, World

expect.set_options(timeout=30_000)  # a slow machine is not a failure

REPORT_VIOLATIONS = """addEventListener("securitypolicyviolation", (event) => {
  console.error("Content Security Policy", event.effectiveDirective, event.blockedURI);
});"""


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The installed Chromium, without a user interface if there is one; Playwright downloads none."""
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert chromium is not None, "these tests need a browser: apt-get install chromium-headless-shell"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, chromium_sandbox=False)
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A tab with a fresh profile; no page violates its own Content-Security-Policy, and no script of one fails."""
    context = await browser.new_context()
    complaints: list[str] = []
    errors: list[str] = []
    await context.add_init_script(REPORT_VIOLATIONS)
    context.on("console", lambda message: complaints.append(message.text))
    context.on("weberror", lambda error: errors.append(str(error.error)))
    yield await context.new_page()
    await context.close()
    assert [complaint for complaint in complaints if "Content Security Policy" in complaint] == []
    assert errors == []


@pytest.fixture(scope="session")
def site(world: World) -> Iterator[ApplicationSite]:
    """The site of an application, on an origin of its own."""
    with ApplicationSite(world) as site:
        yield site


@pytest.fixture
def visitor(page: Page, site: ApplicationSite) -> Visitor:
    """A user in front of that tab."""
    return Visitor(page, site)


@pytest.fixture(scope="session")
def npm_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of ``javascript/`` with the packages of its lock file installed."""
    npm = shutil.which("npm")
    assert npm is not None, "these tests need node and npm: apt-get install nodejs npm"
    directory = tmp_path_factory.mktemp("javascript")
    shutil.copytree(Path(__file__).parent / "javascript", directory, dirs_exist_ok=True)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]  # the lock file has the hashes
    subprocess.run([npm, "ci", *options], cwd=directory, check=True, timeout=300)
    return directory


@pytest.fixture(scope="session")
def pypi_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a virtual environment with the packages of ``python/clients.lock``."""
    directory = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin" / "python"
    install("clients.lock", into=python)
    return python


@pytest.fixture(scope="session")
def fastapi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for ``PYTHONPATH`` with FastAPI, which the environment of the services has not."""
    directory = tmp_path_factory.mktemp("fastapi")
    install("fastapi.lock", "--target", str(directory))
    return directory


def install(lock: str, *options: str, into: Path = Path(sys.executable)) -> None:
    """Install the packages of a lock file of ``python/`` for an interpreter."""
    file = Path(__file__).parent / "python" / lock
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", into, "--quiet", "--disable-pip-version-check"]
    chosen = ["--require-hashes", "--only-binary", ":all:", "--no-compile"]
    subprocess.run([*pip, "install", *options, *chosen, "--requirement", file], check=True, timeout=300)


@pytest.fixture(scope="session")
def inspector(npm_packages: Path) -> Inspector:
    """Checks pages."""
    return Inspector((npm_packages / "node_modules/axe-core/axe.min.js").read_text())


@pytest.fixture(scope="session")
def goodbye() -> str:
    """The address after signing out."""
    return "https://app.example.com/goodbye"


@pytest.fixture(scope="session")
def application(world: World, goodbye: str) -> Client:
    """A web application with a secret."""
    created = world.management.applications.create(
        name="A web application",
        type="Traditional",
        oidc_client_metadata={"redirectUris": [REDIRECT_URI], "postLogoutRedirectUris": [goodbye]},
        custom_client_metadata={"allowTokenExchange": True},
    )
    return Client(created.id, world.management.applications.create_secret(created.id, "first").value)


@pytest.fixture
def person(world: World) -> Person:
    """A user who may read and write things."""
    person = Person(world)
    world.management.users.assign_roles(person.user_id, [world.keeper_role])
    return person
