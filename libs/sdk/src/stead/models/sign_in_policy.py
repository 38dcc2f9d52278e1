"""The policy of signing in."""

from __future__ import annotations

from stead.models.versions import Versioned


class SignInPolicy(Versioned, frozen=True, kw_only=True, rename="camel"):
    """Who may register.

    Attributes:
        registration: Which e-mail addresses may register: ``off``; ``invited`` for those with an open invitation to an
            organization, ``domains`` for those of some domains, ``open`` for all.
        registration_domains: The domains of ``domains``, sorted, as A-labels (``xn--…``) in lower case.
    """

    registration: str = "off"
    registration_domains: tuple[str, ...] = ()
