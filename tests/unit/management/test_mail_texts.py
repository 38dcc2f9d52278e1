"""The texts of mail: every kind in every language, from the values that it needs."""

import re
from email.headerregistry import Address
from html.parser import HTMLParser
from typing import Final, get_args, get_type_hints

import msgspec
import pytest

from identity_common.smtp_address import MalformedSmtpAddressError, SmtpAddress
from identity_common.wire.mail import Mail, MailKind
from management_service.mail.message import message_of
from management_service.mail.texts import LANGUAGES, VALUES, Look, MailTexts, UnusableMailError
from management_service.settings import Settings

TEXTS = MailTexts(base_url="https://id.test")
LOOK = Look("Acme", "#aa0055")
OPTIONAL = {"inviter": "Grace", "message": "Welcome!\nYours", "link": "/a", "by": "administrator"}


def mail(kind: MailKind, language: str, **others: str) -> Mail:
    given = {"link": "/sign-in/x?a=1&b=2#secret", "minutes": "15", "factor": "passkey", "left": "3"}
    needed = {name: given.get(name, f"the {name}") for name in VALUES[kind]}
    return Mail(kind=kind, recipient="ada@id.test", language=language, values=others | needed)


@pytest.mark.parametrize("language", LANGUAGES.by_tag)
def test_every_kind_has_a_text_in_every_language(language: str) -> None:
    assert set(VALUES) == set(get_args(MailKind))
    for kind, needed in VALUES.items():
        for others in ({}, OPTIONAL):
            text = TEXTS.text(mail(kind, language, **others), LOOK)
            assert (text.language, "\n" in text.subject) == (language, False)
            for name in needed:
                link = "https://id.test/sign-in/x?a=1&b=2#secret"
                shown = link if name == "link" else mail(kind, language).values[name]
                assert shown.casefold() in (text.plain + text.subject).casefold(), (kind, name)
            assert "<" not in text.plain
            assert text.html.count("https://") == 2 * ("link" in needed or bool(others))


HARMLESS_TAGS: Final = frozenset(
    ("html", "head", "meta", "title", "body", "div", "p", "span", "a", "b", "bdi", "br", "blockquote")
)
HARMLESS_ATTRIBUTES: Final = frozenset({"lang", "dir", "charset", "name", "content", "href", "style"})


