"""What a provider says about a person, and whether the person may sign in."""

from typing import Any, Final

import msgspec

from identity_common.email_addresses import is_email_address
from identity_common.email_domains import domain_of
from identity_common.names import canonical_name, name_problem
from management_service.connectors import id_tokens
from management_service.connectors.rules import MAX_VALUE, says
from management_service.connectors.store import Connector
from management_service.users.rules import canonical, is_web_address
from stead.verify.acr import Level

MAX_GROUPS: Final = 200
_MAX_AVATAR: Final = 2048


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person who has signed in at a connector's provider.

    Attributes:
        value: What identifies the person there.
        email: The address, if the provider says that it is verified, and speaks for its domain.
        groups: Sorted; none if they are more than ``MAX_GROUPS``.
        level: How strong the sign-in was, by what the connector is trusted for.
        amr: The methods of the sign-in, if the connector is trusted for any.
        auth_time: When the person signed in, seconds since the epoch; None if the provider does not say.
        session_id: The provider's session.
    """

    value: str
    email: str | None = None
    name: str | None = None
    avatar: str | None = None
    groups: tuple[str, ...] = ()
    level: Level = "password"
    amr: tuple[str, ...] = ()
    auth_time: int | None = None
    session_id: str | None = None

    def __repr__(self) -> str:
        """Hide the person."""
        return "Person(…)"

    @property
    def email_domain(self) -> str | None:
        """The domain of the address."""
        return None if self.email is None else domain_of(self.email)


def person_of(signed: dict[str, Any], claims: dict[str, Any], connector: Connector) -> Person:
    """Return whom an ID token is about.

    Args:
        signed: Claims of the ID token, which alone say who it is and how the person has signed in.
        claims: These, and those of userinfo.
        connector: The connector.

    Raises:
        NotAcceptableError: The claim that identifies the person is missing, or not usable.
    """
    address = _verified_address(claims)
    return Person(
        value=id_tokens.identity_value(signed, connector.match_claim),
        email=address if address is not None and domain_of(address) in connector.domains else None,
        name=_name(claims.get("name")),
        avatar=_avatar(claims.get("picture")),
        groups=_groups(claims.get(connector.groups_claim)) if connector.groups_claim else (),
        level=id_tokens.trusted_level(signed, connector.trusted_factors),
        amr=id_tokens.methods(signed) if connector.trusted_factors else (),
        auth_time=id_tokens.auth_time(signed),
        session_id=id_tokens.text_claim(signed, "sid"),
    )


def wanted_claims(connector: Connector) -> set[str]:
    """Return the claims for which userinfo is asked if the ID token lacks them."""
    scopes = connector.scope.split(" ")
    return {
        *(each.claim for each in connector.required_claims),
        *([connector.groups_claim] if connector.groups_claim else []),
        *(["email"] if "email" in scopes else []),
        *(["name"] if "profile" in scopes else []),
    }


def objection(connector: Connector, claims: dict[str, Any]) -> str | None:
    """Return why a person may not sign in, for the log; None if there is no reason."""
    missing = [each.claim for each in connector.required_claims if not says(claims, each)]
    return f"required: {', '.join(missing)}" if missing else None


def objection_to_new(connector: Connector, claims: dict[str, Any]) -> str | None:
    """Return why a person gets no user, for the log; None if there is no reason.

    Not asked again later: people change their address, and it does not say who they are (docs/decisions/0068).
    """
    if connector.allowed_domains:
        address = _verified_address(claims)
        if address is None or domain_of(address) not in connector.allowed_domains:
            return "no verified address in an allowed domain"
    return None


def _verified_address(claims: dict[str, Any]) -> str | None:
    address = claims.get("email")
    if claims.get("email_verified") is not True or not isinstance(address, str) or not is_email_address(address):
        return None
    return canonical(address)


def _name(found: object) -> str | None:
    if not isinstance(found, str) or not id_tokens.is_storable(found):
        return None
    name = canonical_name(found)
    return name if name_problem(name) is None else None


def _avatar(found: object) -> str | None:
    return found if isinstance(found, str) and len(found) <= _MAX_AVATAR and is_web_address(found) else None


def _groups(found: object) -> tuple[str, ...]:
    values = found if isinstance(found, list) else [found]
    groups = {each for each in values if isinstance(each, str) and _is_group(each)}
    return tuple(sorted(groups)) if len(groups) <= MAX_GROUPS else ()


def _is_group(text: str) -> bool:
    return 0 < len(text) <= MAX_VALUE and id_tokens.is_storable(text)
