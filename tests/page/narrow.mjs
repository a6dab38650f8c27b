// Phones: no view is wider than the window, the list is a drawer, and the rail a bar at the bottom.

import { ask, assert, login, overflowing, say, story, visit, waitIdle, waitText } from "./support.mjs";

const VIEWS = [
  "#/jobs",
  "#/jobs/new",
  "#/memory",
  "#/queue",
  "#/cost",
  "#/system",
  "#/system/channels",
  "#/system/models",
  "#/system/agents",
  "#/system/doctor",
  "#/system/log",
  "#/system/tokens",
  "#/system/configuration",
];

await story(
  async ({ page }) => {
    await login(page);
    await say(page, "look around");
    await page.locator(".tool").nth(1).waitFor();
    await waitIdle(page);
    const chat = await page.evaluate(() => location.hash);
    const turn = (await page.locator(".turn-facts").getAttribute("href")).replace(/^.*#/, "#");
    for (const width of [320, 390, 767]) {
      await page.setViewportSize({ width, height: 780 });
      for (const view of [chat, turn, "#/chat", ...VIEWS]) {
        await visit(page, view);
        assert.deepEqual(await overflowing(page), [], `${view} at ${width}`);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${view} at ${width} scrolls sideways`);
      }
    }
    await visit(page, chat);
    const rail = await page.locator(".rail").boundingBox();
    assert.ok(rail.y > 700, "the rail is at the bottom");
    assert.equal(await page.locator("a.session").first().isVisible(), false);
    // The drawer has the focus, the rest waits, and Esc gives the focus back; it stops no turn.
    const button = page.locator(".chat-head .icon-button").first();
    const isFocused = (locator) => locator.evaluate((element) => element.contains(document.activeElement));
    await say(page, "slow in steps");
    await waitText(page, "Paragraph 12.");
    assert.equal(await button.getAttribute("aria-expanded"), "false");
    await button.click();
    await page.locator(".sessions.open a.session").first().waitFor();
    assert.equal(await button.getAttribute("aria-expanded"), "true");
    assert.ok(await isFocused(page.locator(".sessions.open")), "the focus is in the drawer");
    assert.equal(await page.locator(".conversation[inert], .rail[inert]").count(), 2);
    await page.keyboard.press("Escape");
    await page.locator(".sessions.open").waitFor({ state: "detached" });
    assert.ok(await isFocused(button));
    assert.equal(await button.getAttribute("aria-expanded"), "false");
    assert.equal(await page.locator("[inert]").count(), 0);
    await ask("continue");
    await waitText(page, "Paragraph 14.");
    await button.click();
    await page.locator(".sessions.open a.session").first().click();
    await page.locator(".sessions.open").waitFor({ state: "detached" });
    await page.keyboard.press("Escape");
    await waitIdle(page);
    assert.equal(await page.getByText("Paragraph 40.").count(), 0, "it was stopped");
  },
  { context: { viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true } },
);
