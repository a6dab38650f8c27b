// A conversation: an answer that streams, thinking, two calls side by side, the timeline, commands, and what can be done with a session.

import { ask, assert, login, say, story, until, waitIdle, waitText } from "./support.mjs";

await story(async ({ page }) => {
  await login(page);
  let release;
  const released = new Promise((resolve) => (release = resolve));
  await page.route("**/api/chat", (route) => released.then(() => route.continue()), { times: 1 });
  await say(page, "look in steps");
  // The message is there at once, before the gateway has it, and once.
  assert.equal(await page.locator(".user-text", { hasText: "look in steps" }).count(), 1);
  release();
  // The answer grows.
  await waitText(page, "Here is a comparison");
  assert.equal(await page.getByText("First, read the documentation.").count(), 0, "the first step");
  await ask("continue");
  await waitText(page, "First, read the documentation.");
  assert.equal(await page.getByText("42。").count(), 0, "the second step");
  await ask("continue");
  await waitText(page, "42。");
  await waitIdle(page);
  const tools = page.locator(".tool");
  assert.deepEqual(await tools.locator(".tool-name").allInnerTexts(), ["list_dir", "read_file"]);
  assert.deepEqual(
    await tools.locator(".tool-state").evaluateAll((all) => all.map((one) => one.ariaLabel ?? one.getAttribute("aria-label"))),
    ["done", "done"],
  );
  await tools.nth(1).locator(".tool-head").click();
  await tools.nth(1).getByText("AGENTS.md").last().waitFor();
  const thinking = page.locator(".thinking-head");
  assert.match(await thinking.innerText(), /^Thought/);
  assert.equal(await page.getByText("two things at once").count(), 0, "thinking is folded");
  await thinking.click();
  await waitText(page, "two things at once");
  await page.locator(".prose table td", { hasText: "745 B" }).waitFor();
  await page.locator(".code-block .code-keyword", { hasText: "fn" }).waitFor();
  assert.equal(await page.locator(".user-text", { hasText: "look in steps" }).count(), 1, "no double");

  // A reload shows the same.
  await page.reload();
  await waitText(page, "42。");
  assert.equal(await page.locator(".tool").count(), 2);
  await page.locator(".turn-facts").click();
  await page.locator(".timeline .step").nth(4).waitFor();
  await page.locator(".step-head").first().click();
  await page.getByText("Runtime Context").first().waitFor();
  await page.goBack();

  // A command is answered without a model.
  await page.locator("#composer").fill("/sta");
  await page.getByRole("option", { name: "/status" }).waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.locator("#composer").inputValue(), "/status ");
  await page.keyboard.press("Enter");
  await waitText(page, "is up for");
  await page.locator(".user-text", { hasText: "/status" }).waitFor();

  // Stop.
  await say(page, "slow in steps");
  await waitText(page, "Paragraph 12.");
  // Who reads further up is left alone, and told that there is more.
  const box = page.locator(".turns");
  const isAtEnd = () => box.evaluate((element) => element.scrollHeight - element.scrollTop - element.clientHeight <= 80);
  assert.ok(await isAtEnd(), "the view follows the answer");
  await box.evaluate((element) => void (element.scrollTop = 100));
  await ask("continue");
  await page.getByRole("button", { name: "New text" }).waitFor();
  await waitText(page, "Paragraph 14.");
  assert.equal(await box.evaluate((element) => element.scrollTop), 100, "nothing jumps");
  await page.getByRole("button", { name: "New text" }).click();
  await ask("continue");
  await waitText(page, "Paragraph 16.");
  assert.ok(await isAtEnd(), "the view follows again");
  await page.keyboard.press("Escape");
  await waitIdle(page);
  assert.ok(!(await page.locator(".turns").innerText()).includes("Paragraph 40."), "it was stopped");

  // Rename, search, fork, delete.
  await page.getByRole("button", { name: "Session menu" }).click();
  await page.getByRole("menuitem", { name: "Rename" }).click();
  await page.getByLabel("Title").fill("Door colours");
  await page.keyboard.press("Enter");
  await page.locator(".chat-head h1", { hasText: "Door colours" }).waitFor();
  await page.getByRole("searchbox", { name: "Search" }).fill("door col");
  await page.locator("a.session", { hasText: "Door colours" }).waitFor();
  await page.getByRole("searchbox", { name: "Search" }).fill("");
  const before = page.url();
  await page.locator(".turn").first().hover();
  await page.locator(".turn").first().getByRole("button", { name: "Fork" }).click();
  await until(page, "the fork", (old) => location.href !== old, before);
  await until(page, "its view", () => decodeURIComponent(location.hash).endsWith(`/${document.querySelector(".chat-head h1")?.title}`));
  await waitText(page, "42。");
  assert.equal(await page.getByText("Paragraph 1.").count(), 0, "a fork ends with its turn");
  await page.getByRole("button", { name: "Session menu" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("Ask something").waitFor();
  await page.getByRole("link", { name: "New chat" }).click();
  await say(page, "hello again");
  await waitText(page, "echo: hello again");
});
