"""Rendering of pages: templates in every language, and the headers that protect a page."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

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


def page_headers(form_action: str = "", *, logo: str | None = None, nonce: str | None = None) -> dict[str, str]:
    """Return the headers that protect a page.

    No frames, no foreign content except the logo, no script except the one with the nonce, no caching, no referrer.
    """
    policy = ["default-src 'none'", "style-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"]
    policy += [f"script-src 'nonce-{nonce}'"] if nonce else []
    policy += [f"img-src {_origin(logo)}"] if logo else []
    policy += [f"form-action 'self' {form_action}".rstrip()]
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def _origin(uri: str) -> str:
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}"
