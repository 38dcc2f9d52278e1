"""An OpenID provider on Authlib and Django: a person is who types the name, with the claims of that name."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingMixIn
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django
from authlib.integrations.django_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc6749.models import AuthorizationCodeMixin, ClientMixin
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode, UserInfo
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from joserfc.jwk import KeySet

FILE = Path(os.environ["CONFIGURATION"])
CONFIGURATION = json.loads(FILE.read_text())
ISSUER = CONFIGURATION["issuer"]
CODES: dict[str, "Code"] = {}
KEYS = KeySet.import_key_set({"keys": CONFIGURATION["keys"]})
PAGE = "<form method='post' action='{action}'><label>Name <input name='login'></label></form>"

settings.configure(SECRET_KEY="a secret of the provider alone", ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF=__name__)
django.setup()


class Client(ClientMixin):
    """The client of the configuration."""

    def __init__(self, metadata: dict) -> None:
        self.metadata = metadata
        self.id_token_signed_response_alg = metadata["id_token_signed_response_alg"]

    def get_client_id(self) -> str:
        return self.metadata["client_id"]

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.metadata["redirect_uris"]

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.metadata["client_secret"]

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class Code(AuthorizationCodeMixin):
    """An authorization code."""

    client_id: str
    user: str
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str
    auth_time: int

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return self.auth_time

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> list[str]:
        return ["pwd"]


class CodeGrant(AuthorizationCodeGrant):
    """Codes in memory."""

    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

    def save_authorization_code(self, code: str, request) -> None:
        asked = request.payload.data
        CODES[code] = Code(
            client_id=request.client.get_client_id(),
            user=request.user,
            redirect_uri=asked["redirect_uri"],
            scope=request.scope,
            nonce=asked.get("nonce", ""),
            code_challenge=asked.get("code_challenge", ""),
            code_challenge_method=asked.get("code_challenge_method", ""),
            auth_time=int(time.time()),
        )

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        found = CODES.get(code)
        return found if found is not None and found.client_id == client.get_client_id() else None

    def delete_authorization_code(self, authorization_code: Code) -> None:
        for code in [code for code, each in CODES.items() if each is authorization_code]:
            del CODES[code]

    def authenticate_user(self, authorization_code: Code) -> str:
        return authorization_code.user


class IdTokens(OpenIDCode):
    """ID tokens, with all that is known about a person."""

    def exists_nonce(self, nonce: str, request) -> bool:
        return False

    def resolve_client_private_key(self, client: Client) -> KeySet:
        return KEYS

    def get_client_claims(self, client: Client) -> dict:
        return {"iss": ISSUER, "aud": client.get_client_id()}

    def generate_user_info(self, user: str, scope: str) -> UserInfo:
        return UserInfo(sub=user, **json.loads(FILE.read_text())["people"][user])


class Server(AuthorizationServer):
    """Without models."""

    def query_client(self, client_id: str) -> Client | None:
        found = [each for each in CONFIGURATION["clients"] if each["client_id"] == client_id]
        return Client(found[0]) if found else None

    def save_token(self, token: dict, request) -> None:
        pass


server = Server(None, None)
server.register_grant(CodeGrant, [IdTokens(), CodeChallenge(required=True)])


def metadata(request: HttpRequest) -> JsonResponse:
    """Answer discovery."""
    return JsonResponse(
        {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES384"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "code_challenge_methods_supported": ["S256"],
        }
    )


def jwks(request: HttpRequest) -> JsonResponse:
    """Publish the public keys."""
    return JsonResponse(KEYS.as_dict(private=False))


def authorize(request: HttpRequest) -> HttpResponse:
    """Ask for a name, and send the person back."""
    grant = server.get_consent_grant(request, end_user=request.POST.get("login"))
    if request.method == "GET":
        return HttpResponse(PAGE.format(action=request.get_full_path()))
    return server.create_authorization_response(request, grant_user=request.POST["login"], grant=grant)


def token(request: HttpRequest) -> HttpResponse:
    """Redeem a code."""
    return server.create_token_response(request)


urlpatterns = [
    path(".well-known/openid-configuration", metadata),
    path("jwks", jwks),
    path("authorize", authorize),
    path("token", token),
]


class ThreadedServer(ThreadingMixIn, WSGIServer):
    """A thread for each request."""

    daemon_threads = True


class QuietHandler(WSGIRequestHandler):
    """Without a line for each request."""

    def log_message(self, *_: object) -> None:
        pass


port = urlsplit(ISSUER).port or 0
make_server("127.0.0.1", port, get_wsgi_application(), ThreadedServer, QuietHandler).serve_forever()
