"""The form of a token request: what is read, what is refused, and that nothing else ever comes out."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from token_service.grants.form import FormParameters, parse_form, require_form_content_type
from token_service.grants.oauth_errors import OAuthError

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
NAMES = TEXT.filter(lambda name: name != "resource")


def refusal(body: bytes) -> tuple[str, str, int]:
    with pytest.raises(OAuthError) as refused:
        parse_form(body)
    return refused.value.error, refused.value.description, refused.value.status


@pytest.mark.heavy
@given(parameters=st.dictionaries(NAMES, TEXT, max_size=20), resources=st.lists(TEXT, max_size=20))
@example(parameters={"scope": "a b+c%d&e=f;g"}, resources=["https://a.example/?x=1&y=2#"])
def test_whatever_urlencode_writes_is_read_back(parameters: dict[str, str], resources: list[str]) -> None:
    """No character but NUL is refused, and none is changed, normalized or lost on the way in."""
    body = urlencode([*parameters.items(), *(("resource", value) for value in resources)]).encode()

    assert parse_form(body) == FormParameters(
        {name: value for name, value in parameters.items() if value}, tuple(value for value in resources if value)
    )


@given(st.binary(max_size=400))
@example(b"%")
@example(b"%zz=%1")
@example(b"a=%ff")
@example(b"a=\xc3\x28")
@example(b"a=%ed%a0%80")
@example(b"=&=&=")
@example(b"&&&&")
def test_arbitrary_bytes_give_a_form_or_an_oauth_error(body: bytes) -> None:
    """No other error than OAuthError, and every store can hold the accepted text."""
    try:
        form = parse_form(body)
    except OAuthError as error:
        assert (error.error, error.status, error.retry_after_s) == ("invalid_request", 400, None)
    else:
        values = [*form.values.values(), *form.resources]
        assert all(values)
        assert "resource" not in form.values
        for text in [*form.values, *values]:
            assert "\0" not in text
            assert text.encode("utf-8").decode("utf-8") == text


class TestParameters:
    def test_an_empty_one_counts_as_absent(self) -> None:
        """RFC 6749 section 3.2: parameters sent without a value are treated as omitted."""
        form = parse_form(b"scope=&client_id&grant_type=x&resource=&resource")

        assert form == FormParameters({"grant_type": "x"}, ())
        assert (form.get("scope"), form.get("client_id"), form.get("grant_type")) == (None, None, "x")

    @pytest.mark.parametrize("body", [b"", b"&", b"&&&", b"=", b"="])
    def test_there_may_be_none(self, body: bytes) -> None:
        assert parse_form(body) == FormParameters({}, ())

    def test_a_missing_one_that_is_needed_is_named(self) -> None:
        with pytest.raises(OAuthError) as refused:
            parse_form(b"subject_token=").require("subject_token")

        error = refused.value
        assert (error.error, error.description, error.status) == ("invalid_request", "subject_token is required", 400)

    @pytest.mark.parametrize(
        "body",
        [
            b"scope=a&scope=b",
            b"scope=a&scope=a",
            b"scope=&scope=a",
            b"scope=a&scope=",
            b"scope=&scope=",
            b"scope&scope",
            b"scope=a&sc%6fpe=b",
            b"x=1&x=2",
        ],
    )
    def test_a_repeated_one_is_refused_whatever_its_values_and_spelling(self, body: bytes) -> None:
        """Neither of two values is dropped silently, not even an empty one."""
        assert refusal(body) == ("invalid_request", "a parameter is repeated", 400)

    def test_resource_may_be_repeated_and_keeps_its_order(self) -> None:
        """RFC 8707 section 2: ``resource`` alone may be sent more than once."""
        assert parse_form(b"resource=b&x=1&resource=a&r%65source=b").resources == ("b", "a", "b")

    def test_names_are_compared_byte_for_byte(self) -> None:
        """Names that differ in case or composition are different names."""
        assert parse_form(b"Scope=a&scope=b&SCOPE=c").values == {"Scope": "a", "scope": "b", "SCOPE": "c"}
        assert parse_form("\u00e9=1&e\u0301=2".encode()).values == {"\u00e9": "1", "e\u0301": "2"}

    @pytest.mark.parametrize(
        ("body", "value"),
        [
            (b"x=a+b", "a b"),
            (b"x=a%20b", "a b"),
            (b"x=a%2Bb", "a+b"),
            (b"x=a=b", "a=b"),
            (b"x=a%26b", "a&b"),
            (b"x=a;y=b", "a;y=b"),
            (b"x=%zz%", "%zz%"),
            (b"x=%253A%%3A%2%2F", "%3A%:%2/"),
            ("x=\u20ac".encode(), "\u20ac"),
            (b"x=%E2%82%AC", "\u20ac"),
        ],
    )
    def test_percent_and_plus_are_decoded_once(self, body: bytes, value: str) -> None:
        assert parse_form(body).get("x") == value

    def test_a_value_is_decoded_once_only(self) -> None:
        assert parse_form(b"x=%2541%252B").get("x") == "%41%2B"

    @pytest.mark.parametrize("body", [b"a=%00", b"%00=a", b"a=x\0y", b"a=1&resource=%00", b"a\0", b"unknown=%00"])
    def test_a_nul_character_is_refused_wherever_it_stands(self, body: bytes) -> None:
        """Also in a parameter that is not read."""
        assert refusal(body) == ("invalid_request", "a NUL character is not allowed", 400)

    @pytest.mark.parametrize(
        "body", [b"a=%ff", b"%80=a", b"a=\xff", b"a=%c0%80", b"a=%ed%a0%80", b"a=%f5%80%80%80", b"resource=%e2%82"]
    )
    def test_text_that_is_not_utf_8_is_refused(self, body: bytes) -> None:
        """Overlong forms, surrogates and cut characters included; nothing is replaced by a question mark."""
        assert refusal(body) == ("invalid_request", "the form is not valid UTF-8", 400)

    def test_a_form_shows_names_and_no_values(self) -> None:
        """A form in a traceback reveals nothing."""
        form = parse_form(b"client_secret=hunter2&subject_token=sub_secret&resource=https://a.example")

        assert repr(form) == str(form) == "FormParameters(client_secret, subject_token)"


class TestLimits:
    @pytest.mark.parametrize("size", [2**8, 2**16 - 1, 2**16])
    def test_a_form_of_up_to_64_kib_is_read_whole(self, size: int) -> None:
        """At 2^8 and 2^16 bytes not one is missing."""
        value = "v" * (size - 2)

        assert parse_form(f"x={value}".encode()) == FormParameters({"x": value}, ())

    @pytest.mark.parametrize("size", [2**16 + 1, 2**17, 2**20])
    def test_a_larger_one_is_refused(self, size: int) -> None:
        """From 2^16 + 1 bytes on it is refused, not cut."""
        assert refusal(b"x=" + b"v" * (size - 2)) == ("invalid_request", "the form is larger than 64 KiB", 400)

    @pytest.mark.parametrize("name", ["p{}", "resource"])
    def test_64_parameters_are_read_and_65_refused(self, name: str) -> None:
        """Repeated ones and empty ones count as well."""
        pairs = [f"{name.format(number)}=" for number in range(65)]

        assert parse_form("&".join(pairs[:64]).encode()) == FormParameters({}, ())
        assert refusal("&".join(pairs).encode()) == ("invalid_request", "more than 64 parameters", 400)

    @pytest.mark.parametrize("count", [2**8, 2**14])
    def test_very_many_parameters_are_refused(self, count: int) -> None:
        """There is no silent cap beyond which parameters are ignored."""
        assert refusal(b"a=&" * count) == ("invalid_request", "more than 64 parameters", 400)

    def test_separators_alone_are_not_parameters(self) -> None:
        assert parse_form(b"&" * 2**16) == FormParameters({}, ())


class TestContentType:
    @pytest.mark.parametrize(
        "content_type",
        [
            "application/x-www-form-urlencoded",
            "APPLICATION/X-WWW-Form-Urlencoded",
            "application/x-www-form-urlencoded;charset=utf-8",
            "application/x-www-form-urlencoded; charset=UTF-8",
            'application/x-www-form-urlencoded; charset="utf-8"',
            " application/x-www-form-urlencoded ; charset=utf8",
            "application/x-www-form-urlencoded;",
        ],
    )
    def test_a_form_in_utf_8_is_accepted(self, content_type: str) -> None:
        require_form_content_type(content_type)

    @pytest.mark.parametrize(
        "content_type",
        [
            "",
            "application/json",
            "multipart/form-data; boundary=x",
            "text/plain",
            "application/x-www-form-urlencoded; charset=iso-8859-1",
            "application/x-www-form-urlencoded; charset=utf-16",
            "application/x-www-form-urlencodedx",
            "application/x-www-form-urlencoded, application/json",
            "x" * 2**16,
        ],
    )
    def test_everything_else_is_415_with_an_oauth_error(self, content_type: str) -> None:
        with pytest.raises(OAuthError) as refused:
            require_form_content_type(content_type)

        error = refused.value
        assert (error.error, error.description, error.status) == (
            "invalid_request",
            "the body must be application/x-www-form-urlencoded",
            415,
        )
