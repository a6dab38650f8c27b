// Everything that the hands need is on the keyboard, and the focus is always visible.

import { ask, assert, login, say, story, until, waitFocus, waitIdle, waitText } from "./support.mjs";

const focused = (page) =>
  page.evaluate(() => ({
    tag: document.activeElement.tagName,
    id: document.activeElement.id,
    text: document.activeElement.textContent.trim(),
  }));

/** Puts the focus before the first stop of Tab. */
const toStart = (page) =>
  page.evaluate(() => {
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute("tabindex");
  });

await story(async ({ page }) => {
  const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
  const isAt = (view) => until(page, view, (hash) => location.hash.startsWith(hash), `#/${view}`);
  await login(page);
  await waitFocus(page, "#composer");
  await page.keyboard.type("hello");
  await press("Shift+Enter");
  await page.keyboard.type("keyboard");
  await press("Enter");
  await waitText(page, "echo: hello");
  await waitIdle(page);

  // The skip link is the first stop.
  await page.reload();
  await waitFocus(page, "#composer");
  await toStart(page);
  await press("Tab");
  assert.equal((await focused(page)).text, "Skip to the content");
  await press("Enter");
  assert.equal((await focused(page)).id, "composer");

  // Each stop of Tab is visible.
  await toStart(page);
  for (let stop = 0; stop < 25; stop += 1) {
    await press("Tab");
    const shown = await page.evaluate(() => {
      const element = document.activeElement;
      if (element === document.body) return true;
      const marked = [element, element.closest("label"), element.closest(".composer")].filter(Boolean);
      return marked.some(
        (one) =>
          getComputedStyle(one).outlineStyle !== "none" ||
          getComputedStyle(one).boxShadow !== "none" ||
          getComputedStyle(one).opacity === "0",
      );
    });
    assert.ok(shown, `the focus is visible: ${JSON.stringify(await focused(page))}`);
  }

  await toStart(page);
  for (const [key, view] of [
    ["j", "jobs"],
    ["m", "memory"],
    ["q", "queue"],
    ["k", "cost"],
    ["s", "system"],
    ["c", "chat"],
  ]) {
    await toStart(page);
    await press("g", key);
    await isAt(view);
  }
  await waitFocus(page, "#composer");
  await toStart(page);
  await press("?");
  await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await press("Control+k");
  await page.getByRole("combobox", { name: /A view/ }).fill("memo");
  await page.getByRole("option", { name: "Memory" }).first().waitFor();
  await press("Enter");
  await isAt("memory");
  await press("Control+k");
  await page.keyboard.type("hello");
  await page.getByRole("option", { name: "hello" }).first().waitFor();
  await press("Enter");
  await isAt("chat/");
  await waitText(page, "echo: hello");

  // Arrows walk through the list, and through menus.
  await waitFocus(page, "#composer");
  await page.locator("a.session").first().waitFor();
  await toStart(page);
  await press("/");
  assert.equal((await focused(page)).id, "search");
  await press("ArrowDown");
  assert.equal((await focused(page)).tag, "A");
  await page.getByRole("button", { name: "Session menu" }).focus();
  await press("Enter", "ArrowDown");
  assert.equal((await focused(page)).text, "Export as Markdown");
  await press("Escape");
  assert.equal(await page.getByRole("button", { name: "Session menu" }).evaluate((button) => button === document.activeElement), true);

  // The list can be hidden, which is kept.
  await page.getByRole("button", { name: "Sessions" }).press("Enter");
  await page.locator("a.session").first().waitFor({ state: "hidden" });
  await page.reload();
  await page.locator("#composer").waitFor();
  assert.equal(await page.locator("a.session").first().isVisible(), false);
  await page.getByRole("button", { name: "Sessions" }).press("Enter");
  await page.locator("a.session").first().waitFor();

  // Esc stops a turn, unless an input method or the search takes it.
  await say(page, "slow in steps");
  await waitText(page, "Paragraph 12.");
  await page.locator("#composer").dispatchEvent("keydown", { key: "Escape", keyCode: 229, bubbles: true });
  await page.getByRole("searchbox", { name: "Search" }).press("Escape");
  await ask("continue");
  await waitText(page, "Paragraph 14.");
  await page.locator("#composer").focus();
  await press("Escape");
  await waitIdle(page);
  assert.equal(await page.getByText("Paragraph 40.").count(), 0, "it was stopped");
});
