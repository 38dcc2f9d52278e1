"""Rendering of pages: templates in every language."""

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from identity_common.pages.bidi_isolation import isolate_in_texts
from identity_common.pages.languages import Language, Languages


def environments(templates: Path, languages: Languages, **values: object) -> Mapping[str, Environment]:
    """Return the templates of a directory in each language, by its tag; the values are known to all of them."""
    return {tag: environment(templates, language, **values) for tag, language in languages.by_tag.items()}


def environment(directory: Path, language: Language, **values: object) -> Environment:
    """Return the templates of a directory in a language; the values are known to all of them."""
    templates = Environment(
        loader=FileSystemLoader(directory),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    templates.policies["ext.i18n.trimmed"] = True
    isolate_in_texts(templates, language.translations)
    templates.globals |= {"language": language.tag, "direction": language.direction, **values}
    return templates
