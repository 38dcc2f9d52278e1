"""Addresses of mail, as a header and an envelope can have them. Pure."""

import re
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTPUTF8
from typing import Final

import idna

_ASCII_DOMAIN: Final = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_QUOTED_PAIR: Final = re.compile(r"\\(.)")
_MOST_CHARACTERS: Final = 254


class MalformedAddressError(ValueError):
    """A text is not an address of mail; the message does not contain it."""


def sender_of(mail_from: str) -> Address:
    """Return the sender that a setting names: ``stead@example.com`` or ``Stead <stead@example.com>``.

    Raises:
        MalformedAddressError: It names none.
    """
    text = mail_from.strip()
    if not text.endswith(">"):
        return address_of(text)
    name, bracket, address = text[:-1].rpartition("<")
    if not bracket:
        raise MalformedAddressError("must be an address, or a name and an address in angle brackets")
    return address_of(address, name=name.strip().strip('"'))


def address_of(address: str, *, name: str = "") -> Address:
    """Return an address with its domain in ASCII (RFC 5891 section 4.4).

    Raises:
        MalformedAddressError: No header, or no envelope, can have it.
    """
    local, at, domain = address.rpartition("@")
    if not at or not local or len(address) > _MOST_CHARACTERS:
        raise MalformedAddressError("must have a local part and a domain, and at most 254 characters")
    if not (address + name).isprintable():
        raise MalformedAddressError("must have no control characters")
    try:
        found = Address(name, _unquoted(local), ascii_domain(domain))
        EmailMessage(policy=SMTPUTF8)["To"] = found
    except (HeaderParseError, ValueError, IndexError):
        raise MalformedAddressError("must be an address of mail") from None
    return found


def _unquoted(local: str) -> str:
    """Return a local part without its quotes: ``Address`` adds those that are needed (RFC 5321 section 4.1.2)."""
    is_quoted = len(local) > 2 and local.startswith('"') and local.endswith('"')
    return _QUOTED_PAIR.sub(r"\1", local[1:-1]) if is_quoted else local


def ascii_domain(domain: str) -> str:
    """Return the ASCII form of a domain, in lower case.

    Raises:
        ValueError: It has none.
    """
    found = domain if domain.isascii() else idna.encode(domain, uts46=True).decode()  # IDNAError is a ValueError
    if _ASCII_DOMAIN.fullmatch(found) is None:
        raise ValueError("not a domain")
    return found.lower()
