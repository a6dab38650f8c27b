// Logins with named tokens: one that may only chat sees its own chats and nothing else, one that may only read changes nothing. Neither asks
// for what the gateway would refuse.

import { assert, say, story, token, url, visit, waitText } from "./support.mjs";

async function loginAs(page, scope) {
  const made = await page.request.post(`${url}/api/tokens`, {
    headers: { Authorization: `Bearer ${token}` },
    data: { name: `story-${scope}`, scope },
  });
  await page.goto(url);
  await page.getByLabel("Access token").fill((await made.json()).token);
  await page.keyboard.press("Enter");
  await page.locator(".shell").waitFor();
}

await story(async ({ page, open }) => {
  await loginAs(page, "chat");
  assert.deepEqual(await page.locator(".rail-label").allInnerTexts(), ["Chat"]);
  await say(page, "hello from a phone");
  await waitText(page, "echo: hello from a phone");
  assert.equal(await page.getByRole("button", { name: "Fork" }).count(), 0);
  await page.locator(".turn-facts").click();
  await page.locator(".timeline .step").first().waitFor();

  const context = await open();
  const reader = await context.newPage();
  await loginAs(reader, "read");
  await reader.locator("a.session", { hasText: "hello from a phone" }).click();
  await waitText(reader, "echo: hello from a phone");
  await reader.getByText("This login may read, not write.").waitFor();
  assert.equal(await reader.locator("#composer").count(), 0);
  for (const view of ["#/jobs", "#/memory", "#/queue", "#/cost", "#/system", "#/system/channels", "#/system/models"]) {
    await visit(reader, view);
    assert.equal(await reader.locator("main .error-note").count(), 0, view);
    const buttons = await reader.locator("main button").allInnerTexts();
    assert.deepEqual(
      buttons.filter((text) => /Add|Run|Pause|Edit|Forget|Drop|Test|Retry/.test(text)),
      [],
      view,
    );
  }
});
