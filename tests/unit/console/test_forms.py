"""Forms of the console: what of them was changed, and values that no field of one line can hold."""

import pytest
from msgspec import UNSET

from console.areas.template import Cell, Permission, _differences
from console.forms import BadForm, Form
from console.rendering import Look, Pages
from tests.unit.console.test_look import FRAME


def test_only_what_differs_from_what_the_page_showed_is_changed() -> None:
    shown = Form.editing('"1"', name="a\r\nb\rc", ttl=None, isDefault=True, isOpen=False).fields
    assert shown["name"] == ["a\nb\nc"]
    form = Form({name: values for name, values in shown.items() if name != "isOpen"})
    readers = {"name": Form.value, "ttl": Form.number, "isDefault": Form.is_checked, "isOpen": Form.is_checked}
    assert {form.changed(name, read) for name, read in readers.items()} == {UNSET}
    form = Form({**shown, "name": ["a\nb\nc "], "ttl": ["5"], "isDefault": [], "isOpen": ["yes"]})
    assert {name: form.changed(name, read) for name, read in readers.items()} == {
        "name": "a\nb\nc ",
        "ttl": 5,
        "isDefault": False,
        "isOpen": True,
    }


def test_a_value_of_several_lines_is_shown_in_several_lines() -> None:
    values = {**FRAME, "area": "organizations", "form": Form.of(name="\na\r\nb")}
    html = str(Pages(Look("Stead")).render("organizations/new.html", "en", **values).content)
    assert '<textarea id="name" name="name"' in html
    assert ">\n\na\nb</textarea>" in html
    assert '<input id="name"' not in html


@pytest.mark.parametrize(
    ("problem", "language", "said"),
    [
        ("Expected `str` of length >= 1", "en", "Enter something here."),
        ("Expected `str` of length >= 1", "de", "Geben Sie hier etwas ein."),
        ("No mail is sent here: an operator has to set SMTP_URL.", "de", "Hier wird keine E-Mail verschickt"),
    ],
)
def test_what_the_api_says_to_programs_is_said_plainly(problem: str, language: str, said: str) -> None:
    form = Form.of(name="")
    form.errors, form.problem = {"name": problem}, problem
    values = {**FRAME, "area": "organizations", "form": form}
    html = str(Pages(Look("Stead")).render("organizations/new.html", language, **values).content)
    assert html.count(said) == 2
    assert "Expected" not in html


def test_a_column_of_the_matrix_may_have_line_breaks_in_its_name() -> None:
    shown = {"role": ['"a\\r\\nb"'], "permission": ["read "], "was": [""]}
    assert _differences(Form({**shown, "cell": ["0.0"]})) == ([Cell("a\r\nb", Permission("read"))], [])
    with pytest.raises(BadForm):
        _differences(Form({**shown, "role": ["a"], "cell": ["0.0"]}))


def test_choices_of_the_largest_form_are_told_apart_without_comparing_each_with_each() -> None:
    compared: list[object] = []

    class Value(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return str.__eq__(self, other)

    now, was = ([Value(f"{name}{number}") for number in range(2_000)] for name in ("a", "b"))
    added, removed = Form({"held": [*now, "kept"], "was.held": [*was, "kept"]}).choices("held")
    assert (added, removed) == (now, was)
    assert len(compared) < 20_000
