"""Every key that a service builds is in one of the tables of what is stored in Redis, and by what request."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs/operations/sizing.md").read_text().partition("## What anyone can store in Redis")[2]
KEY = re.compile(r'f"identity:\{(?:self\._)?tenant_id\}:([a-z-]+)')
OF_A_STREAM = re.compile(r'f"\{[\w.]*stream\}:([a-z-]+)"')
COUNTED = re.compile(r'SourceLimit\(\s*\S+,\s*"([a-z-]+)"')


NAMED = {
    keys
    for line in SECTION.splitlines()
    if line.startswith("| `")
    for keys in re.findall(r"`([^`]+)`", line.split("|")[1])
}
SOURCES = [path.read_text() for folder in ("libs/common", "services") for path in (ROOT / folder).rglob("*.py")]


def test_every_kind_of_key_is_in_a_table() -> None:
    built = {kind for source in SOURCES for pattern in (KEY, COUNTED) for kind in pattern.findall(source)}
    assert len(built) >= 15
    assert built - {keys.partition(":")[0] for keys in NAMED} == set()


def test_every_key_beside_a_log_of_the_audit_trail_is_in_a_table() -> None:
    parts = {part for source in SOURCES for part in OF_A_STREAM.findall(source)}
    assert len(parts) >= 3
    assert {f"audit:exchanges:{part}" for part in parts} - NAMED == set()
