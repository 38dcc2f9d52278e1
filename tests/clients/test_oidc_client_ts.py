"""Unmodified oidc-client-ts as a single-page application in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import ApplicationSite, Visitor
from tests.support.world import World

pytestmark = [pytest.mark.clients, pytest.mark.slow]


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

    async def run(call: str) -> object:
        """Call the library on a page of the site; it is loaded again after every redirect."""
        await page.add_script_tag(path=npm_packages / "node_modules/oidc-client-ts/dist/browser/oidc-client-ts.min.js")
        return await page.evaluate(
            f"async (settings) => {{ const manager = new oidc.UserManager(settings); {call} }}", settings
        )

    await page.goto(site.origin)
    await run("void manager.signinRedirect()")
    await visitor.sign_in()
    await visitor.is_back()
    assert await run("return (await manager.signinCallback()).profile.sub") == visitor.person.user_id
    renewed = "const [before, after] = [await manager.getUser(), await manager.signinSilent()];"
    compared = "return [after.profile.name, after.refresh_token !== before.refresh_token]"
    assert await run(renewed + compared) == ["Ada Lovelace", True]
    await run("void manager.signoutRedirect()")
    await page.wait_for_url(site.goodbye)
    assert await run("return await manager.getUser()") is None
