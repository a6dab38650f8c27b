// Three tabs of one browser agree: a message that one sends streams in all, each message is there once, and an approval that one answers
// leaves the others.

import { assert, login, say, story, until, waitIdle, waitText } from "./support.mjs";

const threeTabs = async ({ page, context }) => {
  await login(page);
  await say(page, "hello tabs");
  await waitText(page, "echo: hello tabs");
  const tabs = [page, await context.newPage(), await context.newPage()];
  const address = page.url();
  for (const tab of tabs.slice(1)) {
    await tab.goto(address);
    await waitText(tab, "echo: hello tabs");
  }
  await say(tabs[1], "look around");
  await Promise.all(tabs.map((tab) => tab.locator(".tool").nth(1).waitFor()));
  await Promise.all(tabs.map((tab) => waitText(tab, "42。")));
  await Promise.all(tabs.map(waitIdle));
  // The events of a turn do not have its message, so the other tabs load it.
  await Promise.all(tabs.map((tab) => tab.locator(".user-text").nth(1).waitFor()));
  for (const tab of tabs) {
    assert.equal(await tab.locator(".user-text").count(), 2);
    assert.equal(await tab.locator(".tool").count(), 2);
  }
  await say(tabs[2], "run a command");
  await Promise.all(tabs.map((tab) => tab.locator(".card.approval").waitFor()));
  await tabs[0].locator(".card.approval .deny").click();
  await Promise.all(tabs.map((tab) => until(tab, "the end of the card", () => !document.querySelector(".card.approval"))));
  await Promise.all(tabs.map(waitIdle));
  // The answer that comes second does not count, and its tab says so.
  await say(tabs[0], "run a command");
  const button = tabs[1].locator(".card.approval .deny");
  await button.waitFor();
  await tabs[1].route("**/api/approvals/*/deny", async (route) => {
    await tabs[0].getByRole("button", { name: "Allow once" }).click();
    await tabs[0].locator(".card.approval").waitFor({ state: "detached" });
    await route.continue();
  });
  await button.click();
  await tabs[1].getByText("Your answer did not count").waitFor();
  await tabs[1].getByRole("button", { name: "OK" }).click();
  await Promise.all(tabs.map(waitIdle));
  // A session that one tab renames has its new name in all.
  await tabs[0].getByRole("button", { name: "Session menu" }).click();
  await tabs[0].getByRole("menuitem", { name: "Rename" }).click();
  await tabs[0].getByLabel("Title").fill("Three of us");
  await tabs[0].keyboard.press("Enter");
  await Promise.all(tabs.map((tab) => tab.locator("a.session", { hasText: "Three of us" }).waitFor()));
};

await story(threeTabs, { expectedFailures: [/\/deny$/] });
