"""What users may rely on: names, the exception tree, and that nothing shown or logged holds a secret."""

from __future__ import annotations

import ast
import inspect
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, get_args, get_type_hints

import pytest

import stead
import stead.events
import stead.manage.operations
from stead import (
    ApiError,
    ApplicationSecret,
    AsyncManagementClient,
    Conflict,
    Forbidden,
    IdentityError,
    InvalidInput,
    Invitation,
    ManagementClient,
    NotFound,
    OAuthError,
    RecentSignInRequired,
    StepUpRequired,
    SubjectToken,
    TokenInvalid,
    TokenResponse,
    TooManyAttempts,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
    async_client_credentials,
    async_exchange_subject_token,
    exchange_subject_token,
)
from stead._transport.api import json_request
from stead.sign_in.token_endpoint import request_exchange
from tests.unit.sdk.http_server import Answer
from tests.unit.sdk.issuer import AUDIENCE, ISSUER, Clock, SigningKey, token
from tests.unit.sdk.service import ACTOR_TOKEN, CLIENT_ID, CLIENT_SECRET, PASSWORD, SUBJECT_TOKEN, Service


def test_the_public_names_are_these() -> None:
    """Removing a name breaks users; a new name must be intended."""
    assert sorted(stead.__all__) == [
        "Access",
        "AccessToken",
        "AccessTokenMiddleware",
        "AccessTokenVerifier",
        "ActorAuthentication",
        "AffectedMember",
        "AffectedMembers",
        "ApiError",
        "Application",
        "ApplicationSecret",
        "AsyncAccessTokenVerifier",
        "AsyncIdentityClient",
        "AsyncManagementClient",
        "AuditEntry",
        "AuditFigure",
        "CallerUnknown",
        "ClaimsFunction",
        "ClaimsFunctionFailure",
        "ClaimsFunctionVersion",
        "Conflict",
        "Connector",
        "ConnectorBranding",
        "ConnectorConfig",
        "ConnectorTrusts",
        "Consent",
        "ConsistencyProof",
        "CustomClientMetadata",
        "DryRunReport",
        "EffectivePermissions",
        "EnrolmentCode",
        "Factor",
        "Factors",
        "Forbidden",
        "GrantedPermission",
        "GrantingRole",
        "HeldPermissions",
        "IdentityClient",
        "IdentityError",
        "Impersonation",
        "ImpersonationPolicy",
        "ImportedUser",
        "InclusionProof",
        "InvalidInput",
        "Invitation",
        "JitConnector",
        "JitEmailDomain",
        "JitGroup",
        "MailFailure",
        "ManagementClient",
        "MemoryStorage",
        "MyAccount",
        "MyConsent",
        "MyFactors",
        "MyIdentity",
        "MyImpersonation",
        "MyProfile",
        "MySession",
        "NotFound",
        "NotValidFeed",
        "OAuthError",
        "OidcClientMetadata",
        "OpenInvitation",
        "Organization",
        "OrganizationApplication",
        "OrganizationAware",
        "OrganizationInvitation",
        "OrganizationMembership",
        "OrganizationPermission",
        "OrganizationReference",
        "OrganizationRole",
        "OrganizationRoleReference",
        "OrganizationTemplate",
        "OrganizationUser",
        "PermissionsForResource",
        "PermissionsInOrganization",
        "ProxiedCaller",
        "RecentSignInRequired",
        "Recording",
        "RequiredClaim",
        "Requires",
        "Resource",
        "ResourceConsent",
        "ResourceReference",
        "ResourceScope",
        "Role",
        "Scope",
        "SearchAnswer",
        "SignInForm",
        "SignInPolicy",
        "SignInRequired",
        "SignInSession",
        "SignedHead",
        "StepUpRequired",
        "Storage",
        "SubjectToken",
        "TemplatePermission",
        "TemplateReport",
        "TemplateRole",
        "TemplateScope",
        "TestedClaims",
        "TokenInvalid",
        "TokenResponse",
        "TooManyAttempts",
        "TrustedFactor",
        "Unauthenticated",
        "Unavailable",
        "User",
        "UserIdentity",
        "VersionMismatch",
        "accept_invitation",
        "access_token_of",
        "async_accept_invitation",
        "async_client_credentials",
        "async_exchange_subject_token",
        "client_credentials",
        "exchange_subject_token",
        "proxied_caller",
    ]
    assert all(getattr(stead, name).__doc__ for name in stead.__all__)


def test_what_an_operation_returns_has_a_public_name() -> None:
    name, path = stead.manage.operations.__name__, stead.manage.operations.__path__
    modules = [import_module(f"{name}.{module.name}") for module in iter_modules(path)]
    functions = [each for module in modules for _, each in inspect.getmembers(module, inspect.isfunction)]
    returned = [get_type_hints(each)["return"] for each in functions if each.__module__.startswith(name)]
    models = set().union(*map(models_of, returned))
    assert len(models) > 20
    assert models <= set(stead.__all__)


