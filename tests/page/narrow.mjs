// Phones: no view is wider than the window, the list is a drawer, and the rail a bar at the bottom.

import { assert, login, overflowing, say, story, visit, waitIdle } from "./support.mjs";

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
    await page.getByRole("button", { name: "Sessions" }).click();
    await page.locator(".sessions.open a.session").first().waitFor();
    await page.locator(".sessions.open a.session").first().click();
    await page.locator(".sessions.open").waitFor({ state: "detached" });
  },
  { context: { viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true } },
);
