// The gateway dies while an answer streams, and comes back: the page says so, shows the whole answer once, and sends what was written
// meanwhile.

import { ask, assert, login, say, story, until, url, waitIdle, waitText } from "./support.mjs";

await story(
  async ({ page }) => {
    await login(page);
    await say(page, "slow");
    await waitText(page, "Paragraph 1.");
    await ask("kill");
    await page.getByText("Reconnecting…").waitFor();
    // What is sent meanwhile says that it waits, and is sent in its order when the gateway is back.
    await say(page, "are you there");
    await page.locator(".send-failed", { hasText: "The page sends it as soon as the gateway answers." }).waitFor();
    await say(page, "and now");
    await page.locator(".send-failed").nth(1).waitFor();
    assert.equal(await page.getByText(/failed to fetch/i).count(), 0, "an error of the browser is not an answer");
    await ask("start");
    await until(page, "the connection", () => !document.querySelector(".connection-bar"));
    await waitText(page, "Paragraph 40.");
    await waitText(page, "are you there");
    await waitText(page, "and now");
    await until(page, "the end of the sending", () => !document.querySelector(".send-failed, .user.sending"));
    await waitIdle(page);
    const text = await page.locator(".turns").innerText();
    for (const once of ["Paragraph 1.", "Paragraph 40.", "echo: are you there"]) {
      assert.equal(text.split(once).length - 1, 1, `${once} is there once`);
    }
    assert.ok(text.lastIndexOf("are you there") < text.lastIndexOf("and now"), "the order is kept");
    assert.equal(await page.locator(".send-failed").count(), 0);

    // If only the request failed, the page tries again as well.
    await page.route("**/api/chat", (route) => route.abort());
    await say(page, "once more");
    await page.locator(".send-failed").waitFor();
    await page.unroute("**/api/chat");
    await waitText(page, "echo: once more");

    // A conversation that could not be read is read again, also if nothing more happens in it.
    let failures = 0;
    const fail = (route) => {
      failures += 1;
      return route.fulfill({ status: 503, json: { error: { code: "busy", message: "try again" } } });
    };
    await page.route("**/live", fail);
    const session = decodeURIComponent(new URL(page.url()).hash.split("/").at(-1));
    const data = { session, content: "from elsewhere" };
    const sent = await page.request.post(`${url}/api/chat`, { headers: { "X-Daoyou": "page", Origin: url }, data });
    assert.equal(sent.status(), 202, await sent.text());
    await waitText(page, "echo: from elsewhere");
    while (failures < 8) await page.waitForRequest("**/live");
    await page.unroute("**/live", fail);
    await page.locator(".user-text", { hasText: /^from elsewhere$/ }).waitFor();

    // A message that is accepted while the conversation is read stays on the screen.
    let [hold, release] = [];
    const held = new Promise((resolve) => (hold = resolve));
    const released = new Promise((resolve) => (release = resolve));
    await page.route("**/live", async (route) => {
      const response = await route.fetch();
      hold();
      await released;
      await route.fulfill({ response });
    });
    const title = `${url}/api/sessions/${encodeURIComponent(session)}`;
    await page.request.patch(title, { headers: { "X-Daoyou": "page", Origin: url }, data: { title: "held" } });
    await held;
    await page.evaluate(() => {
      const count = () => [...document.querySelectorAll(".user-text")].filter((text) => text.textContent === "slow again").length;
      const seen = (window.seen = []);
      new MutationObserver(() => seen.at(-1) !== count() && seen.push(count())).observe(document.body, { childList: true, subtree: true });
    });
    await page.route("**/api/chat", async (route) => {
      await route.fulfill({ response: await route.fetch() });
      release();
    });
    await say(page, "slow again");
    await until(page, "both answers", () => document.querySelector(".turns").innerText.split("Paragraph 40.").length === 3);
    await waitIdle(page);
    assert.deepEqual(await page.evaluate(() => window.seen.slice(window.seen.indexOf(1))), [1], "it was never gone");
    await page.unroute("**/api/chat");
    await page.unroute("**/live");

    // A reload keeps the text of an unsent message as the draft.
    await page.route("**/api/chat", (route) => route.abort());
    await say(page, "do not lose this");
    await page.locator(".send-failed").waitFor();
    await page.locator("#composer").fill("nor this");
    await page.reload();
    await until(page, "the draft", () => document.querySelector("#composer")?.value === "do not lose this\n\nnor this");
    await page.reload();
    await until(page, "the draft once", () => document.querySelector("#composer")?.value === "do not lose this\n\nnor this");
  },
  { expectedFailures: [/./] },
);
