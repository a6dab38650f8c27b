// First visit: a wrong token, the right one, a reload, and the way out.

import { assert, login, story, token, url } from "./support.mjs";

await story(
  async ({ page }) => {
    await page.goto(url);
    const field = page.getByLabel("Access token");
    await page.getByText("daoyou open").waitFor();
    assert.equal(await field.evaluate((element) => element === document.activeElement), true, "the token has the focus");
    await field.fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("This is not the gateway's token.").waitFor();
    await login(page);
    assert.ok(!(await page.content()).includes(token), "the token is nowhere in the page");
    const stored = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie);
    assert.ok(!stored.includes(token), "scripts cannot read the token");
    await page.reload();
    await page.locator(".shell").waitFor();
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("menuitem", { name: "Log out" }).click();
    await field.waitFor();
    await page.reload();
    await field.waitFor();
    await page.goto(`${url}/?login=expired`);
    await page.getByText("This link was used or has expired").waitFor();
  },
  { expectedFailures: [/\/api\/login$/] },
);
