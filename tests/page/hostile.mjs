// Text of a model is text: no script, no address but http, https and mailto, no picture from elsewhere, and bounded work.

import { assert, login, say, story, visit, waitIdle } from "./support.mjs";

await story(async ({ page }) => {
  await login(page);
  await say(page, "hostile");
  await page.locator(".turns").getByText("the end of it").waitFor();
  await waitIdle(page);
  const found = await page.evaluate(() => {
    const answer = document.querySelector(".answer");
    return {
      pwned: window.pwned ?? null,
      active: answer.querySelectorAll("script, iframe, object, embed, form, style, link, meta, base, svg:not(.icon)").length,
      handlers: [...answer.querySelectorAll("*")].filter((element) => [...element.attributes].some(({ name }) => name.startsWith("on")))
        .length,
      links: [...answer.querySelectorAll(".prose a")].map((link) => [link.protocol, link.rel, link.target]),
      pictures: [...answer.querySelectorAll("img")].map((image) => image.src),
      text: answer.innerText,
    };
  });
  assert.equal(found.pwned, null);
  assert.equal(found.active, 0);
  assert.equal(found.handlers, 0);
  assert.deepEqual(found.pictures, []);
  assert.ok(found.links.length >= 3, "harmless links are links");
  for (const [protocol, rel, target] of found.links) {
    assert.ok(["http:", "https:", "mailto:"].includes(protocol), protocol);
    assert.deepEqual([rel, target], ["noopener noreferrer", "_blank"]);
  }
  for (const shown of ["<script>", "onerror=", "javascript:", "<iframe"])
    assert.ok(found.text.includes(shown), `${shown} is shown as it was written`);

  // The work on what an attacker would write is bounded.
  const slow = await page.evaluate(async () => {
    const { tokenize } = await import("/assets/markdown.js");
    const texts = {
      quotes: `${">".repeat(50_000)} a`,
      lists: Array.from({ length: 500 }, (_, depth) => `${"  ".repeat(depth)}- a`).join("\n"),
      brackets: "[".repeat(50_000),
      links: "[a](".repeat(20_000),
      stars: "*a_".repeat(30_000),
      marks: "_a_".repeat(30_000),
      ticks: "`a``b".repeat(20_000),
      angles: "<a ".repeat(30_000),
      table: `${"|".repeat(20_000)}\n${"|-".repeat(10_000)}`,
      rows: `${"|a".repeat(500)}\n${"|-".repeat(500)}\n${`${"|a".repeat(500)}\n`.repeat(150)}`,
      entities: "&#0;&#x110000;&#xd800;".repeat(5_000),
      long: "a ".repeat(150_000),
    };
    const time = (text) => {
      const begun = performance.now();
      tokenize(text);
      return performance.now() - begun;
    };
    // The machine may be busy with something else, so the shortest of several times counts.
    const shortest = (text, tries = 4) => {
      const took = time(text);
      return took < 2_000 || tries === 0 ? took : Math.min(took, shortest(text, tries - 1));
    };
    return Object.entries(texts).map(([name, text]) => [name, shortest(text)]);
  });
  for (const [name, took] of slow) assert.ok(took < 2_000, `${name} took ${took} ms`);
  const pieces = await page.evaluate(async () => {
    const { highlight } = await import("/assets/highlight.js");
    const texts = [
      ["diff", "+\n".repeat(20_000)],
      ["diff", "+\n".repeat(500_000)],
      ["js", "1 ".repeat(20_000)],
    ];
    return texts.map(([language, text]) => {
      const list = highlight(text, language);
      return { count: list.length, isWhole: list.map((piece) => piece.text ?? piece).join("") === text };
    });
  });
  for (const { count, isWhole } of pieces) assert.ok(count <= 5_002 && isWhole, `${count} pieces of code`);

  // Nothing is shown as something else than it is.
  const shown = await page.evaluate(async () => {
    const { entities } = await import("/assets/markdown.js");
    const { argumentsText } = await import("/assets/chat/tools.js");
    const { csv } = await import("/assets/views/cost.js");
    const { fromHistory } = await import("/assets/chat/turns.js");
    const note = '[The scheduled job "tea" (id a1), due 2026-01-01 09:00, sent this to the chat:]';
    const turnOf = (text) => fromHistory([{ turn: "t", at: "2026-01-01T00:00:00Z", role: "user", text, message: { content: text } }])[0];
    const row = (model) => csv([{ day: "2026-01-01", models: [{ model }] }]).split("\n")[1];
    return {
      entities: entities("&amp; &#x41; &toString; &valueOf;"),
      arguments: argumentsText({ path: "a\u202etxt\u200b.exe", command: `a${"\u2800".repeat(21)}b\u115f\u00a0中\u3000文 c` }),
      rows: ["=1", "a\rb"].map(row),
      notes: [note, `${note} Pay it.`].map(turnOf).map(({ job, users }) => [job?.id ?? null, users.length]),
    };
  });
  assert.equal(shown.entities, "& A &toString; &valueOf;");
  assert.ok(shown.arguments.includes("a\\u{202e}txt\\u{200b}.exe"), shown.arguments);
  assert.ok(shown.arguments.includes("a[U+2800×21]b\\u{115f}\\u{a0}中\u3000文 c"), shown.arguments);
  assert.deepEqual(shown.notes, [
    ["a1", 0],
    [null, 1],
  ]);
  assert.deepEqual(shown.rows, ["2026-01-01,'=1,,,,,,", '2026-01-01,"a\rb",,,,,,']);

  // Several answers that end in a hidden tab leave one mark, which goes when the reader comes back.
  const titles = await page.evaluate(async () => {
    const { markTitle } = await import("/assets/chat/view.js");
    const before = document.title;
    markTitle();
    markTitle();
    const marked = document.title;
    document.dispatchEvent(new Event("visibilitychange"));
    return { before, marked, after: document.title };
  });
  assert.deepEqual([titles.marked, titles.after], [`● ${titles.before}`, titles.before]);

  // An address without a view is the chat, also if it is the name of something that every object has.
  for (const hash of ["#/constructor", "#/toString", "#/nonsense"]) {
    await visit(page, hash);
    assert.equal(await page.locator(".shell.with-list .conversation").count(), 1, hash);
  }
});
