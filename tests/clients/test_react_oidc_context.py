"""Unmodified react-oidc-context in a React application in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.support.browser import ApplicationSite, Visitor
from tests.support.world import World

pytestmark = [pytest.mark.clients, pytest.mark.slow]

SCRIPTS = (
    "react/umd/react.production.min.js",
    "react-dom/umd/react-dom.production.min.js",
    "oidc-client-ts/dist/browser/oidc-client-ts.min.js",
)
LIBRARY = "react-oidc-context/dist/umd/react-oidc-context.js"
REQUIRE = """window.exports = {};
window.module = { set exports(value) { window.exports = value; } };
window.require = (name) => ({ react: React, "oidc-client-ts": oidc })[name];"""
"""What a bundler gives the library, which is a CommonJS module."""
APPLICATION = """(settings) => {
  const { createElement } = React, { AuthProvider, useAuth } = window.exports;
  function Application() {
    const auth = useAuth();
    if (auth.isLoading) return "Loading";
    if (auth.error) return "Failed: " + auth.error.message;
    if (!auth.isAuthenticated) return createElement("button", { onClick: () => auth.signinRedirect() }, "Enter");
    return createElement("main", {},
      createElement("p", { title: "who" }, auth.user.profile.sub + " " + auth.user.profile.name),
      createElement("p", { title: "refresh token" }, auth.user.refresh_token),
      createElement("button", { onClick: () => auth.signinSilent() }, "Renew"),
      createElement("button", { onClick: () => auth.signoutRedirect() }, "Leave"));
  }
  const root = document.body.appendChild(document.createElement("div"));
  ReactDOM.createRoot(root).render(createElement(AuthProvider, settings, createElement(Application)));
}"""


async def test_it_signs_in_renews_its_tokens_and_signs_out(
    world: World, visitor: Visitor, site: ApplicationSite, npm_packages: Path
) -> None:
    page = visitor.page
    settings = {
        "authority": world.stack.issuer,
        "client_id": site.ours,
        "redirect_uri": site.redirect_uri,
        "post_logout_redirect_uri": site.goodbye,
        "scope": "openid profile offline_access",
    }

    async def open_application() -> None:
        """Render the application on a page of the site; it is loaded again after every redirect."""
        for script in SCRIPTS:
            await page.add_script_tag(path=npm_packages / "node_modules" / script)
        await page.evaluate(REQUIRE)
        await page.add_script_tag(path=npm_packages / "node_modules" / LIBRARY)
        await page.evaluate(APPLICATION, settings)

    await page.goto(site.origin)
    await open_application()
    await visitor.press("Enter")
    await visitor.sign_in()
    await visitor.is_back()
    await open_application()
    await expect(page.get_by_title("who")).to_have_text(f"{visitor.person.user_id} Ada Lovelace")
    before = await page.get_by_title("refresh token").inner_text()
    await visitor.press("Renew")
    await expect(page.get_by_title("refresh token")).not_to_have_text(before)
    await visitor.press("Leave")
    await page.wait_for_url(site.goodbye)
    await open_application()
    await expect(page.get_by_role("button", name="Enter")).to_be_visible()
