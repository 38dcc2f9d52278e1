"""Pictures of the pages of the sign-in, those of links in mails included; for ``make screenshots``."""

from __future__ import annotations

import email
import re
import secrets
import time
from email.policy import SMTPUTF8
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from playwright.sync_api import Page

from stead import IdentityClient, ManagementClient, OidcClientMetadata
from tests.support.camera import Camera
from tests.support.factors import AuthenticatorApp
from tests.support.waiting import eventually

PASSWORD = "unlike any documented example"
_LINK = re.compile(r"https?://\S+[?]link=\S+")
_CODE = re.compile(r"\b[0-9A-Z]{4}-[0-9A-Z]{4}\b")
_DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": False,
}


class Shown(NamedTuple):
    """Whose pictures were taken.

    Attributes:
        user_id: Has a passkey, an authenticator app and recovery codes, and is signed in.
        application: Has the consent of the user.
        sign_in: Where the application sends a browser for a sign-in.
    """

    user_id: str
    application: str
    sign_in: str


class SignInPictures:
    """A person in front of a camera, at an application of a partner.

    Args:
        mails: The folder in which mails are kept.
    """

    def __init__(self, camera: Camera, management: ManagementClient, base_url: str, mails: Path) -> None:
        self._camera, self._management, self._base_url, self._mails = camera, management, base_url, mails
        self._callback = f"{base_url}/?"  # any page that is not of the sign-in
        application = management.applications.create(
            name="Parcel tracker",
            type="SPA",
            is_third_party=True,
            oidc_client_metadata=OidcClientMetadata(redirect_uris=[self._callback]),
        )
        self._client = IdentityClient(base_url, application.id, scopes=["email"])
        self._address = f"hedy.{secrets.token_hex(2)}@example.com"
        user = management.users.create(
            name="Hedy Lamarr", username="hedy", primary_email=self._address, is_email_verified=True, password=PASSWORD
        )
        self._shown = Shown(user.id, application.id, self._client.sign_in_url(self._callback))

    @property
    def _page(self) -> Page:
        return self._camera.page

    def take(self) -> Shown:
        """Take all pictures; the person is signed in afterwards."""
        self._management.sign_in_policy.update(registration="open")
        self._forgotten_password()
        self._registration()
        self._invitation()
        self._verification()
        self._factors()
        self._management.sign_in_policy.update(registration="off")
        return self._shown

    def _forgotten_password(self) -> None:
        address = f"maria.{secrets.token_hex(2)}@example.com"
        self._management.users.create(name="Maria Mitchell", primary_email=address, password=PASSWORD)
        self._begin()
        self._camera.take("sign-in-third-party")
        self._sign_in("not this one")
        self._camera.take("sign-in-refused")
        self._follow("a[href*=forgotten]", "sign-in-forgotten")
        self._fill("sign-in-forgotten-sent", {"#address": address})
        self._open_mailed(address, "sign-in-recovery")
        self._fill("sign-in-recovery-refused", {"#password": PASSWORD, "#repeated": "another one"})
        self._fill("sign-in-recovered", {"#password": PASSWORD, "#repeated": PASSWORD})
        self._page.goto(f"{self._base_url}/sign-in/recovery?link=spent")
        self._camera.take("sign-in-link-not-valid")

    def _registration(self) -> None:
        address = f"mary.{secrets.token_hex(2)}@example.com"
        self._begin()
        self._follow("a[href*=register]", "sign-in-register")
        self._fill("sign-in-register-sent", {"#address": address})
        self._open_mailed(address, "sign-in-registration")
        names = {"#name": "Mary Somerville", "#password": PASSWORD, "#repeated": PASSWORD}
        self._fill("sign-in-registered", names)

    def _invitation(self) -> None:
        address = f"emmy.{secrets.token_hex(2)}@example.com"
        organization = self._management.organizations.create("Tidewater Ferries").id
        until = int((time.time() + 86_400) * 1000)
        self._management.organization_invitations.create(organization, address, expires_at=until)
        self._open_mailed(address, "sign-in-invitation")
        names = {"#name": "Emmy Noether", "#password": PASSWORD, "#repeated": PASSWORD}
        self._fill("sign-in-invitation-accepted", names)

    def _verification(self) -> None:
        user_id, address = self._shown.user_id, f"lamarr.{secrets.token_hex(2)}@example.com"
        self._management.users.update(user_id, primary_email=address)
        self._management.users.send_verification_email(user_id)
        self._open_mailed(address, "sign-in-verification")
        self._fill("sign-in-verified", {})

    def _factors(self) -> None:
        page, device = self._page, self._page.context.new_cdp_session(self._page)
        device.send("WebAuthn.enable")
        added = device.send("WebAuthn.addVirtualAuthenticator", {"options": _DEVICE})
        identified = {"authenticatorId": added["authenticatorId"]}
        self._begin(acr_values="urn:service:acr:mfa")
        self._sign_in()
        page.locator('form[action*="/set-up/code"] button').wait_for()
        self._camera.take("set-up")
        page.locator('form[action*="/set-up/code"] button').click()
        page.get_by_role("status").wait_for()
        self._camera.take("set-up-code-sent")
        address = self._management.users.get(self._shown.user_id).primary_email or ""
        code = self._mailed(address, _CODE)
        self._follow("a.button.quiet", "set-up-authenticator")
        app = AuthenticatorApp(page.locator("code.key").inner_text().replace(" ", ""))
        self._fill("set-up-authenticator-refused", {"#enrolment-code": "WRONG-CODE", "#current": app.code()})
        page.locator("#current").wait_for()
        self._fill("recovery-codes", {"#enrolment-code": code, "#current": app.code()}, shows=".codes")
        page.locator(".way-back a").click()
        page.locator("button[value=allow]").wait_for()
        self._camera.take("consent")
        page.locator("button[value=allow]").click()
        page.wait_for_url(re.compile(f"^{re.escape(self._callback)}"))
        page.goto(f"{self._base_url}/account/factors/set-up/add-passkey")
        page.locator("#passkey:not([hidden])").wait_for()
        self._camera.take("set-up-passkey")
        page.locator("#name").fill("My laptop")
        device.send("WebAuthn.setAutomaticPresenceSimulation", {**identified, "enabled": True})
        page.locator("#passkey button").click()
        page.wait_for_url(f"{self._base_url}/account/factors")
        device.send("WebAuthn.setAutomaticPresenceSimulation", {**identified, "enabled": False})
        page.goto(f"{self._base_url}/account/factors/set-up/new-recovery-codes")
        self._camera.take("new-recovery-codes")
        page.context.clear_cookies()
        self._begin()
        self._sign_in()
        page.locator("#code").wait_for()
        self._camera.take("factor")
        page.locator("summary").click()
        self._camera.take("factor-lost")
        page.locator("#code").fill(app.wrong())
        page.locator("#code").press("Enter")
        page.get_by_role("alert").first.wait_for()
        self._camera.take("factor-refused")
        device.send("WebAuthn.setAutomaticPresenceSimulation", {**identified, "enabled": True})
        page.locator("#passkey button").click()
        page.wait_for_url(re.compile(f"^{re.escape(self._callback)}"))
        device.send("WebAuthn.removeVirtualAuthenticator", identified)  # else it signs in wherever it is asked

    # what the person does

    def _begin(self, **parameters: str) -> None:
        if not parameters:
            self._page.context.clear_cookies()
        address = self._client.sign_in_url(self._callback)
        self._page.goto(f"{address}&{urlencode(parameters)}" if parameters else address)

    def _sign_in(self, password: str = PASSWORD) -> None:
        self._page.locator("#identifier").fill("hedy")
        self._page.locator("#password").fill(password)
        self._page.locator("#password").press("Enter")
        self._page.wait_for_load_state()

    def _follow(self, link: str, name: str) -> None:
        self._page.locator(link).first.click()
        self._page.wait_for_load_state()
        self._camera.take(name)

    def _fill(self, name: str, typed: dict[str, str], *, shows: str = "h1") -> None:
        """Fill in the first form of the page, send it, and take the next page."""
        for field, value in typed.items():
            self._page.locator(field).fill(value)
        with self._page.expect_navigation():
            if typed:
                self._page.locator(list(typed)[-1]).press("Enter")
            else:
                self._page.locator("main button[type=submit]").first.click()
        self._page.locator(shows).first.wait_for()
        self._camera.take(name)

    def _open_mailed(self, address: str, name: str) -> None:
        self._page.context.clear_cookies()
        self._page.goto(self._mailed(address, _LINK))
        self._camera.take(name)

    def _mailed(self, address: str, pattern: re.Pattern[str]) -> str:
        """Return what the newest mail to an address has that matches."""

        def found() -> str | None:
            for path in sorted(self._mails.glob("*.eml"), key=lambda each: -each.stat().st_mtime_ns):
                mail = email.message_from_bytes(path.read_bytes(), policy=SMTPUTF8)
                text = mail.get_body(("plain",))
                if mail["To"] == address and text is not None and (match := pattern.search(text.get_content())):
                    return match[0]
            return None

        eventually(lambda: found() is not None)
        return found() or ""
