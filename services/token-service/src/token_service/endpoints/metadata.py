"""The metadata document and the public keys."""

import functools
from collections.abc import Callable, Sequence
from typing import Final, get_args

import msgspec
from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler

from identity_common.failures import TemporarilyUnavailable
from identity_common.http.openapi.declarations import documented
from identity_common.oauth import OIDC_SCOPES
from stead.verify.acr import Level, acr_of
from token_service.endpoints import introspection, revocation
from token_service.endpoints.token import PATH as TOKEN_PATH
from token_service.endpoints.userinfo import PATH as USERINFO_PATH
from token_service.grants.client_authentication import METHODS
from token_service.sign_in import routes as authorization
from token_service.sign_in import sign_out as end_session
from token_service.sign_in.pages.languages import LANGUAGES
from token_service.sign_in.request import PROMPTS
from token_service.tokens.identity import IdTokenClaims
from token_service.tokens.keys import JWKS_MAX_AGE_S, JwkSet, KeyRing
from token_service.tokens.scopes import person_scopes

_METADATA_MAX_AGE_S: Final = 300
JWKS_PATH: Final = "/oidc/jwks"
PREFIXES: Final = ("/oidc/.well-known/", "/.well-known/")
_DOCUMENT_PATHS: Final = (
    "/oidc/.well-known/openid-configuration",
    "/.well-known/oauth-authorization-server/oidc",
    "/.well-known/openid-configuration/oidc",
    "/oidc/.well-known/oauth-authorization-server",
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
)
"""Where clients look: at the first three by OpenID Connect Discovery 1.0 section 4 and RFC 8414 sections 3 and 5, at
the others if they always append to the issuer, or know only the host."""


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """Authorization server metadata: OpenID Connect Discovery 1.0 section 3 and RFC 8414 section 2 in one document.

    Lists only what is implemented.

    Attributes:
        issuer: ``iss`` of every token.
        authorization_endpoint: Where sign-in begins.
        token_endpoint: Where tokens are issued.
        userinfo_endpoint: Returns the claims about the user of a userinfo token.
        introspection_endpoint: Where confidential clients introspect tokens (RFC 7662).
        revocation_endpoint: Where clients revoke their tokens (RFC 7009).
        end_session_endpoint: Where sign-out begins.
        jwks_uri: Where the public keys are.
        grant_types_supported: Values of ``grant_type``.
        response_types_supported: Values of ``response_type``.
        response_modes_supported: Values of ``response_mode``.
        code_challenge_methods_supported: Values of ``code_challenge_method`` (RFC 7636).
        prompt_values_supported: Values of ``prompt``.
        subject_types_supported: Kinds of ``sub``.
        id_token_signing_alg_values_supported: Signature algorithms of the published keys.
        token_endpoint_auth_methods_supported: How clients authenticate at the token endpoint.
        introspection_endpoint_auth_methods_supported: How clients authenticate for introspection.
        revocation_endpoint_auth_methods_supported: How clients authenticate for revocation.
        acr_values_supported: How strongly a user can sign in: values of ``acr`` and ``acr_values``, weakest first.
        scopes_supported: Scopes about users.
        request_parameter_supported: Whether ``request`` is accepted.
        request_uri_parameter_supported: Whether ``request_uri`` is accepted.
        authorization_response_iss_parameter_supported: Whether authorization responses carry ``iss`` (RFC 9207).
        ui_locales_supported: Languages of the pages.
        claims_supported: Claims of ID tokens and userinfo.
    """

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    userinfo_endpoint: str
    introspection_endpoint: str
    revocation_endpoint: str
    end_session_endpoint: str
    jwks_uri: str
    grant_types_supported: list[str]
    response_types_supported: list[str]
    response_modes_supported: list[str]
    code_challenge_methods_supported: list[str]
    prompt_values_supported: list[str]
    ui_locales_supported: list[str]
    subject_types_supported: list[str]
    id_token_signing_alg_values_supported: Sequence[str]
    token_endpoint_auth_methods_supported: list[str]
    introspection_endpoint_auth_methods_supported: list[str]
    revocation_endpoint_auth_methods_supported: list[str]
    acr_values_supported: list[str]
    scopes_supported: list[str]
    claims_supported: list[str]
    request_parameter_supported: bool
    request_uri_parameter_supported: bool
    authorization_response_iss_parameter_supported: bool


