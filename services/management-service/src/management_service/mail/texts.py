"""The texts of mail: a template for each kind, in every language, as plain text and as HTML."""

import re
import unicodedata
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, Final, NamedTuple

from identity_common.pages.bidi_isolation import FIRST_STRONG_ISOLATE, POP_ISOLATE, displayed
from identity_common.pages.languages import SOURCE_LANGUAGE, Languages
from identity_common.pages.rendering import environments
from identity_common.wire.mail import Mail, MailKind

TEMPLATES: Final = Path(__file__).parent / "templates"
CATALOGUES: Final = Path(__file__).parent / "catalogues"
LANGUAGES: Final = Languages(CATALOGUES)

VALUES: Final[dict[MailKind, tuple[str, ...]]] = {
    "password-recovery": ("link", "minutes"),
    "password-changed": ("link",),
    "email-verification": ("link", "minutes"),
    "email-changed": ("address",),
    "organization-invitation": ("link", "minutes", "organization"),
    "registration": ("link", "minutes"),
    "already-registered": ("link",),
    "enrolment-code": ("code", "minutes"),
    "factor-added": ("factor", "link"),
    "factor-removed": ("factor", "link"),
    "recovery-code-used": ("left", "link"),
}
"""The values that the text of each kind needs. A template may use others where they are given: see ``templates``."""

_ENVIRONMENTS: Final = environments(TEMPLATES, LANGUAGES)
_ISOLATION: Final = {ord(FIRST_STRONG_ISOLATE): None, ord(POP_ISOLATE): None}
_BLANKS: Final = re.compile(r"\s+")
_TAG: Final = re.compile(r"<[^>]*>")
_PARAGRAPH: Final = re.compile(r"<p>(.*?)</p>", re.DOTALL)


class UnusableMailError(Exception):
    """A mail from which no text can be made, however often it is tried; the message says why, without its values."""


class Look(NamedTuple):
    """In whose name a mail is sent.

    Attributes:
        name: Of the application, or of the tenant.
        color: Of its buttons, ``#rrggbb``.
    """

    name: str
    color: str


class Text(NamedTuple):
    """The text of a mail.

    Attributes:
        subject: One line.
        plain: As plain text.
        html: As HTML, which loads nothing.
        language: Its tag.
    """

    subject: str
    plain: str
    html: str
    language: str


class MailTexts:
    """Makes the texts.

    Args:
        base_url: What links begin with; the only address in a mail besides those in values.
        language: Of mails that name none, or one that has no catalogue.
    """

    def __init__(self, *, base_url: str, language: str = SOURCE_LANGUAGE) -> None:
        self._base_url = base_url
        self._language = language

    def text(self, mail: Mail, look: Look) -> Text:
        """Return the text of a mail.

        Raises:
            UnusableMailError: A value is missing or malformed.
        """
        missing = [name for name in VALUES[mail.kind] if not mail.values.get(name)]
        if missing:
            raise UnusableMailError(f"no {', '.join(missing)}")
        language = LANGUAGES.requested(mail.language) or self._language
        environment = _ENVIRONMENTS[language]
        url = self._url(mail.values.get("link"))
        values: dict[str, Any] = {
            "name": look.name,
            "color": look.color,
            "url": url,
            "minutes": _minutes(mail.values.get("minutes")),
            "values": mail.values,
        }
        parts: Any = environment.get_template(f"{mail.kind}.html").make_module(values)
        subject = _line(parts.subject)
        message = _lines(mail.values.get("message", ""))
        html = environment.get_template("layout.html").render(
            **values, subject=subject, message=message, before=parts.before, action=parts.action, after=parts.after
        )
        blocks = [*_paragraphs(parts.before)]
        if message:
            blocks.append("\n".join(f"> {line}" for line in message))
        if url is not None:
            blocks.append(f"{_line(parts.action)}:\n{url}")
        blocks += [*_paragraphs(parts.after), f"-- \n{displayed(look.name)}"]
        return Text(subject=subject, plain="\n\n".join(blocks) + "\n", html=html, language=language)

    def _url(self, link: str | None) -> str | None:
        if link is None:
            return None
        if (
            not link.startswith("/")
            or link.startswith("//")
            or any(not "!" <= each <= "~" or each == "\\" for each in link)
        ):
            raise UnusableMailError("link is not a path below base_url")
        return self._base_url + link


def _minutes(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise UnusableMailError("minutes is not a number")
    return int(text)


def _line(markup: str) -> str:
    """Return markup of ours as one line of plain text."""
    marked = str(markup).replace("<bdi>", FIRST_STRONG_ISOLATE).replace("</bdi>", POP_ISOLATE)
    text = _BLANKS.sub(" ", _TAG.sub("", marked)).strip()
    return _without_needless_isolation(unescape(text))


def _paragraphs(markup: str) -> Iterator[str]:
    return map(_line, _PARAGRAPH.findall(markup))


def _lines(text: str) -> list[str]:
    """Return the lines of a text of many, each as names are shown."""
    return [displayed(line) for line in text.splitlines()]


def _without_needless_isolation(text: str) -> str:
    """Return a text without isolates if all of it runs from left to right: filters of mail distrust such characters."""
    if any(unicodedata.bidirectional(each) in {"R", "AL", "AN"} for each in text):
        return text
    return text.translate(_ISOLATION)
