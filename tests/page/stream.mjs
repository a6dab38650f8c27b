// The stream of events and what is loaded are joined: nothing is lost before the stream is open, nothing is shown twice when it is behind,
// and a stream that has died silently is opened again.

import { assert, login, say, story, until, url, waitIdle, waitText } from "./support.mjs";

/** How often a text is in the conversation. */
const count = async (page, text) => (await page.locator(".turns").innerText()).split(text).length - 1;

await story(async ({ page, context }) => {
  await login(page);
  await say(page, "hello stream");
  await waitText(page, "echo: hello stream");
  await waitIdle(page);
  const address = page.url();
  const session = decodeURIComponent(address.split("/").at(-1));
  await page.close();

  // A whole turn runs after the conversation was loaded and before the stream is open.
  const late = await context.newPage();
  let open;
  const held = new Promise((resolve) => (open = resolve));
  await late.route("**/api/events", async (route) => {
    await held;
    await route.continue();
  });
  await late.goto(address);
  await waitText(late, "echo: hello stream");
  const post = (content) =>
    context.request.post(`${url}/api/chat`, { data: { session, content }, headers: { "X-Daoyou": "page", Origin: url } });
  await post("before the stream");
  await until(
    late,
    "the end of the turn",
    async (path) => (await (await fetch(path)).json()).messages.at(-1).message.content?.includes("echo: before the stream"),
    `/api/sessions/${encodeURIComponent(session)}`,
  );
  assert.equal(await count(late, "echo: before the stream"), 0);
  open();
  await waitText(late, "echo: before the stream");

  // A tab that loads a running turn takes the events that its state already contains from the tab that listens, late.
  await post("slow");
  await waitText(late, "Paragraph 3.");
  const behind = await context.newPage();
  await behind.addInitScript(() => {
    const { set } = Object.getOwnPropertyDescriptor(BroadcastChannel.prototype, "onmessage");
    Object.defineProperty(BroadcastChannel.prototype, "onmessage", {
      set(listen) {
        set.call(this, (event) => setTimeout(() => listen(event), 1_500));
      },
    });
  });
  await behind.goto(address);
  await waitText(behind, "Paragraph 5.");
  while ((await behind.locator(".composer .stop").count()) > 0) {
    const text = await behind.locator(".turns").innerText();
    assert.equal(text.split("Paragraph 2.").length, 2, "once");
    const numbers = [...text.matchAll(/Paragraph (\d+)\./g)].map(([, number]) => Number(number));
    assert.deepEqual(numbers, [...numbers.keys()].map((at) => at + 1), text);
  }
  await behind.close();

  // Nothing comes for a while.
  await waitIdle(late);
  const isStream = (request) => request.url().endsWith("/api/events");
  const silent = await (await context.browser().newContext({ storageState: await context.storageState() })).newPage();
  await silent.clock.install();
  const first = silent.waitForRequest(isStream);
  await silent.goto(address);
  await first;
  await silent.evaluate(async () => void (window.app = (await import("/assets/store.js")).app));
  await until(silent, "the first event", () => window.app.get().version !== null);
  const second = silent.waitForRequest(isStream);
  await silent.clock.fastForward(60_000);
  await silent.clock.fastForward(5_000);
  await second;
  await silent.locator("#composer").waitFor();
});
