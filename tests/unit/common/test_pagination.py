"""Pages of lists: what a query asks for, and where the headers lead."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.failures import Invalid
from identity_common.http.pagination import list_headers, read_flag, read_page
from identity_common.paging import Page


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("page=1", Page(1, 20)),
        ("page=3&page_size=7", Page(3, 7)),
        ("page_size=100", Page(1, 100)),
        ("a=b&page=2&c", Page(2, 20)),
        ("page=007", Page(7, 20)),
        ("page=%32", Page(2, 20)),
        ("page=2147483647", Page(2**31 - 1, 20)),
    ],
)
def test_a_page_is_read_from_a_query(query: str, page: Page) -> None:
    assert read_page(query.encode(), whole_by_default=True) == page
    assert read_page(query.encode(), whole_by_default=False) == page


def test_a_query_without_a_page_asks_for_the_first_or_for_everything() -> None:
    for query in (b"", b"other=x", b"Page=2", b"&&="):
        assert read_page(query, whole_by_default=False) == Page(1, 20)
        assert read_page(query, whole_by_default=True) == Page(1, None)


@given(st.binary(max_size=60) | st.text(alphabet="page_size=&%0123456789-+.e", max_size=40).map(str.encode))
def test_every_query_is_a_page_or_refused(query: bytes) -> None:
    try:
        page = read_page(query, whole_by_default=False)
    except Invalid as error:
        assert error.code == "guard.invalid_pagination"
    else:
        assert page.number >= 1
        assert page.size is not None
        assert 1 <= page.size <= 100
        assert page.offset < 2**63


@given(st.integers(1, 30), st.integers(1, 100), st.integers(0, 500))
def test_the_links_lead_to_pages_that_exist_and_next_reaches_the_last(number: int, size: int, total: int) -> None:
    headers = list_headers(address="https://x/api/y", query_string=b"q=%26", page=Page(number, size), total=total)
    found = {
        relation: int(page)
        for page, relation in re.findall(
            rf'<https://x/api/y\?q=%26&page=(\d+)&page_size={size}>; rel="(\w+)"', headers["Link"]
        )
    }
    last = max(1, -(-total // size))
    assert headers["Total-Number"] == str(total)
    assert (found["first"], found["last"]) == (1, last)
    assert ("next" in found) is (number < last)
    assert ("prev" in found) is (number > 1)
    assert all(1 <= page <= last for page in found.values())


def test_a_whole_list_has_its_number_and_no_links() -> None:
    headers = list_headers(address="https://x/api/y", query_string=b"", page=Page(size=None), total=3)
    assert headers == {"Total-Number": "3"}


def test_the_search_term_is_in_q_or_search_and_the_last_one_counts() -> None:
    for query, search in (
        (b"q=x", "x"),
        (b"search=%25a%25b%25", "a%b"),
        (b"q=x&search=y", "y"),
        (b"search=y&q=", ""),
        (b"Q=x", ""),
        (b"q=%C3%84", "Ä"),
    ):
        assert read_page(query, whole_by_default=False) == Page(1, 20, search)
        assert read_page(query + b"&page=2", whole_by_default=True) == Page(2, 20, search)
    with pytest.raises(Invalid) as refused:
        read_page(b"q=%00", whole_by_default=True)
    assert refused.value.code == "guard.invalid_input"


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", False), ("a=true", False), ("flag=true", True), ("flag=1&a", True), ("flag=false", False), ("flag=0", False)],
)
def test_a_flag_is_true_false_or_left_out(query: str, expected: object) -> None:
    assert read_flag(query.encode(), "flag") is expected


@pytest.mark.parametrize("query", ["flag", "flag=", "flag=yes", "flag=TRUE", "flag=1&flag=1", "flag=%00", "flag=%FF"])
def test_any_other_value_of_a_flag_is_refused(query: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_flag(query.encode(), "flag")
    assert refused.value.code == "guard.invalid_input"
