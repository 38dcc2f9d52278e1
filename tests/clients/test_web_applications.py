"""Web applications on unmodified libraries and servers: a user signs in once to each."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from string import Template
from typing import Any

import httpx2 as httpx
import pytest

from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.browser import ApplicationSite
from tests.support.conversation import NODE, converse
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.world import Client, World

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PROGRAMS = Path(__file__).parent / "python"
MODULES = Path("/usr/lib/apache2/modules")
APACHE = Template("""
ServerRoot "$directory"
ServerName 127.0.0.1
Listen 127.0.0.1:$port
PidFile "$directory/pid"
ErrorLog "$directory/error.log"
LoadModule mpm_event_module $modules/mod_mpm_event.so
LoadModule authn_core_module $modules/mod_authn_core.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule authz_user_module $modules/mod_authz_user.so
LoadModule headers_module $modules/mod_headers.so
LoadModule proxy_module $modules/mod_proxy.so
LoadModule proxy_http_module $modules/mod_proxy_http.so
LoadModule auth_openidc_module $modules/mod_auth_openidc.so
<IfModule unixd_module>
  User nobody
  Group nogroup
</IfModule>

OIDCProviderMetadataURL $issuer/.well-known/openid-configuration
OIDCClientID $client_id
OIDCClientSecret $client_secret
OIDCRedirectURI http://127.0.0.1:$port/private/callback
OIDCCryptoPassphrase "a secret of this server alone"
OIDCPKCEMethod S256
OIDCScope "openid profile"

<Location /private>
  AuthType openid-connect
  Require valid-user
  ProxyPass $backend/
  Header set Remote-User "expr=%{REMOTE_USER}"
  Header set Remote-Name "expr=%{HTTP:OIDC_CLAIM_name}"