def models_of(hint: Any) -> set[str]:
    if inspect.isclass(hint):
        return {hint.__name__} if hint.__module__.startswith("stead.models") else set()
    return set().union(*map(models_of, get_args(hint)))


BLOCKING = (
    "AccessTokenVerifier",
    "IdentityClient",
    "ManagementClient",
    "accept_invitation",
    "client_credentials",
    "exchange_subject_token",
)


def test_every_blocking_name_has_an_async_twin() -> None:
    twins = {name for name in stead.__all__ if name.lower().startswith("async")}
    assert twins == {f"Async{name}" if name[0].isupper() else f"async_{name}" for name in BLOCKING}


@pytest.mark.parametrize("name", BLOCKING)
def test_twins_take_the_same_arguments(name: str) -> None:
    """All but ``http`` and ``access_token``, which are of the same kind."""
    one = getattr(stead, name)
    twin = getattr(stead, f"Async{name}" if name[0].isupper() else f"async_{name}")
    of_twin = str(inspect.signature(twin)).replace("httpx.AsyncClient", "httpx.Client")
    assert of_twin.replace("AsyncAccessTokenSupplier", "AccessTokenSupplier") == str(inspect.signature(one))


@pytest.mark.parametrize("name", ["AccessTokenVerifier", "IdentityClient", "ManagementClient"])
def test_twins_have_the_same_attributes(name: str) -> None:
    """All but ``aclose``, as in the HTTP library: a coroutine is not mistaken for a call that has closed something."""
    one, twin = (names(getattr(stead, kind)) for kind in (name, f"Async{name}"))
    assert {"close" if each == "aclose" else each for each in twin} == one
    assert "close" not in twin


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_errors_are_one_tree() -> None:
    assert {kind: kind.__base__ for kind in (ApiError, OAuthError, Unavailable, TokenInvalid)} == dict.fromkeys(
        (ApiError, OAuthError, Unavailable, TokenInvalid), IdentityError
    )
    of_api = (InvalidInput, Unauthenticated, Forbidden, NotFound, VersionMismatch, Conflict, TooManyAttempts)
    assert {kind.__base__ for kind in of_api} == {ApiError}
    assert RecentSignInRequired.__base__ is Unauthenticated
    assert StepUpRequired.__base__ is TokenInvalid
    assert IdentityError.__base__ is Exception


def test_the_library_imports_no_other_package_of_ours_and_no_framework() -> None:
    """Its users must install everything that it imports."""
    source = Path(stead.__file__).parent
    imported = {
        name.partition(".")[0]
        for file in source.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    others = imported - sys.stdlib_module_names
    assert others == {"stead", "cryptography", "httpx2", "jwt", "msgspec", "nats"}


def test_the_public_names_of_the_events_are_these() -> None:
    assert sorted(stead.events.__all__) == [
        "EventBus",
        "EventsRefused",
        "GrantedPermission",
        "IdentityEvent",
        "MemberPermissions",
        "PermissionCache",
        "PermissionChange",
        "Since",
        "identity_events",
        "permission_changes",
    ]
    described = [name for name in stead.events.__all__ if name != "Since"]  # an alias cannot have a docstring
    assert all(getattr(stead.events, name).__doc__ for name in described)
    assert stead.events.EventsRefused.__base__ is IdentityError


@pytest.mark.heavy
def test_only_the_events_need_the_nats_library_and_say_so() -> None:
    """It is an optional dependency."""
    program = "import sys; sys.modules['nats'] = None; import stead; print('imported'); import stead.events"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=30)
    assert finished.stdout == b"imported\n"
    last = finished.stderr.decode().splitlines()[-1]
    assert last == "ImportError: stead.events needs nats-py, which the extra `events` of stead-sdk installs"


SECRETS = (CLIENT_SECRET, PASSWORD, SUBJECT_TOKEN, ACTOR_TOKEN, "access-token-1", "new-secret-value")


def shown(*things: object) -> str:
    return "\n".join(f"{thing} {thing!r}" for thing in things)


