// A call that waits for an approval, which is denied once and allowed once, and a question with options.

import { assert, login, say, story, waitIdle, waitText } from "./support.mjs";

await story(async ({ page }) => {
  await login(page);
  await say(page, "run a command");
  const card = page.locator(".card.approval");
  await card.getByText("echo hello").waitFor();
  assert.match(await card.locator("h3").innerText(), /May exec run\?/);
  assert.equal(
    await card.getByRole("button", { name: "Deny" }).evaluate((button) => button === document.activeElement),
    true,
    "Deny has the focus",
  );
  await page.locator(".rail .badge", { hasText: "1" }).waitFor();
  // The decision outlives a reload.
  await page.reload();
  await card.getByRole("button", { name: "Deny" }).click();
  await waitIdle(page);
  await page.locator(".tool-state.bad").waitFor();
  await card.waitFor({ state: "detached" });

  await say(page, "run a command");
  await card.getByRole("button", { name: "Allow once" }).click();
  await waitIdle(page);
  await page.locator(".tool-state.ok").waitFor();

  await say(page, "ask me");
  await page.locator(".card.question").getByText("Which colour").waitFor();
  await page.locator(".card.question").getByRole("button", { name: "Blue" }).click();
  await waitText(page, "The door is painted.");
  await page.locator(".asked", { hasText: "Blue" }).waitFor();
});
