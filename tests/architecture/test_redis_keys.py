"""Every key that a service builds is in one of the tables of what is stored in Redis, and by what request."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs/operations/sizing.md").read_text().partition("## What anyone can store in Redis")[2]
KEY = re.compile(r'f"identity:\{(?:self\._)?tenant_id\}:([a-z-]+)')
COUNTED = re.compile(r'AddressLimit\(\s*\S+,\s*"([a-z-]+)"')


def test_every_kind_of_key_is_in_a_table() -> None:
    lines = [line.split("|")[1] for line in SECTION.splitlines() if line.startswith("| `")]
    named = {keys.partition(":")[0] for line in lines for keys in re.findall(r"`([^`]+)`", line)}
    sources = [path.read_text() for folder in ("libs/common", "services") for path in (ROOT / folder).rglob("*.py")]
    built = {kind for source in sources for pattern in (KEY, COUNTED) for kind in pattern.findall(source)}
    assert len(built) >= 15
    assert built - named == set()
