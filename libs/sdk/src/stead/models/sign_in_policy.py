"""The policy of signing in."""

from __future__ import annotations

from stead.models.versions import Versioned


class SignInPolicy(Versioned, frozen=True, kw_only=True, rename="camel"):
    """Who may register, and whether users need a second factor.

    Attributes:
        registration: Which e-mail addresses may register: ``off``; ``invited`` for those with an open invitation to an
            organization, ``domains`` for those of some domains, ``open`` for all.
        registration_domains: The domains of ``domains``, sorted, as A-labels (``xn--…``) in lower case.
        second_factor: Whether users sign in with a second factor: ``off``, none can be set up; ``optional``, with one
            that they have set up; ``required``, all of them. A passkey counts as one.
    """

    registration: str = "off"
    registration_domains: tuple[str, ...] = ()
    second_factor: str = "optional"
