// Text of a model is text: no script, no address but http, https and mailto, no picture from elsewhere, and bounded work.

import { assert, login, say, story, waitIdle } from "./support.mjs";

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
    return Object.entries(texts).map(([name, text]) => {
      const begun = performance.now();
      tokenize(text);
      return [name, performance.now() - begun];
    });
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
});
