"""Templates isolate the names that they show outside of translated texts, which isolate their own values."""

import re
from pathlib import Path

import pytest

SERVICES = Path(__file__).parents[2] / "services"
TEMPLATES = sorted(path for path in SERVICES.rglob("templates/**/*.html"))
TEXT = re.compile(r"\{%-?\+?\s*trans\b.*?endtrans\s*\+?-?%\}", re.DOTALL)
OUTPUT = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
CALL = re.compile(r"[\w.]+\(")  # of a macro, which isolates what it shows
NAME = re.compile(r"(?:^|[\s.(])(?:\w+_)?(?:name|username|description|person|brand|application)(?:$|[\s)])")
JOINED = re.compile(r"""\bjoin\((?!" "\)).*|\bjoin\([^)]*\)[\s)]*\|\s*isolated|\{%-?\+?\s*trans\b[^%]*\|\s*join\(.*""")
ALONE = re.compile(r"<(?:option|textarea)\b[^>]*>\n?$")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: "/".join(path.parts[-2:]))
def test_every_name_in_a_text_is_isolated(template: Path) -> None:
    page = TEXT.sub("", template.read_text())
    assert "<bdi>" not in page
    bare = []
    for output in OUTPUT.finditer(page):
        before = page[: output.start()]
        is_attribute = before.rfind("<") > before.rfind(">")
        if NAME.search(output[1]) and not (is_attribute or ALONE.search(before) or CALL.match(output[1])):
            bare.append(output[1])
    assert [each for each in bare if not each.endswith(("| isolated", "| listed", "| xmlattr"))] == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: "/".join(path.parts[-2:]))
def test_names_that_are_joined_are_isolated_from_each_other(template: Path) -> None:
    """With ``listed``; only codes, in which nothing turns around, are joined, by blanks and outside of sentences."""
    assert [match[0] for match in JOINED.finditer(template.read_text())] == []


def test_the_templates_are_found() -> None:
    assert len(TEMPLATES) > 70
