"""In a real browser, the words around a name keep their order, whatever the name is."""

from __future__ import annotations

import secrets

import pytest
from playwright.async_api import Locator, Page

from tests.support.administrator import CONSOLE, Administrator
from tests.support.at_a_browser import PASSWORD, Person
from tests.support.at_a_browser import application as created
from tests.support.running_stack import RunningStack
from tests.support.world import World

pytestmark = pytest.mark.clients

NAMES = ["עדה", "(עדה", "עדה 12,", "ada עדה", "Ada"]

WORDS_OUTSIDE_OF_NAMES = r"""
element => {
  const words = [], texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (text.parentElement.closest("bdi")) continue;
    for (const word of text.data.matchAll(/\S+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + 1);  // its first letter: a line may end at a hyphen within the word
      const box = range.getBoundingClientRect();
      words.push([Math.round(box.top), box.left]);
    }
  }
  return words;
}
"""


async def assert_in_order(sentence: Locator, *, at_least: int) -> None:
    """The words of a sentence follow each other from left to right, line by line."""
    words = [tuple(word) for word in await sentence.evaluate(WORDS_OUTSIDE_OF_NAMES)]
    assert len(words) >= at_least
    assert words == sorted(words)


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all")


@pytest.mark.parametrize("name", NAMES)
async def test_in_confirmations(page: Page, administrator: Administrator, name: str) -> None:
    user = administrator.stack.management.users.create(name=name).id
    await page.goto(f"{administrator.stack.base_url}{CONSOLE}/users/{user}/suspension")
    await page.get_by_label("User name, e-mail or phone").fill(administrator.username)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await assert_in_order(page.locator("p.lead"), at_least=15)
    await page.goto(f"{administrator.stack.base_url}{CONSOLE}/users/{user}/delete")
    await assert_in_order(page.locator("p.lead"), at_least=12)
    await assert_in_order(page.locator("label[for=confirmation]"), at_least=3)


@pytest.mark.parametrize("name", NAMES)
async def test_in_a_consent(page: Page, world: World, name: str) -> None:
    partner, person = created(world, "SPA", third_party=True), Person(world)
    world.management.applications.update(partner.id, name=f"{name} {secrets.token_hex(2)}")
    world.management.users.update(person.user_id, name=name)
    address = str(person.authorize(partner).request.url)
    await page.goto(address)
    await assert_in_order(page.locator("p.lead"), at_least=3)
    await page.get_by_label("User name, e-mail or phone").fill(person.username)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await assert_in_order(page.locator("p.lead"), at_least=6)
    await assert_in_order(page.locator(".who p"), at_least=3)
