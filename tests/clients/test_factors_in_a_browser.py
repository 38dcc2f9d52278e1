"""Passkeys, authenticator apps and recovery codes in Chromium, with its virtual authenticator (WebDriver extension)."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import CDPSession, expect

from tests.support.browser import ApplicationSite, Inspector, Visitor, tabbed_to
from tests.support.factors import AuthenticatorApp
from tests.support.mailed_links import mails_of

pytestmark = pytest.mark.clients

MFA, PHR = "urn:service:acr:mfa", "phr"
ADDRESS = "ada@example.com"


@pytest.fixture
def visitor(visitor: Visitor) -> Visitor:
    """A user with a verified e-mail address."""
    management, user_id = visitor.site.world.management, visitor.person.user_id
    address = f"{visitor.person.username}@example.com"
    management.users.update(user_id, primary_email=address, is_email_verified=True)
    return visitor


async def demand(visitor: Visitor, acr: str | None = None, **more: str) -> None:
    """Press "sign in" at an application that demands this level."""
    address = visitor.site.client(visitor.site.ours).sign_in_url(visitor.site.redirect_uri)
    parameters = {**({"acr_values": acr} if acr else {}), **more}
    await visitor.page.goto(address + "".join(f"&{name}={value}" for name, value in parameters.items()))


async def mailed_code(visitor: Visitor) -> str:
    """Have a code mailed, and return it from the mail."""
    await visitor.page.get_by_role("button", name="Mail a code to").click()
    await visitor.page.get_by_role("status").wait_for()
    mails = await mails_of(visitor.site.world.stack._stack.management)
    return [mail for mail in mails if mail.user_id == visitor.person.user_id][-1].values["code"]


class VirtualAuthenticator:
    """The authenticator of a device, with its user in front of it."""

    def __init__(self, session: CDPSession, id: str) -> None:
        self._session = session
        self._id = id

    @classmethod
    async def plug_in(cls, visitor: Visitor) -> VirtualAuthenticator:
        session = await visitor.page.context.new_cdp_session(visitor.page)
        await session.send("WebAuthn.enable", {"enableUI": False})
        options = {
            "protocol": "ctap2",
            "transport": "internal",
            "hasResidentKey": True,
            "hasUserVerification": True,
            "isUserVerified": True,
            "automaticPresenceSimulation": True,
        }
        added = await session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        return cls(session, added["authenticatorId"])

    async def passkeys(self) -> list[dict[str, Any]]:
        found = await self._session.send("WebAuthn.getCredentials", {"authenticatorId": self._id})
        return list(found["credentials"])

    async def unplug(self) -> None:
        await self._session.send("WebAuthn.removeVirtualAuthenticator", {"authenticatorId": self._id})

    async def verifies(self, is_verified: bool) -> None:
        """Let the user's verification succeed, or fail, from now on."""
        parameters = {"authenticatorId": self._id, "isUserVerified": is_verified}
        await self._session.send("WebAuthn.setUserVerified", parameters)


async def test_an_authenticator_app_is_set_up_and_used(visitor: Visitor) -> None:
    page = visitor.page
    await demand(visitor, MFA)
    await visitor.sign_in()
    await visitor.sees("Protect your account")
    code = await mailed_code(visitor)
    await page.get_by_role("link", name="Set up an authenticator app").click()
    await visitor.sees("Set up an authenticator app")
    await expect(page.get_by_role("img", name="QR code with the key")).to_be_visible()
    app = AuthenticatorApp((await page.locator("code.key").inner_text()).replace(" ", ""))
    await page.get_by_label("Code in your authenticator app").fill(app.wrong())
    await page.get_by_label("Code from the mail").fill(code)
    await visitor.press("Set up")
    await expect(page.get_by_role("alert")).to_have_text("The code is not right, or was used already.")
    await page.get_by_label("Code in your authenticator app").fill(app.code(-1))
    await page.get_by_label("Code from the mail").fill(code)
    await visitor.press("Set up")
    await visitor.sees("Keep your recovery codes")
    codes = await page.locator(".codes code").all_inner_texts()
    assert len(set(codes)) == 10
    await page.get_by_role("link", name="I have kept them: continue").click()
    assert (await visitor.is_back())["code"]
