"""The canonical form of names, what they may not contain, and their order."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.failures import Conflict
from identity_common.names import accepted_name, by_name, canonical_name, find_invisible, name_problem, sort_key

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"


@given(st.text())
def test_a_canonical_name_is_composed_and_has_single_spaces_between_words(text: str) -> None:
    name = canonical_name(text)
    assert canonical_name(name) == name == unicodedata.normalize("NFC", name)
    assert name.split() == name.split(" ") or name == ""
    for other in (unicodedata.normalize("NFD", text), f"\u3000{text}\n", text.replace(" ", "\u00a0\t")):
        assert canonical_name(other) == name


@given(st.text())
def test_what_is_accepted_is_visible_and_stays_as_it_is(text: str) -> None:
    try:
        name = accepted_name(text)
    except Conflict as refused:
        assert (refused.code, refused.data and [issue.path for issue in refused.data.issues]) == (
            "entity.invalid_name",
            ["name"],
        )
        assert accepted_name(text, stored=text) == text
    else:
        assert accepted_name(name) == name == canonical_name(text)
        assert name.strip()
        assert not any(unicodedata.category(each) == "Cc" for each in name)


@pytest.mark.parametrize(
    "name",
    [
        "Ada", "Ä", "山田\u3000太郎", "O\u2019Brien", FAMILY, ENGLAND, "\u2764\ufe0f", "1\ufe0f\u20e3", "\u2139\ufe0f",
        "\U0001f642\u200d\u2194\ufe0f", "\U0001f469\U0001f3fd\u200d\U0001f680", "می\u200cخو\u0627\u0647م",
        "क\u094d\u200dष", "അവന\u0d4d\u200d", "র\u200d\u09cdয", "ශ\u0dca\u200dර", "葛\U000e0100城", "\u1820\u180b",
        "\ue000",
    ],
)  # fmt: skip
def test_scripts_and_emoji_have_the_invisible_characters_that_they_need(name: str) -> None:
    assert (find_invisible(name), name_problem(canonical_name(name))) == (None, None)


@pytest.mark.parametrize(
    ("name", "invisible"),
    [
        *((f"a{character}b", character) for character in (
            "\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2066\u2069\ufeff\xad\u034f\u061c\u180e\u115f\u3164\uffa0"
            "\u2800\ufe0f\ufe00\x07\x7f\x9f\ufff9\ufffc\ufffe\ufdd0\U000e0041\U000e0100\U0001d173\U0010ffff"
        )),
        ("\u3164", "\u3164"), ("\u200d", "\u200d"), ("\ufe0f", "\ufe0f"), ("علی\u200d", "\u200d"),
        ("ی\u200c\u200cخ", "\u200c"),
        ("\u2764\u200d", "\u200d"), ("\u2764\u200c\u2764", "\u200c"), ("A\ufe0f", "\ufe0f"), ("\u0627\ufe0f", "\ufe0f"),
        ("a\U000e007f", "\U000e007f"), ("क\u200d", "\u200d"),
    ],
)  # fmt: skip
def test_an_invisible_character_that_changes_nothing_is_refused_by_name(name: str, invisible: str) -> None:
    assert find_invisible(name) == invisible
    assert name_problem(name) == f"must not contain the invisible character U+{ord(invisible):04X}"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "must not be blank"),
        (" \t\u3000\n", "must not be blank"),
        ("\u0958" * 129, "must not be longer than 256 characters"),  # two characters in NFC
    ],
)
def test_a_blank_name_and_one_that_composing_makes_too_long_are_refused(name: str, problem: str) -> None:
    assert name_problem(canonical_name(name)) == problem


@given(st.text(st.characters(exclude_categories=["Cn", "Cs"])))
def test_the_order_ignores_composition_and_ascii_case(text: str) -> None:
    assert sort_key(unicodedata.normalize("NFD", text)) == sort_key(unicodedata.normalize("NFC", text))
    assert sort_key(f"A{text}") == sort_key(f"a{text}")
    assert sort_key(text.replace("ß", "ss")) == sort_key(text)


@pytest.mark.parametrize(
    "names",
    [
        ["Äpfel", "apple", "Banana", "Zucchini"],
        ["Lodz", "Łódź", "Lublin"],
        ["Strasse", "Straße", "Straßen"],
        ["Oslo", "Østfold", "Otto"],
        ["O'Brien", "O\u2019Brien", "Oakley"],
        ["ёж", "Ёлка", "Ель"],
        ["Αθήνα", "Βόλος", "ΓΑΛΑΤΑΣ"],
        ["\u0131rmak", "\u0130zmir", "Izola"],
        ["가", "각", "나"],
        ["か", "が", "き"],
    ],
)
def test_names_are_in_the_order_of_people(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(backwards, key=by_name) == names
