"""Objects with values that a form could change, and the forms of the console that edit them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from stead import ManagementClient

NAME = "\"><b>Ada &amp; 'Co'</b> عبد \U0001f642"
TEXTS = [
    "\n\n first \n\nsecond\n\n",
    "\rone\r\ntwo\rthree\r\n",
    "  \t blanks around \u00a0 ",
    "</textarea>\"'><script>alert(1)</script>&#13;&amp;\n",
    "\x01\x0b\x0c\x1b\x7f\x85\u2028\u202e\u2066 e\u0301 عبد \ufeff",
]
STORED = "".join(TEXTS)
CUSTOM_DATA = {"plan": " gold\r\n", "seats": 9_007_199_254_740_993, "share": 1.5, "": None}
SCRIPT = "// \x0b\u2028\r\nconst getCustomJwtClaims = async () => ({});\r\n\n"
KIND: Final = "client-credentials"


def long(characters: int) -> str:
    """Return a text of this many characters, each of which is two units to a browser."""
    return "\U0001d11e" * characters


class Edited(NamedTuple):
    """An object with hostile values, and the form that edits it.

    Attributes:
        page: Path of the form.
        stored: Address of the object in the API.
        typed: What to type into the fields, by their names; all of them are members of the object.
    """

    page: str
    stored: str
    typed: dict[str, str]


def mark() -> str:
    return secrets.token_hex(5)


def organization(management: ManagementClient) -> Edited:
    made = management.organizations.create(NAME, STORED)
    typed = {"name": long(256), "description": long(1024)}
    return Edited(f"organizations/{made.id}/edit", f"organizations/{made.id}", typed)


def user(management: ManagementClient) -> Edited:
    address = f"ü{mark()}@bücher.example"
    made = management.users.create(name=NAME, username=f"ж_{mark()}", primary_email=address)
    typed = {"name": long(256), "username": mark() + long(118), "primaryEmail": f"ÿ{mark()}@bücher.example"}
    return Edited(f"users/{made.id}/edit", f"users/{made.id}", typed)


def role(management: ManagementClient) -> Edited:
    made = management.roles.create(f"{NAME}{mark()}", STORED, "User")
    return Edited(f"roles/{made.id}", f"roles/{made.id}", {"name": mark() + long(246), "description": long(1024)})


def web_application(management: ManagementClient) -> Edited:
    made = management.applications.create(
        name=NAME,
        type="Traditional",
        description=STORED,
        oidc_client_metadata={"redirectUris": ["https://a.example/b?c='&d", "https://a.example/"]},
        custom_data=CUSTOM_DATA,
        branding={"primaryColor": "#6B1D8c"},
    )
    typed = {"name": long(256), "description": long(1024)}
    return Edited(f"applications/{made.id}", f"applications/{made.id}", typed)


def machine(management: ManagementClient) -> Edited:
    made = management.applications.create(name=NAME, type="MachineToMachine", description=STORED)
    return Edited(
        f"applications/{made.id}", f"applications/{made.id}", {"name": long(256), "description": f"{STORED}!"}
    )


def resource(management: ManagementClient) -> Edited:
    made = management.resources.create(NAME, f"https://{mark()}.example")
    return Edited(f"resources/{made.id}", f"resources/{made.id}", {"name": long(256)})


def scope(management: ManagementClient) -> Edited:
    of = management.resources.create("Orders", f"https://{mark()}.example").id
    made = management.resources.create_scope(of, "read:<orders>'&", STORED)
    typed = {"name": "x" * 128, "description": long(1024)}
    return Edited(f"resources/{of}/scopes/{made.id}", f"resources/{of}/scopes", typed)


def template_role(management: ManagementClient) -> Edited:
    made = management.organization_roles.create(f"{NAME}{mark()}", STORED)
    typed = {"name": mark() + long(246), "description": long(1024)}
    return Edited(f"template/roles/{made.id}", f"organization-roles/{made.id}", typed)


def template_permission(management: ManagementClient) -> Edited:
    made = management.organization_permissions.create(f"read:<orders>'&{mark()}", STORED)
    typed = {"name": mark() + "x" * 118, "description": long(256)}
    return Edited(f"template/permissions/{made.id}", f"organization-scopes/{made.id}", typed)


def claims(management: ManagementClient) -> Edited:
    management.custom_claims.save(KIND, SCRIPT, context_sample=CUSTOM_DATA, block_issuance_on_error=True)
    return Edited(f"claims/{KIND}", f"configs/jwt-customizer/{KIND}", {"script": f"{SCRIPT}// changed\n"})


EDITED: dict[str, list[Callable[[ManagementClient], Edited]]] = {
    "/organizations/{organization_id:str}/edit": [organization],
    "/users/{user_id:str}/edit": [user],
    "/roles/{role_id:str}": [role],
    "/applications/{application_id:str}": [web_application, machine],
    "/resources/{resource_id:str}": [resource],
    "/resources/{resource_id:str}/scopes/{scope_id:str}": [scope],
    "/template/{kind:str}/{entry_id:str}": [template_role, template_permission],
    "/claims/{kind:str}": [claims],
}


_RENEWED = {"updatedAt", "createdAt", "createdBy", "version"}


def members(management: ManagementClient, edited: Edited) -> Any:
    """Return what is stored, without what every change renews."""
    found = management.request("GET", f"/api/{edited.stored}")
    (found,) = found if isinstance(found, list) else [found]
    return {name: value for name, value in found.items() if name not in _RENEWED}


def received(text: str) -> str:
    """Return a text as it arrives from a browser."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
