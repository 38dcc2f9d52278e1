"""The statements of docs/operations/rotation.md, which tests execute."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations" / "rotation.md"


def statements(language: str) -> list[str]:
    """Return the lines of the document's blocks in a language, ``sql before`` for example."""
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert blocks, language
    return [line for block in blocks for line in block.splitlines()]
