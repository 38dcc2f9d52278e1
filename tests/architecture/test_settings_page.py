"""docs/operations/settings.md: what the structs say, and every variable that the source reads."""

import re
from pathlib import Path

from all_in_one.settings_page import PAGE, page

ROOT = Path(__file__).parents[2]
READ = re.compile(r'environ(?:ment)?(?:\.get\(|\[)"([A-Z_]+)"')
SUBSTITUTED = re.compile(r"\$\{([A-Z_]+)")
OPENTELEMETRY = "OTEL_"  # docs/operations/monitoring.md


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "make settings"


def test_the_page_has_every_variable_that_is_read_without_a_struct() -> None:
    sources = [path.read_text() for part in ("libs", "services") for path in (ROOT / part).rglob("src/**/*.py")]
    read = {name for source in sources for name in READ.findall(source)}
    read |= set(SUBSTITUTED.findall((ROOT / "docker-compose.yml").read_text()))
    assert {"NATS_PASSWORDS", "STOP_WITH_PARENT", "PORT"} <= read
    documented = set(re.findall(r"`([A-Z_]+)`", PAGE.read_text()))
    assert {name for name in read if not name.startswith(OPENTELEMETRY)} - documented == set()


def test_the_addresses_and_keys_alone_are_secret() -> None:
    secret = re.findall(r"^\| `([A-Z_]+)` .* yes \|$", PAGE.read_text(), re.MULTILINE)
    assert sorted(set(secret)) == [
        "AUDIT_HEAD_KEYS",
        "COOKIE_KEYS",
        "DATABASE_URL",
        "ENVIRONMENT_VARIABLE_KEYS",
        "KEY_ENCRYPTION_KEYS",
        "MAIL_KEYS",
        "NATS_PASSWORDS",
        "NATS_URL",
        "POSTGRES_URL",
        "REDIS_URL",
        "SMTP_URL",
    ]