async def test_nothing_that_holds_a_secret_shows_it(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    client.request("GET", "/api/status")
    await async_client.request("GET", "/api/status")
    token_request = next(
        request_exchange(
            client_id=CLIENT_ID, client_secret=CLIENT_SECRET, subject_token=SUBJECT_TOKEN, actor_token=ACTOR_TOKEN
        )
    )
    issued = TokenResponse(access_token="access-token-1", token_type="Bearer", expires_in=1, scope="read:things")
    text = shown(
        client,
        client.users,
        client.users.list(search="access-token-1"),
        client._token,
        client._token._token,
        client._token._token._held,
        async_client,
        async_client.users,
        async_client._token,
        token_request,
        json_request("POST", "/api/users", {"password": PASSWORD}),
        issued,
        SubjectToken(token=SUBJECT_TOKEN, expires_in=600),
        ApplicationSecret(name="first", value="new-secret-value"),
        Invitation(invitation="new-secret-value", expires_at=7),
    )

    assert not [secret for secret in SECRETS if secret in text]
    assert "read:things" in text


@pytest.mark.parametrize(
    "answer",
    [
        Answer(400, b'{"error":"invalid_request","error_description":"bad %s"}' % SUBJECT_TOKEN.encode()),
        Answer(401, b'{"error":"invalid_client","error_description":"no %s"}' % CLIENT_SECRET.encode()),
        Answer(400, b'{"error":"invalid_request","error_description":"no %s"}' % ACTOR_TOKEN.encode()),
        Answer(200, b'{"access_token":"access-token-1"}'),
        Answer(200, b'{"access_token":"access-token-1\\n","token_type":"Bearer","expires_in":1}'),
        Answer(502, SUBJECT_TOKEN.encode()),
        Answer(500, SUBJECT_TOKEN.encode()),
    ],
)
async def test_no_error_of_the_token_endpoint_shows_a_secret(service: Service, answer: Answer) -> None:
    """Not even when a proxy echoes the request."""
    service.token_answer = answer
    arguments = {
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "subject_token": SUBJECT_TOKEN,
        "actor_token": ACTOR_TOKEN,
    }
    with pytest.raises(IdentityError) as caught:
        exchange_subject_token(service.url, **arguments)
    with pytest.raises(IdentityError) as async_caught:
        await async_exchange_subject_token(service.url, **arguments)
    text = everything_about(caught.value) + everything_about(async_caught.value)
    assert not [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (lambda client: client.users.create(password=PASSWORD), Answer(400, b'{"code":"c","message":"m"}')),
        (lambda client: client.users.create(password=PASSWORD), Answer(500, PASSWORD.encode())),
        (lambda client: client.users.set_password("x", PASSWORD), Answer(503)),
        (
            lambda client: client.users.invite("x"),
            Answer(200, b'{"invitation":"new-secret-value"}'),
        ),
        (
            lambda client: client.subject_tokens.create("x"),
            Answer(201, b'{"subjectToken":["%s"]}' % SUBJECT_TOKEN.encode()),
        ),
        (
            lambda client: client.applications.create_secret("x", "n"),
            Answer(201, b'{"name":7,"value":"new-secret-value"}'),
        ),
    ],
)
async def test_no_error_of_the_management_api_shows_a_secret(
    service: Service,
    client: ManagementClient,
    async_client: AsyncManagementClient,
    operation: Callable[[Any], Any],
    answer: Answer,
) -> None:
    issue = service.issue
    service.answer = lambda request: issue() if request.path == "/oidc/token" else answer
    with pytest.raises(IdentityError) as caught:
        operation(client)
    with pytest.raises(IdentityError) as async_caught:
        await operation(async_client)
    text = everything_about(caught.value) + everything_about(async_caught.value)
    assert not [secret for secret in SECRETS if secret in text]


async def test_no_secret_is_logged(service: Service, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Neither by this library nor, at its most talkative, by the HTTP library below it."""
    caplog.set_level(logging.DEBUG)
    service.will_answer("POST", "/api/subject-tokens", {"subjectToken": SUBJECT_TOKEN, "expiresIn": 600})
    service.will_answer("POST", "/api/users", {"id": "u1"})
    with service.client(clock) as client:
        client.users.create(username="ada", password=PASSWORD)
        subject_token = client.subject_tokens.create("u1").token
    exchange_subject_token(
        service.url,
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        subject_token=subject_token,
        actor_token=ACTOR_TOKEN,
    )
    async with service.async_client(clock) as async_client:
        await async_client.users.create(username="ada", password=PASSWORD)
        subject_token = (await async_client.subject_tokens.create("u1")).token
    await async_client_credentials(service.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET)
    assert caplog.records
    assert not [secret for secret in SECRETS if secret in caplog.text]


def test_no_error_of_the_verifier_shows_the_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    candidate = token(SigningKey("unknown"))
    with Service() as gone:
        pass
    verifier = stead.AccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=f"{gone.url}/jwks")
    with pytest.raises(Unavailable) as caught:
        verifier.verify(candidate)
    signature = candidate.rpartition(".")[2]
    assert signature not in everything_about(caught.value)
    assert signature not in caplog.text


def everything_about(error: BaseException) -> str:
    """Return what a log of this error could hold: text, repr, attributes, and the errors that it came from."""
    return "\n".join(["".join(traceback.format_exception(error)), repr(error), repr(vars(error))])
