// The theme follows the system until somebody chooses one, which is kept.

import { assert, login, story } from "./support.mjs";

const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

async function choose(page, name) {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("menuitem", { name }).click();
}

await story(
  async ({ page }) => {
    await login(page);
    const dark = await background(page);
    await page.emulateMedia({ colorScheme: "light" });
    const light = await background(page);
    assert.notEqual(dark, light);
    await choose(page, "Theme: dark");
    assert.equal(await background(page), dark);
    await page.reload();
    await page.locator(".shell").waitFor();
    assert.equal(await background(page), dark, "the choice is kept");
    await choose(page, "Theme: automatic");
    assert.equal(await background(page), light);
  },
  { context: { colorScheme: "dark" } },
);
