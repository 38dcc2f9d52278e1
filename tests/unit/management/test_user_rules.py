"""Valid values for the members of a user, and when two values count as the same."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.search import identity_key, search_key, search_term
from management_service.phone_numbers import is_phone_number, phone_key
from management_service.users.rules import UserCreation, UserUpdate, canonical, problems


@given(st.text())
def test_a_key_is_the_key_of_itself(text: str) -> None:
    assert identity_key(identity_key(text)) == identity_key(text)


@given(st.text())
def test_composition_and_case_do_not_change_a_key(text: str) -> None:
    for form in ("NFC", "NFD"):
        assert identity_key(unicodedata.normalize(form, text)) == identity_key(text)
    assert identity_key(text.casefold()) == identity_key(text)
    assert identity_key(canonical(text)) == identity_key(text)


@given(st.text())
def test_case_does_not_change_a_key_where_python_can_reverse_it(text: str) -> None:
    if text.upper().casefold() == text.casefold():
        assert identity_key(text.upper()) == identity_key(text)


@given(st.text(min_size=1), st.text(), st.text())
def test_a_part_is_found_in_the_searched_text(middle: str, before: str, after: str) -> None:
    whole = before + middle + after
    if unicodedata.normalize("NFD", whole) == "".join(
        unicodedata.normalize("NFD", part) for part in (before, middle, after)
    ) and identity_key(whole) == identity_key(before) + identity_key(middle) + identity_key(after):
        assert search_term(middle) in search_key(None, whole)


@pytest.mark.parametrize(
    "username", ["alice", "Alice-1", "a.b_c", "żółw", "李", "o'neill", "x" * 128, "🙂", "42", "007a", "+"]
)
def test_valid_usernames_are_accepted(username: str) -> None:
    assert list(problems(UserCreation(username=username))) == []
    assert list(problems(UserUpdate(username=username))) == []


@pytest.mark.parametrize(
    "username",
    ["a b", "a@b", " a", "a\n", "a\u200b", "a\u00a0b", "\ud800", "a\x7f", "\ue000", "4915112345678", "+110", "110"],
)
def test_invalid_usernames_are_refused(username: str) -> None:
    assert [path for path, _ in problems(UserCreation(username=username))] == ["username"]


@pytest.mark.parametrize(
    "email", ["a@b.c", "a+b@example.co.uk", "ü@exämple.com", '"q"@b.c', "o'neill@b.c", "a..b@b.c", "a@straße.de"]
)
def test_valid_email_addresses_are_accepted(email: str) -> None:
    assert list(problems(UserCreation(primary_email=email))) == []


@pytest.mark.parametrize(
    "email",
    [
        "",
        "a",
        "a@",
        "@b.c",
        "a@b",
        "a@b.",
        "a@.c",
        "a@b..c",
        "a@b@c.d",
        "a b@c.d",
        "a@b.c\n",
        "a\u0001b@c.d",
        "a\u200b@c.d",
        "a@b\x7f.c",
        "a@b.c\ue000",
        "\ud800@b.c",
        '"><script>@id.test',
        '"<script>"@id.test',
        '"a@b.c',
        '"a\\"@b.c',
        "a,b@c.d",
        "a;b@c.d",
        "<a@b.c>",
        "a:b@c.d",
        "a@b_c.d",
        "a@[192.0.2.1]",
        "a@<b>.c",
        "a@b.c,d",
        "a@🙂.c",
    ],
)
def test_invalid_email_addresses_are_refused(email: str) -> None:
    assert [path for path, _ in problems(UserCreation(primary_email=email))] == ["primaryEmail"]


@pytest.mark.parametrize(
    "avatar",
    ["https://example.com/a.png", "HTTP://cdn.example.com:8080/~u/(1)?s=64&d=*#top", "https://[::1]/a", "http://a"],
)
def test_valid_avatars_are_accepted(avatar: str) -> None:
    assert list(problems(UserCreation(avatar=avatar))) == []
    assert list(problems(UserUpdate(avatar=avatar))) == []


@pytest.mark.parametrize(
    "avatar",
    ["", "a.png", "/a.png", "//example.com/a.png", "javascript:alert(1)", "data:image/png;base64,AA==", "https:a.png",
     "https://", "https:///a.png", "https://:443/", "https://[::1/a", "https://example.com:x/", "ftp://example.com/a",
     " https://example.com/a", "https://example.com/a b", "https://example.com/\n", 'https://example.com/"><script>',
     "https://example.com/\u202e", "https://ex\u00e4mple.com/"],
)  # fmt: skip
def test_invalid_avatars_are_refused(avatar: str) -> None:
    """It becomes the claim ``picture``, which applications show."""
    assert [path for path, _ in problems(UserCreation(avatar=avatar))] == ["avatar"]
    assert [path for path, _ in problems(UserUpdate(avatar=avatar))] == ["avatar"]


@pytest.mark.parametrize("phone", ["+4915112345678", "4915112345678", "+15551234567", "+390612345678"])
def test_telephone_numbers_in_their_international_form_are_accepted(phone: str) -> None:
    assert is_phone_number(phone)
    assert phone_key(phone).isdigit()


@pytest.mark.parametrize(
    ("phone", "key"),
    [
        ("+610412345679", "61412345679"),
        ("61412345679", "61412345679"),
        ("+44020 79460000", "44020 79460000"),
        ("+4402079460000", "442079460000"),
        ("+390612345678", "390612345678"),  # not a trunk prefix
        ("+540111512345678", "5491112345678"),
        ("+110", "110"),
        ("nobody", "nobody"),
    ],
)
def test_a_number_has_one_key_with_and_without_its_trunk_prefix(phone: str, key: str) -> None:
    assert phone_key(phone) == key


@pytest.mark.parametrize(
    "phone",
    ["", "+", "110", "+110", "015112345678", "+0151123456", "++4915112345678", "+49 151 12345678", "+49151/12345678",
     "+999123456789", "+491", "+1555123456789", "+4915112345678\n", "+٤٩١٥١١٢٣٤٥٦٧٨", "4" * 16, "call me"],
)  # fmt: skip
def test_other_telephone_numbers_are_refused(phone: str) -> None:
    assert not is_phone_number(phone)


@given(st.text())
def test_any_text_is_judged_without_an_error(text: str) -> None:
    list(problems(UserCreation(username=text, primary_email=text, avatar=text)))
    is_phone_number(text)
