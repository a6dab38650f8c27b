// Files by button, by paste and by drag; a picture is shown, and a file that cannot be read by a browser is offered.

import { assert, login, say, story, until, waitFocus, waitText } from "./support.mjs";

/** A picture of one pixel. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** Dispatches an event of the clipboard or a drag with a file. */
function give(page, kind, name, type) {
  return page.evaluate(
    ({ kind, name, type, png }) => {
      const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
      const transfer = new DataTransfer();
      transfer.items.add(new File([bytes], name, { type }));
      const target = kind === "paste" ? document.getElementById("composer") : document.body;
      const event =
        kind === "paste"
          ? new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true })
          : new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true });
      target.dispatchEvent(event);
    },
    { kind, name, type, png: PNG },
  );
}

const upload = async ({ page }) => {
  await login(page);
  // From then on it also listens to what is dragged.
  await waitFocus(page, "#composer");
  await page
    .locator(".composer input[type=file]")
    .setInputFiles({ name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("some notes") });
  await give(page, "paste", "pasted.png", "image/png");
  await give(page, "dragover", "dropped.png", "image/png");
  await page.getByText("Drop the files to attach them").waitFor();
  await give(page, "drop", "dropped.png", "image/png");
  await page.locator(".file-chip.ready").nth(2).waitFor();
  await page.getByRole("button", { name: "Remove dropped.png" }).click();
  assert.equal(await page.locator(".file-chips .file-chip").count(), 2);
  await say(page, "here are files");
  await waitText(page, "echo: here are files");
  const check = async () => {
    await page.locator(".user .file-chip", { hasText: "notes.txt" }).waitFor();
    await page.waitForFunction(() => document.querySelector(".user img.thumbnail")?.naturalWidth === 1);
  };
  await check();
  await page.reload();
  await check();

  // A message that could not be sent comes back with its files, before what was written meanwhile.
  await page.route("**/api/chat", (route) => route.abort());
  await give(page, "paste", "again.png", "image/png");
  await page.locator(".composer .file-chip.ready").waitFor();
  await say(page, "first part");
  await page.locator("#composer").fill("second part");
  await page.locator(".send-failed").getByRole("button", { name: "Edit" }).click();
  await page.locator(".composer .file-chip.ready", { hasText: "again.png" }).waitFor();
  assert.equal(await page.locator("#composer").inputValue(), "first part\n\nsecond part");
  await page.unroute("**/api/chat");
  await page.locator(".send").click();
  await waitText(page, "echo: first part");
  await page.locator(".turn").last().locator(".user img.thumbnail").waitFor();

  // A reload keeps the files of an unsent message beside its draft.
  await page.route("**/api/chat", (route) => route.abort());
  await give(page, "paste", "kept.png", "image/png");
  await page.locator(".composer .file-chip.ready").waitFor();
  await say(page, "with a picture");
  await page.locator(".send-failed").waitFor();
  for (const _ of ["once", "again"]) {
    await page.reload();
    await page.locator(".composer .file-chip.ready", { hasText: "kept.png" }).waitFor();
    assert.equal(await page.locator("#composer").inputValue(), "with a picture");
  }
  await page.unroute("**/api/chat");
  await page.locator(".send").click();
  await waitText(page, "echo: with a picture");
  await page.locator(".turn").last().locator(".user img.thumbnail").waitFor();
  assert.equal(await page.locator(".composer .file-chip").count(), 0);

  // A message with a file can be asked again. While that fails, the answer stays.
  const last = page.locator(".turn").last();
  const point = () => last.locator(".turn-facts").getAttribute("href");
  const [old, count] = [await point(), await page.locator(".turn").count()];
  const retry = async () => {
    await last.hover();
    await last.getByRole("button", { name: "Retry" }).click();
  };
  await page.route("**/api/chat", (route) => route.fulfill({ status: 422, json: { error: { code: "invalid", message: "refused" } } }));
  await retry();
  // Even a reload before the next frame keeps the file.
  await page.evaluate(() => (window.requestAnimationFrame = window.setTimeout = () => 0));
  await page.locator(".send-failed").getByRole("button", { name: "Edit" }).click();
  await page.locator(".composer .file-chip.ready", { hasText: "kept.png" }).waitFor();
  await page.reload();
  await waitText(page, "echo: with a picture");
  await page.locator(".composer .file-chip").first().waitFor();
  assert.equal(await page.locator(".composer .file-chip").count(), 1, "one file is one chip");
  await page.getByRole("button", { name: "Remove kept.png" }).click();
  await page.locator("#composer").fill("");
  await page.unroute("**/api/chat");
  await retry();
  await until(page, "another turn", (href) => [...document.querySelectorAll(".turn-facts")].at(-1)?.getAttribute("href") !== href, old);
  await last.locator(".user img.thumbnail").waitFor();
  await waitText(page, "echo: with a picture");
  await until(page, "the old turn to go", (expected) => document.querySelectorAll(".turn").length === expected, count);

  // A message that the gateway took, although its answer was lost, is sent once.
  const stalled = async (route) => void (await route.fetch());
  await page.route("**/api/chat", stalled);
  const taken = page.waitForRequest("**/api/chat");
  await say(page, "count me once");
  await taken;
  await waitText(page, "echo: count me once");
  await page.reload();
  await until(page, "the draft", () => document.querySelector("#composer")?.value === "count me once");
  await page.unroute("**/api/chat", stalled);
  await page.locator(".send").click();
  await until(page, "the sending", () => document.querySelector("#composer").value === "" && !document.querySelector(".user.sending"));
  await waitText(page, "echo: count me once");
  assert.equal(await page.locator(".user-text", { hasText: "count me once" }).count(), 1);

  // An answer that does not come is not waited for: the message is sent again, and counts once.
  await page.evaluate(() => {
    window.timeout = AbortSignal.timeout;
    AbortSignal.timeout = () => window.timeout.call(AbortSignal, 300);
  });
  const stalledOnce = async (route) => {
    // Only the first request is impatient.
    await page.evaluate(() => void (AbortSignal.timeout = window.timeout));
    await route.fetch();
  };
  await page.route("**/api/chat", stalledOnce, { times: 1 });
  await say(page, "count me too");
  await waitText(page, "echo: count me too");
  await until(page, "the second answer", () => !document.querySelector(".user.sending, .send-failed"));
  assert.equal(await page.locator(".user-text", { hasText: "count me too" }).count(), 1);

  // Files beyond the limit of a message are named, not dropped in silence.
  const part = (number) => ({ name: `part-${number}.txt`, mimeType: "text/plain", buffer: Buffer.from("x") });
  await page.locator(".composer input[type=file]").setInputFiles(Array.from({ length: 12 }, (_, number) => part(number)));
  const notice = page.getByText("2 more not attached: a message has at most 10 files");
  await notice.waitFor();
  await page.locator(".composer .file-chip.ready").nth(9).waitFor();
  await page.getByRole("button", { name: "Remove part-0.txt" }).click();
  await notice.waitFor({ state: "detached" });

  // Files are uploaded one after another, and again while the gateway has no memory for them.
  const uploads = { open: 0, most: 0, refused: false };
  await page.route("**/api/files?*", async (route) => {
    uploads.most = Math.max(uploads.most, ++uploads.open);
    const response = uploads.refused ? await route.fetch() : null;
    uploads.open -= 1;
    if (response) return route.fulfill({ response });
    uploads.refused = true;
    return route.fulfill({ status: 503, json: { error: { code: "body_budget", message: "try again later" } } });
  });
  await page.getByRole("link", { name: "New chat" }).click();
  await page.locator(".welcome").waitFor();
  await page.locator(".composer input[type=file]").setInputFiles([1, 2, 3].map(part));
  await page.locator(".composer .file-chip.ready").nth(2).waitFor();
  assert.deepEqual(uploads, { open: 0, most: 1, refused: true });

  // The first message of a chat is asked again in an empty chat.
  await say(page, "from the beginning");
  await waitText(page, "echo: from the beginning");
  await page.locator(".turn-facts").waitFor();
  const first = await point();
  await retry();
  await until(page, "another turn", (href) => [...document.querySelectorAll(".turn-facts")].at(-1)?.getAttribute("href") !== href, first);
  await until(page, "one turn", () => document.querySelectorAll(".turn").length === 1);
  await page.locator(".user .file-chip").nth(2).waitFor();
};

await story(upload, { expectedFailures: [/\/api\/(chat|files\?.*)$/] });
