"""Our cookies among those of others (RFC 6265)."""

from __future__ import annotations

import pytest

from identity_common.pages.cookies import Cookies
from token_service.sign_in.pages.cookies import SESSION

FOREIGN = ['prefs={"theme":"dark"}', "a[b]=1", "n=café", "n=\x85\xa0", "x", "=", "", "a=b=c", 'q="x', "$Version=1"]


def read(*lines: str, secure: bool = False) -> str | None:
    headers = [(b"host", b"x"), *((b"cookie", line.encode("latin-1")) for line in lines)]
    return Cookies(secure=secure).read(headers, SESSION)


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_cookie_does_no_harm(foreign: str) -> None:
    ours = f"{SESSION}=s-1_x"
    assert read(f"{foreign}; {ours}") == "s-1_x"
    assert read(f"{ours}; {foreign}") == "s-1_x"
    assert read(f"{foreign};{ours} ;{foreign}") == "s-1_x"
    assert read(foreign, ours) == "s-1_x"
    assert read(foreign) is None


def test_a_name_is_ours_only_as_it_is_written() -> None:
    """Parsers that strip Unicode whitespace turn a neighbour's cookie into one with the prefix."""
    for name in ("x" + SESSION, SESSION + "x", SESSION.upper(), f"\xa0{SESSION}", f"\x0b{SESSION}"):
        assert read(f"{name}=stolen") is None
    for name in (SESSION, f"__host-{SESSION}", f"\xa0__Host-{SESSION}", f"=__Host-{SESSION}"):
        assert read(f"{name}=stolen", secure=True) is None
    assert read(f"__Host-{SESSION}=mine", secure=True) == "mine"


def test_a_neighbour_cannot_put_a_cookie_beside_ours() -> None:
    """With https the browser prevents it: it accepts ``__Host-`` from this host alone, once."""
    assert read(f"{SESSION}=tossed; {SESSION}=mine") is None
    assert read(f"{SESSION}=mine", f"{SESSION}=tossed") is None
    assert read(f"{SESSION}=mine; {SESSION}=mine") == "mine"
    assert read(f"{SESSION}=tossed; __Host-{SESSION}=mine", secure=True) == "mine"
