"""Values in the texts of pages are isolated, whatever they contain."""

from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment
from markupsafe import Markup

from identity_common.pages.bidi_isolation import displayed, filled, isolated, plain
from identity_common.pages.languages import Languages
from identity_common.pages.rendering import environment

RLO, FSI, PDI = "\u202e", "\u2068", "\u2069"


@pytest.fixture
def templates(tmp_path: Path) -> Environment:
    return environment(tmp_path, Languages(tmp_path).by_tag["en"])


def rendered(templates: Environment, template: str, **values: object) -> str:
    templates.loader = DictLoader({"page": template})
    return templates.get_template("page").render(**values)


def test_every_value_of_a_text_is_isolated(templates: Environment) -> None:
    text = "{% trans name, other=other %}<strong>{{ name }}</strong> of {{ other }} is here.{% endtrans %}"
    assert rendered(templates, text, name=f"{RLO}ada", other="<b>") == (
        f"<strong><bdi>{RLO}ada</bdi></strong> of <bdi>&lt;b&gt;</bdi> is here."
    )


def test_numbers_and_attributes_are_not(templates: Environment) -> None:
    text = '{% trans count, path %}<a href="{{ path }}">{{ count }} of {{ path }}</a>{% pluralize %}x{% endtrans %}'
    assert rendered(templates, text, count=1, path="/p") == '<a href="/p">1 of <bdi>/p</bdi></a>'


@pytest.mark.parametrize("name", ["message", "singular", "plural", "number", "values"])
def test_a_value_may_have_any_name(templates: Environment, name: str) -> None:
    assert (
        rendered(templates, f"{{% trans {name} %}}say {{{{ {name} }}}}{{% endtrans %}}", **{name: "x"})
        == "say <bdi>x</bdi>"
    )


def test_calls_are_isolated_like_blocks(templates: Environment) -> None:
    text = '{{ gettext("Allow %(name)s?", name=name) }}{{ ngettext("%(num)s x %(name)s", "y", 1, name=name) }}'
    assert rendered(templates, text, name="a&b") == "Allow <bdi>a&amp;b</bdi>?1 x <bdi>a&amp;b</bdi>"


@pytest.mark.parametrize("breaking", [*"\u2066\u2067\u2068\u2069", *"\n\r\x1c\x1d\x1e\x85\u2029"])
def test_nothing_in_a_name_ends_its_isolation(breaking: str) -> None:
    assert breaking not in isolated(f"a{breaking}{RLO}b")


def test_a_name_is_displayed_without_what_would_end_its_isolation_and_with_single_blanks() -> None:
    assert displayed(f" a\u2069 \t\u2029b{RLO}\xa0 c") == f" a b{RLO}\xa0 c"
    assert isolated("a \n<b>") == Markup("<bdi>a &lt;b&gt;</bdi>")


def test_markup_of_a_value_is_kept() -> None:
    assert isolated(Markup("<time>now</time>")) == Markup("<bdi><time>now</time></bdi>")
    assert filled("at %(time)s, 100%%", {"time": Markup("<i>1</i>")}) == Markup("at <bdi><i>1</i></bdi>, 100%")


def test_a_title_has_characters_instead_of_elements(templates: Environment) -> None:
    text = "<title>{% filter plain %}{% trans name %}Sign in to {{ name }}{% endtrans %}{% endfilter %}</title>"
    assert rendered(templates, text, name="a<b") == f"<title>Sign in to {FSI}a&lt;b{PDI}</title>"
    assert plain(isolated("a")) == f"{FSI}a{PDI}"


def test_names_of_a_list_are_isolated_from_each_other(templates: Environment) -> None:
    assert rendered(templates, "{{ names | listed }}", names=["a", RLO]) == f"<bdi>a</bdi>, <bdi>{RLO}</bdi>"
