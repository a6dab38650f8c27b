// First visit: a wrong token, the right one, a reload, and the way out.

import { assert, login, say, story, token, url, waitFocus, waitText } from "./support.mjs";

await story(
  async ({ page }) => {
    await page.goto(url);
    const field = page.getByLabel("Access token");
    await page.getByText("daoyou open").waitFor();
    await waitFocus(page, "input[name=token]");
    await field.fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("This is not the gateway's token.").waitFor();
    await login(page);
    assert.ok(!(await page.content()).includes(token), "the token is nowhere in the page");
    const stored = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie);
    assert.ok(!stored.includes(token), "scripts cannot read the token");
    await page.reload();
    await page.locator(".shell").waitFor();

    // The next login, after a logout or when the cookie has ended, finds nothing of the last one.
    const logout = async () => {
      await page.getByRole("button", { name: "Settings" }).click();
      await page.getByRole("menuitem", { name: "Log out" }).click();
    };
    const expire = async () => {
      await page.context().clearCookies();
      // Another request may tell the page first, which then leaves by itself.
      await page.evaluate(async () => (await import("/assets/api.js")).get("/api/cron")).catch(() => {});
    };
    for (const leave of [expire, logout]) {
      await say(page, "my own words");
      await waitText(page, "echo: my own words");
      await page.locator("#composer").fill("a draft");
      await page.evaluate(async () => (await import("/assets/chat/picker.js")).choose("page:mine", { model: "mine" }));
      await leave();
      await field.waitFor();
      assert.equal(await page.evaluate(() => location.hash), "");
      const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }));
      assert.doesNotMatch(kept, /draft"|page:mine/);
      await login(page);
      await page.locator(".welcome").waitFor();
      assert.equal(await page.locator("#composer").inputValue(), "");
    }
    await logout();
    await field.waitFor();
    await page.reload();
    await field.waitFor();
    await page.goto(`${url}/?login=expired`);
    await page.getByText("This link was used or has expired").waitFor();
  },
  { expectedFailures: [/\/api\/(login|cron|approvals|events|sessions|turns)/] },
);
