"""Code that uses an application: requests with curl, the SDK for Python, and libraries for JavaScript. Pure.

Values are quoted as literals of each language. A secret is only named, as an environment variable.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

Language = Literal["curl", "Python", "JavaScript"]

_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"


class UsedClient(msgspec.Struct, frozen=True, kw_only=True):
    """What code needs to know of an application.

    Attributes:
        base_url: The public address of the service.
        client_id: Its id.
        type: Its type.
        authentication: ``client_secret_basic``, ``client_secret_post``, or ``none`` without a secret.
        redirect_uri: Where a sign-in returns to; empty if none is registered.
        resource: Indicator of the API that it calls; empty for the default one.
        scopes: What it asks of this API.
    """

    base_url: str
    client_id: str
    type: str
    authentication: str
    redirect_uri: str = ""
    resource: str = ""
    scopes: Sequence[str] = ()

    @property
    def api(self) -> Mapping[str, str]:
        """The parameters that name the API and the scopes."""
        return {
            **({"resource": self.resource} if self.resource else {}),
            **({"scope": " ".join(self.scopes)} if self.scopes else {}),
        }


Snippets = dict[Language, str]


def client_credentials(client: UsedClient) -> Snippets:
    """Return how a machine-to-machine application gets a token for itself (RFC 6749 section 4.4)."""
    return {
        "curl": _curl(client, "client_credentials", {}, client.api),
        "Python": _python_function(client, "client_credentials", {}),
        "JavaScript": _openid_client(
            client, f"const tokens = await oauth.clientCredentialsGrant(config, {_object(client.api)});"
        ),
    }


def token_exchange(client: UsedClient) -> Snippets:
    """Return how an application exchanges a subject token (RFC 8693)."""
    types = {"subject_token_type": _TYPE}
    more: Snippets = {"curl": _curl(client, _EXCHANGE, {"subject_token": "SUBJECT_TOKEN"}, {**types, **client.api})}
    if client.authentication != "client_secret_post":
        more["Python"] = _python_function(client, "exchange_subject_token", {"subject_token": "subject_token"})
    if client.type != "SPA":
        given = _object({**types, **client.api}, first="subject_token: subjectToken")
        more["JavaScript"] = _openid_client(
            client, f"const tokens = await oauth.genericGrantRequest(config, {_literal(_EXCHANGE)}, {given});"
        )
    return more


def sign_in(client: UsedClient) -> Snippets:
    """Return how an application signs a user in: with a code and PKCE (RFC 6749 section 4.1, RFC 7636)."""
    scope = " ".join(["openid", "profile", *client.scopes])
    asked = {**client.api, "scope": scope}
    if client.type == "SPA":
        return {"curl": _code_by_hand(client, asked), "JavaScript": _oidc_client_ts(client, asked)}
    found: Snippets = {"curl": _code_by_hand(client, asked)}
    if client.authentication != "client_secret_post":
        found["Python"] = _identity_client(client)
    found["JavaScript"] = _openid_client(client, _authorization(client, asked))
    return found


def _literal(text: str) -> str:
    """Return a string literal, of Python and of JavaScript."""
    return json.dumps(text)


def _curl(client: UsedClient, grant_type: str, variables: Mapping[str, str], parameters: Mapping[str, str]) -> str:
    """Return a request to the token endpoint; some parameters have the value of a variable of the shell."""
    by = {
        "client_secret_basic": f'-u "{client.client_id}:$CLIENT_SECRET"',
        "client_secret_post": f'-d client_id={client.client_id} -d "client_secret=$CLIENT_SECRET"',
    }.get(client.authentication, f"-d client_id={client.client_id}")
    lines = [f"curl {shlex.quote(f'{client.base_url}/oidc/token')} {by}", f"  -d grant_type={grant_type}"]
    lines += [f'  -d "{name}=${variable}"' for name, variable in variables.items()]
    lines += [f"  --data-urlencode {shlex.quote(f'{name}={value}')}" for name, value in parameters.items()]
    return " \\\n".join(lines)


def _code_by_hand(client: UsedClient, asked: Mapping[str, str]) -> str:
    begun = {"response_type": "code", "client_id": client.client_id, "redirect_uri": client.redirect_uri, **asked}
    lines = [f"curl -G -s -o /dev/null -w '%{{url_effective}}\\n' {shlex.quote(f'{client.base_url}/oidc/auth')}"]
    lines += [f"  --data-urlencode {shlex.quote(f'{name}={value}')}" for name, value in begun.items()]
    lines += ['  -d code_challenge_method=S256 -d "code_challenge=$CHALLENGE"']
    redeemed = {"code": "CODE", "code_verifier": "VERIFIER"}
    return "\n".join(
        [
            "# Open the address that this prints; after the sign-in, the address of the page has the code.",
            "VERIFIER=$(openssl rand -hex 32)",
            'CHALLENGE=$(printf %s "$VERIFIER" | openssl dgst -sha256 -binary | openssl base64 | tr +/ -_ | tr -d =)',
            " \\\n".join(lines),
            "",
            "CODE=",
            _curl(client, "authorization_code", redeemed, {"redirect_uri": client.redirect_uri}),
        ]
    )


def _arguments(client: UsedClient) -> list[str]:
    given = [f"client_id={_literal(client.client_id)}"]
    if client.authentication != "none":
        given.append('client_secret=os.environ["CLIENT_SECRET"]')
    return given


def _python_function(client: UsedClient, name: str, more: Mapping[str, str]) -> str:
    given = [_literal(client.base_url), *_arguments(client)]
    given += [f"{argument}={value}" for argument, value in more.items()]
    given += [f"{argument}={_literal(value)}" for argument, value in client.api.items()]
    imports = ["import os", ""] if client.authentication != "none" else []
    called = [f"tokens = {name}(", *(f"    {each}," for each in given), ")"]
    return "\n".join([*imports, f"from stead import {name}", "", *called])


def _identity_client(client: UsedClient) -> str:
    given = [_literal(client.base_url), *_arguments(client)]
    given += [f"scopes=[{', '.join(map(_literal, client.scopes))}]"] if client.scopes else []
    given += [f"resources=[{_literal(client.resource)}]"] if client.resource else []
    imports = ["import os", ""] if client.authentication != "none" else []
    return "\n".join(
        [
            *imports,
            "from stead import IdentityClient",
            "",
            "client = IdentityClient(",
            *(f"    {each}," for each in given),
            ")",
            f"address = client.sign_in_url({_literal(client.redirect_uri)})  # redirect the browser there",
            "",
            "claims = client.handle_callback(url)  # in the handler of the redirect URI",
            f"token = client.get_access_token({_literal(client.resource) if client.resource else ''})",
        ]
    )


def _object(members: Mapping[str, str], *, first: str = "") -> str:
    """Return an object literal of JavaScript."""
    written = [*([first] if first else []), *(f"{name}: {_literal(value)}" for name, value in members.items())]
    return "{\n" + "".join(f"  {each},\n" for each in written) + "}" if written else "{}"


def _openid_client(client: UsedClient, used: str) -> str:
    by = {
        "client_secret_basic": "oauth.ClientSecretBasic(process.env.CLIENT_SECRET)",
        "client_secret_post": "oauth.ClientSecretPost(process.env.CLIENT_SECRET)",
    }.get(client.authentication, "oauth.None()")
    insecure = ", {\n  execute: [oauth.allowInsecureRequests],\n}" if client.base_url.startswith("http:") else ""
    issuer = f"new URL({_literal(f'{client.base_url}/oidc')})"
    return "\n".join(
        [
            "import * as oauth from 'openid-client';",
            "",
            f"const config = await oauth.discovery({issuer}, {_literal(client.client_id)}, undefined,",
            f"  {by}{insecure});",
            used,
        ]
    )


def _authorization(client: UsedClient, asked: Mapping[str, str]) -> str:
    challenge = "code_challenge: await oauth.calculatePKCECodeChallenge(pkceCodeVerifier)"
    begun = {"redirect_uri": client.redirect_uri, **asked, "code_challenge_method": "S256"}
    return "\n".join(
        [
            "const pkceCodeVerifier = oauth.randomPKCECodeVerifier();",
            f"const address = oauth.buildAuthorizationUrl(config, {_object(begun, first=challenge)});",
            "",
            "// in the handler of the redirect URI",
            "const tokens = await oauth.authorizationCodeGrant(config, url, { pkceCodeVerifier });",
        ]
    )


def _oidc_client_ts(client: UsedClient, asked: Mapping[str, str]) -> str:
    settings = {
        "authority": f"{client.base_url}/oidc",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_uri,
        **asked,
    }
    return "\n".join(
        [
            "import { UserManager } from 'oidc-client-ts';",
            "",
            f"const manager = new UserManager({_object(settings)});",
            "await manager.signinRedirect();",
            "",
            "// on the page of the redirect URI",
            "const user = await manager.signinCallback();",
        ]
    )