class Resources(HTMLParser):
    """Collects what a reader of mail could load, and where links lead."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: set[str] = set()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a":
            self.links.add(given.pop("href") or "")
        style = given.get("style") or ""
        if tag not in HARMLESS_TAGS or given.keys() - HARMLESS_ATTRIBUTES or re.search(r"url|image|@|\\|//", style):
            self.loaded.append(self.get_starttag_text() or tag)


HOSTILE: Final = "\"'><img src=//evil.test/a.png><style>@import url(//evil.test)</style><link href=//evil.test/a.css>"


@pytest.mark.parametrize("language", LANGUAGES.by_tag)
@pytest.mark.parametrize("look", [LOOK, Look(HOSTILE, "#000000")], ids=["named", "hostile"])
def test_no_mail_loads_anything_or_leads_elsewhere(language: str, look: Look) -> None:
    hostile = dict.fromkeys(("inviter", "message", "organization", "address", "provider", "factor", "code"), HOSTILE)
    for kind in VALUES:
        for others in ({}, OPTIONAL, hostile, {"factor": "identity", "provider": HOSTILE}):
            made = mail(kind, language)
            made = msgspec.structs.replace(made, values={**made.values, **others})
            sender, recipient = Address("Acme", "no-reply", "id.test"), Address("", "ada", "id.test")
            message = message_of(TEXTS.text(made, look), sender=sender, recipient=recipient, mail_id="m", queued_at=1)
            plain, html = message.iter_parts()
            assert [each.get_content_type() for each in (plain, html)] == ["text/plain", "text/html"]
            resources = Resources(html.get_content())
            assert resources.loaded == [], (kind, others)
            assert resources.links == ({f"https://id.test{made.values['link']}"} if "link" in made.values else set())


def test_every_text_of_another_language_is_translated() -> None:
    for tag in set(LANGUAGES.by_tag) - {"en"}:
        for kind in VALUES:
            assert TEXTS.text(mail(kind, tag), LOOK).subject != TEXTS.text(mail(kind, "en"), LOOK).subject


def test_mail_about_a_factor_names_it_and_says_who_removed_it() -> None:
    mails = {
        (factor, *by): TEXTS.text(
            Mail(kind="factor-removed", recipient="a@b.test", values={"link": "/account", "factor": factor, **by}), LOOK
        ).plain
        for factor in ("passkey", "authenticator", "all")
        for by in ({}, {"by": "administrator"})
    }
    assert len(set(mails.values())) == 6
    assert {key[1:] for key, text in mails.items() if "An administrator did this." in text} == {("by",)}
    added = Mail(kind="factor-added", recipient="a@b.test", values={"link": "/account", "factor": "authenticator"})
    assert "An authenticator app was set up for your account at Acme." in TEXTS.text(added, LOOK).plain


@pytest.mark.parametrize(
    ("minutes", "duration"),
    [
        (1, "1 minute"),
        (60, "1 hour"),
        (119, "119 minutes"),
        (179, "2 hours"),
        (1440, "1 day"),
        (2879, "47 hours"),
        (10081, "7 days"),
    ],
)
def test_a_duration_has_one_unit_and_is_not_longer_than_the_link_is_valid(minutes: int, duration: str) -> None:
    values = {"link": "/a", "organization": "Acme", "minutes": str(minutes)}
    text = TEXTS.text(Mail(kind="organization-invitation", recipient="a@b.test", values=values), LOOK)
    assert f"valid for {duration}." in text.plain


def test_an_unknown_language_gets_the_default() -> None:
    assert MailTexts(base_url="https://id.test", language="de").text(mail("registration", "tlh"), LOOK).language == "de"
    assert set(get_args(get_type_hints(Settings)["mail_language"])) == set(LANGUAGES.by_tag)


def test_names_are_isolated_only_where_the_direction_of_the_text_changes() -> None:
    def subject(organization: str) -> str:
        values = {"link": "/a", "organization": organization, "minutes": "15"}
        return TEXTS.text(Mail(kind="organization-invitation", recipient="a@b.test", values=values), LOOK).subject

    assert subject("Acme") == "Invitation to Acme"
    assert subject("\u05d0\u05d1") == "Invitation to \u2068\u05d0\u05d1\u2069"


@pytest.mark.parametrize("link", ["https://evil.test/", "//evil.test", "a", "", "/a b", "/a\n", "/\u00e4", "/\\evil"])
def test_a_link_is_a_path_below_our_own_address(link: str) -> None:
    values = {"link": link, "minutes": "15"}
    with pytest.raises(UnusableMailError):
        TEXTS.text(Mail(kind="registration", recipient="a@b.test", values=values), LOOK)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("smtps://mail.test", ("mail.test", 465, True, None, None)),
        ("smtp://a%40b:p%3Aq@mail.test:2525", ("mail.test", 2525, False, "a@b", "p:q")),
        ("smtp://[::1]", ("::1", 587, False, None, None)),
    ],
)
def test_addresses_of_mail_servers_are_read(text: str, address: tuple[object, ...]) -> None:
    assert msgspec.structs.astuple(SmtpAddress.parse(text)) == address


@pytest.mark.parametrize(
    "text",
    [
        "mail.test",
        "http://mail.test",
        "smtp://",
        "smtp://mail.test/a",
        "smtp://a@mail.test",
        "smtp://m:x",
        "smtp://m?a",
    ],
)
def test_other_texts_are_not_addresses_of_mail_servers(text: str) -> None:
    with pytest.raises(MalformedSmtpAddressError):
        SmtpAddress.parse(text)