_EXAMPLE_OF_KEYS: Final = {
    "keys": [
        {
            "kty": "EC",
            "crv": "P-256",
            "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
            "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
            "kid": "cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s",
            "use": "sig",
            "alg": "ES256",
        }
    ]
}


def metadata_endpoints(
    *, issuer: str, urn_namespace: str, grant_types: list[str], ring: Callable[[], KeyRing | None]
) -> list[HTTPRouteHandler]:
    """Return the routes; they ignore an Authorization header, and answer 503 until keys are loaded."""
    metadata_of = functools.partial(_metadata, urn_namespace=urn_namespace, grant_types=grant_types)
    example = msgspec.structs.replace(
        metadata_of("https://identity.example.com/oidc", algorithms=["ES256"]),
        scopes_supported=["openid", "profile"],
        claims_supported=["aud", "exp", "iat", "iss", "name", "sub"],
    )

    def loaded() -> KeyRing:
        keys = ring()
        if keys is None:
            raise TemporarilyUnavailable
        return keys

    @get(
        list(_DOCUMENT_PATHS),
        operation_id="Metadata",
        summary="Read the server's metadata",
        tags=["Metadata"],
        opt=documented(example=msgspec.to_builtins(example), refuses=(503,), headers=("Cache-Control",)),
        cache_control=None,
        sync_to_thread=False,
    )
    def metadata() -> Response[Metadata]:
        """Return the metadata document."""
        document = metadata_of(issuer, algorithms=loaded().algorithms)
        return Response(document, headers={"Cache-Control": f"max-age={_METADATA_MAX_AGE_S}"})

    @get(
        JWKS_PATH,
        operation_id="Jwks",
        summary="Read the public keys",
        tags=["Metadata"],
        opt=documented(answer=JwkSet, example=_EXAMPLE_OF_KEYS, refuses=(503,), headers=("Cache-Control",)),
        sync_to_thread=False,
    )
    def jwks() -> Response[bytes]:
        """Return the JWK Set (RFC 7517 section 5), or 304 if the caller has it."""
        headers = {"Cache-Control": f"max-age={JWKS_MAX_AGE_S}"}
        return Response(loaded().jwks, headers=headers, media_type=MediaType.JSON)

    return [metadata, jwks]


def _metadata(issuer: str, *, urn_namespace: str, grant_types: list[str], algorithms: Sequence[str]) -> Metadata:
    base_url = issuer.removesuffix("/oidc")
    return Metadata(
        issuer=issuer,
        authorization_endpoint=f"{base_url}{authorization.PATH}",
        token_endpoint=f"{base_url}{TOKEN_PATH}",
        userinfo_endpoint=f"{base_url}{USERINFO_PATH}",
        introspection_endpoint=f"{base_url}{introspection.PATH}",
        revocation_endpoint=f"{base_url}{revocation.PATH}",
        end_session_endpoint=f"{base_url}{end_session.PATH}",
        jwks_uri=f"{issuer}/jwks",
        grant_types_supported=grant_types,
        response_types_supported=["code"],
        response_modes_supported=["query"],
        code_challenge_methods_supported=["S256"],
        prompt_values_supported=list(PROMPTS),
        ui_locales_supported=list(LANGUAGES.by_tag),
        subject_types_supported=["public"],
        id_token_signing_alg_values_supported=algorithms,
        token_endpoint_auth_methods_supported=sorted(set[str]().union(*METHODS.values())),
        introspection_endpoint_auth_methods_supported=introspection.AUTHENTICATION_METHODS,
        revocation_endpoint_auth_methods_supported=revocation.AUTHENTICATION_METHODS,
        acr_values_supported=[acr_of(level, urn_namespace=urn_namespace) for level in get_args(Level)],
        scopes_supported=sorted({*OIDC_SCOPES, *person_scopes(urn_namespace)}),
        claims_supported=sorted(IdTokenClaims.__struct_fields__),
        request_parameter_supported=False,
        request_uri_parameter_supported=False,
        authorization_response_iss_parameter_supported=True,
    )
