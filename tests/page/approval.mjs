// A call that waits for an approval, which is denied once and allowed once, and a question with options.

import { assert, login, say, story, waitFocus, waitIdle, waitText } from "./support.mjs";

await story(async ({ page }) => {
  await login(page);
  await say(page, "run a command");
  const card = page.locator(".card.approval");
  await card.getByText("echo hello").waitFor();
  assert.match(await card.locator("h3").innerText(), /May exec run\?/);
  await waitFocus(page, ".card.approval .deny");
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

  // Of two questions, only the first takes an answer; options may be numbers, and a click means the option and not its place.
  await say(page, "ask twice");
  const [first, second] = [page.locator(".card.question").first(), page.locator(".card.question", { hasText: "Sure?" })];
  await second.getByText("Answer the question before this one first.").waitFor();
  assert.ok(await second.getByRole("button", { name: "Yes" }).isDisabled());
  await first.getByRole("button", { name: "2" }).click();
  await page.locator(".asked", { hasText: "How many doors?" }).locator(".user-text", { hasText: /^2$/ }).waitFor();
  await second.getByRole("button", { name: "Yes" }).click();
  await waitText(page, "Both are answered.");

  // Nothing of a command is out of sight, neither in the card nor in the row.
  await say(page, "hide it");
  const shown = "echo safe[U+00A0×3000]; id > evil\\u{202e}";
  await card.locator("pre").waitFor();
  assert.equal(await card.locator("pre").innerText(), `{"command":"${shown}"}`);
  assert.equal(await page.locator(".tool-summary").last().innerText(), shown);
  await card.getByRole("button", { name: "Deny" }).click();
  await waitText(page, "It is settled.");

  // A conversation that waits for an answer is deleted at once, and the answer that nobody gave changes nothing later.
  await say(page, "ask me");
  await page.locator(".card.question", { hasText: "Which colour" }).waitFor();
  await page.getByRole("button", { name: "Session menu" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("Ask something").waitFor();
});
