"""The sign-in and sign-out pages."""

from urllib.parse import urlsplit

from litestar.handlers import HTTPRouteHandler

from identity_common.relying_party import relying_party
from identity_common.sealing import SealingKeys
from identity_common.stores.source_limit import SourceLimit
from identity_common.wire.account_links import AccountLinkRequests
from identity_common.wire.factors import FactorRequests
from identity_common.wire.provider_sign_in import ProviderSignInRequests
from token_service.parts.shared import Shared
from token_service.settings import Settings
from token_service.sign_in.account_links import AccountLinks
from token_service.sign_in.arrived_sign_outs import ArrivedSignOuts
from token_service.sign_in.attempts import Attempts
from token_service.sign_in.backchannel_logout import BackchannelLogout
from token_service.sign_in.challenges import Challenges
from token_service.sign_in.devices import Devices
from token_service.sign_in.factor_checks import FactorChecks
from token_service.sign_in.factor_pages import FactorPages
from token_service.sign_in.factors import Factors
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.invitation import InvitationPages
from token_service.sign_in.link_pages import LinkPages
from token_service.sign_in.passwords import PasswordCheck
from token_service.sign_in.pending import PENDING_TTL_S, PendingAuthorizations
from token_service.sign_in.pending_pages import PendingPages
from token_service.sign_in.provider_checks import ProviderChecks
from token_service.sign_in.provider_pages import ProviderPages
from token_service.sign_in.providers import Providers
from token_service.sign_in.recovery import RecoveryPages
from token_service.sign_in.registration import RegistrationPages
from token_service.sign_in.routes import AuthorizationPages
from token_service.sign_in.set_up_pages import SetUpPages
from token_service.sign_in.sign_in_page import SignInPage
from token_service.sign_in.sign_ins import SignIns
from token_service.sign_in.sign_out import EndSession
from token_service.sign_in.verification import VerificationPages
from token_service.tokens.id_token_hints import IdTokenHints


def sign_in_pages(settings: Settings, shared: Shared) -> list[HTTPRouteHandler]:
    """Return the pages for users, and the endpoints that lead to them."""
    commands, tenant_id = shared.connections.commands, settings.tenant_id
    sessions = shared.sessions
    hints = IdTokenHints(shared.keys, issuer=settings.issuer)
    flow = SignInFlow(
        shared.directory,
        sessions,
        shared.authorizations,
        shared.codes,
        hints,
        urn_namespace=settings.urn_namespace,
        management_api=settings.management_api_resource,
    )
    throttle = SourceLimit(
        commands,
        "password-attempts",
        tenant_id=tenant_id,
        window_s=settings.password_window_s,
        limit=settings.password_attempts_per_address,
        throttled=shared.metrics.throttled,
    )
    waiting = SourceLimit(
        commands,
        "pending-authorizations",
        tenant_id=tenant_id,
        window_s=PENDING_TTL_S,
        limit=settings.pending_requests_per_address,
        throttled=shared.metrics.throttled,
    )
    requested_links = SourceLimit(
        commands,
        "requested-links",
        tenant_id=tenant_id,
        window_s=settings.password_window_s,
        limit=settings.password_attempts_per_address,
        throttled=shared.metrics.throttled,
    )
    devices = Devices(settings.key_encryption_keys, tenant_id=tenant_id)
    pending = PendingAuthorizations(commands, tenant_id=tenant_id)
    links = AccountLinkRequests(SealingKeys(settings.environment_variable_keys), tenant_id=tenant_id)
    link_pages = LinkPages(
        flow,
        pending,
        AccountLinks(shared.connections.bus, links),
        base_url=settings.base_url,
        trusted_proxies=settings.trusted_proxies,
    )
    attempts = Attempts(throttle, shared.audit, outcomes=shared.metrics.sign_ins)
    sign_ins = SignIns(
        flow,
        sessions,
        PasswordCheck(shared.connections.bus, tenant_id=tenant_id),
        attempts,
        devices,
        shared.audit,
    )
    pages = PendingPages(
        flow,
        pending,
        waiting,
        base_url=settings.base_url,
        issuer=settings.issuer,
        trusted_proxies=settings.trusted_proxies,
    )
    factor_requests = FactorRequests(SealingKeys(settings.environment_variable_keys), tenant_id=tenant_id)
    factors = Factors(shared.connections.bus, factor_requests)
    party = relying_party(settings.base_url, settings.webauthn_rp_id)
    challenges = Challenges(pending, rp_id=party.id if party else None)
    checks = FactorChecks(factors, challenges, attempts, devices)
    factor_pages = FactorPages(pages, factors, checks, challenges, sign_ins)
    providers = Providers(
        shared.connections.bus,
        ProviderSignInRequests(SealingKeys(settings.environment_variable_keys), tenant_id=tenant_id),
    )
    sign_in_page = SignInPage(flow, pages, challenges)
    provider_checks = ProviderChecks(
        providers, pending, _provider_attempts(settings, shared), base_url=settings.base_url
    )
    provider_pages = ProviderPages(flow, pages, sign_in_page, provider_checks, sign_ins)
    authorization = AuthorizationPages(
        flow,
        pages,
        sign_ins,
        checks,
        sign_in_page,
        provider_pages,
        factor_pages,
        base_url=settings.base_url,
        trusted_proxies=settings.trusted_proxies,
    )
    set_up_pages = SetUpPages(
        pages, factors, challenges, sign_ins, attempts, requested_links, rp_name=urlsplit(settings.base_url).netloc
    )
    end_session = EndSession(
        flow,
        sessions,
        hints,
        shared.audit,
        ArrivedSignOuts(commands, tenant_id=tenant_id),
        waiting,
        base_url=settings.base_url,
        trusted_proxies=settings.trusted_proxies,
    )
    recovery, verification = RecoveryPages(link_pages, requested_links), VerificationPages(link_pages)
    registration = RegistrationPages(link_pages, requested_links, flow, sign_ins)
    invitations = InvitationPages(link_pages, flow)
    of_links = [*recovery.routes(), *verification.routes(), *registration.routes(), *invitations.routes()]
    of_factors = [*factor_pages.routes(), *set_up_pages.routes()]
    of_providers = [*provider_pages.routes(), *_backchannel_logout(settings, shared, providers).routes()]
    return [*authorization.routes(), *of_factors, *of_providers, *end_session.routes(), *of_links]


def _provider_attempts(settings: Settings, shared: Shared) -> Attempts:
    visits = SourceLimit(
        shared.connections.commands,
        "provider-visits",
        tenant_id=settings.tenant_id,
        window_s=PENDING_TTL_S,
        limit=settings.pending_requests_per_address,
        throttled=shared.metrics.throttled,
    )
    return Attempts(visits, shared.audit, outcomes=shared.metrics.sign_ins)


def _backchannel_logout(settings: Settings, shared: Shared, providers: Providers) -> BackchannelLogout:
    refused = SourceLimit(
        shared.connections.commands,
        "provider-logouts",
        tenant_id=settings.tenant_id,
        window_s=PENDING_TTL_S,
        limit=settings.client_failures_per_address,
        throttled=shared.metrics.throttled,
    )
    trusted_proxies = settings.trusted_proxies
    return BackchannelLogout(providers, shared.session_ends, refused, shared.audit, trusted_proxies=trusted_proxies)