</Location>
""")


def test_auth_core_signs_in(world: World, npm_packages: Path, person: Person) -> None:
    redirect_uri = "https://app.example.com/auth/callback/stead"
    client = web_application(world, redirect_uri)
    seen = converse(
        [NODE, npm_packages / "auth_core.mjs"],
        person,
        ISSUER=world.stack.issuer,
        CLIENT_ID=client.basic[0],
        CLIENT_SECRET=client.basic[1],
        REDIRECT_URI=redirect_uri,
    )
    assert seen == {"back": [302, "https://app.example.com"], "user": {"name": "Ada Lovelace"}}


def test_express_openid_connect_signs_in_and_out(
    world: World, npm_packages: Path, application: Client, person: Person, goodbye: str
) -> None:
    seen = converse(
        [NODE, npm_packages / "express_openid_connect.mjs"],
        person,
        ISSUER=world.stack.issuer,
        CLIENT_ID=application.basic[0],
        CLIENT_SECRET=application.basic[1],
        REDIRECT_URI=REDIRECT_URI,
        GOODBYE=goodbye,
    )
    assert seen == {"back": 302, "sub": person.user_id, "name": "Ada Lovelace", "goodbye": goodbye}


def test_passport_openidconnect_signs_in(world: World, npm_packages: Path, person: Person) -> None:
    client = web_application(world, REDIRECT_URI, requirePkce=False, tokenEndpointAuthMethod="client_secret_post")
    seen = converse(
        [NODE, npm_packages / "passport_openidconnect.mjs"],
        person,
        ISSUER=world.stack.issuer,
        CLIENT_ID=client.basic[0],
        CLIENT_SECRET=client.basic[1],
        REDIRECT_URI=REDIRECT_URI,
    )
    assert seen == {"back": 200, "user": {"sub": person.user_id, "name": "Ada Lovelace"}}


def test_the_client_of_the_model_context_protocol_signs_in_and_refreshes(
    world: World, npm_packages: Path, person: Person
) -> None:
    native = world.management.applications.create(
        name="An MCP client", type="Native", oidc_client_metadata={"redirectUris": [REDIRECT_URI]}
    )
    seen = converse(
        [NODE, npm_packages / "mcp_client.mjs"],
        person,
        ISSUER=world.stack.issuer,
        CLIENT_ID=native.id,
        REDIRECT_URI=REDIRECT_URI,
        RESOURCE=world.resource,
    )
    assert seen == {
        "steps": ["REDIRECT", "AUTHORIZED", "AUTHORIZED"],
        "audiences": [world.resource, world.resource],
        "scope": "read:things",
        "rotated": True,
    }


def test_the_python_client_of_the_model_context_protocol_signs_in(
    world: World, pypi_python: Path, person: Person
) -> None:
    native = world.management.applications.create(
        name="An MCP client", type="Native", oidc_client_metadata={"redirectUris": [REDIRECT_URI]}
    )
    seen = converse(
        [pypi_python, PROGRAMS / "mcp_client.py"],
        person,
        ISSUER=world.stack.issuer,
        CLIENT_ID=native.id,
        REDIRECT_URI=REDIRECT_URI,
        RESOURCE=world.resource,
    )
    assert seen == {"status": 200, "scope": "read:things", "iss": world.stack.issuer}


def test_agentsts_core_exchanges_subject_tokens(world: World, pypi_python: Path, person: Person) -> None:
    """It authenticates no client: an application of a public type, named by an additional parameter."""
    seen = converse(
        [pypi_python, PROGRAMS / "agentsts_client.py"],
        ISSUER=world.stack.issuer,
        CLIENT_ID=world.native.id,
        RESOURCE=world.resource,
        SUBJECT_TOKEN=world.subject_token(),
        OTHER_SUBJECT_TOKEN=world.subject_token(),
        ACTOR_TOKEN=world.userinfo_token(person.user_id),
    )
    impersonated, delegated = (world.claims(seen.pop(name), world.resource) for name in ("impersonated", "delegated"))
    assert (impersonated["sub"], delegated["sub"]) == (world.customer, world.customer)
    assert ("act" in impersonated, delegated["act"]) == (False, {"sub": person.user_id})
    assert seen == {"scope": "read:things", "type": TOKEN_TYPE_ACCESS_TOKEN, "refused": "invalid_request"}


def test_mozilla_django_oidc_signs_in(world: World, pypi_python: Path, person: Person) -> None:
    redirect_uri = "https://app.example.com/oidc/callback/"
    client = web_application(world, redirect_uri)
    email = f"{person.username}@example.com"
    world.management.users.update(person.user_id, primary_email=email)
    seen = converse(
        [pypi_python, PROGRAMS / "mozilla_django_oidc_site.py"],
        person,
        ISSUER=world.stack.issuer,
        CLIENT_ID=client.basic[0],
        CLIENT_SECRET=client.basic[1],
        REDIRECT_URI=redirect_uri,
    )
    assert seen == {"back": [302, "/"], "user": {"email": email}}


def test_requests_oauthlib_signs_in(world: World, pypi_python: Path, application: Client, person: Person) -> None:
    seen = converse(
        [pypi_python, PROGRAMS / "requests_oauthlib_session.py"],
        person,
        OAUTHLIB_INSECURE_TRANSPORT="1",
        ISSUER=world.stack.issuer,
        CLIENT_ID=application.basic[0],
        CLIENT_SECRET=application.basic[1],
        REDIRECT_URI=REDIRECT_URI,
    )
    assert seen == {"scope": ["openid", "profile"], "sub": person.user_id, "name": "Ada Lovelace"}


def test_mod_auth_openidc_signs_in(
    world: World, site: ApplicationSite, person: Person, tmp_path_factory: pytest.TempPathFactory
) -> None:
    port = free_port()
    client = web_application(world, f"http://127.0.0.1:{port}/private/callback")
    directory = tmp_path_factory.mktemp("apache")
    configuration = APACHE.substitute(
        directory=directory,
        port=port,
        modules=MODULES,
        issuer=world.stack.issuer,
        client_id=client.basic[0],
        client_secret=client.basic[1],
        backend=site.origin,
    )
    (directory / "apache.conf").write_text(configuration)
    command = [apache(), "-f", directory / "apache.conf", "-D", "FOREGROUND"]
    with serving(command, port) as address, httpx.Client() as browser:
        leaving = browser.get(f"{address}/private/")
        assert leaving.status_code == 302
        back = browser.get(person.go(leaving.headers["Location"]), follow_redirects=True)
        assert (str(back.url), back.status_code) == (f"{address}/private/", 200)
        assert (back.headers["Remote-User"], back.headers["Remote-Name"]) == (
            f"{person.user_id}@{world.stack.issuer}",
            "Ada Lovelace",
        )


def web_application(world: World, redirect_uri: str, **settings: Any) -> Client:
    created = world.management.applications.create(
        name="A web application",
        type="Traditional",
        oidc_client_metadata={"redirectUris": [redirect_uri]},
        custom_client_metadata=settings,
    )
    return Client(created.id, world.management.applications.create_secret(created.id, "first").value)


def apache() -> Path:
    """Return Debian's Apache."""
    program = shutil.which("apache2", path=f"{os.environ['PATH']}:/usr/sbin")
    is_there = program is not None and (MODULES / "mod_auth_openidc.so").exists()
    assert is_there, "this test needs Apache: apt-get install libapache2-mod-auth-openidc"
    return Path(program)
