// The page in Chinese, by the browser's language and by choice. No view shows a key instead of a text.

import { assert, login, story, visit } from "./support.mjs";

const VIEWS = [
  "#/chat",
  "#/jobs",
  "#/jobs/new",
  "#/memory",
  "#/queue",
  "#/cost",
  "#/system",
  "#/system/channels",
  "#/system/models",
  "#/system/mcp",
  "#/system/skills",
  "#/system/agents",
  "#/system/doctor",
  "#/system/configuration",
];

await story(
  async ({ page }) => {
    await login(page);
    assert.equal(await page.evaluate(() => document.documentElement.lang), "zh-CN");
    const tables = await page.evaluate(async () => {
      const [en, zh] = await Promise.all([import("/assets/lang/en.js"), import("/assets/lang/zh.js")]);
      return [en, zh].map((table) => Object.keys(table.default).sort());
    });
    assert.deepEqual(tables[0], tables[1], "both tables have the same keys");
    const keys = new Set(tables[0].filter((key) => key.includes(".")));
    for (const view of VIEWS) {
      await visit(page, view);
      const texts = await page.evaluate(() =>
        [...document.querySelectorAll("#app *:not(.findings *, .mono *)")]
          .flatMap((element) => [element.getAttribute("aria-label"), element.childElementCount === 0 ? element.textContent : null])
          .filter(Boolean),
      );
      assert.deepEqual(
        texts.filter((text) => keys.has(text) || /^(system|jobs|memory|queue|cost|config|turn|step)\.\w+/.test(text)),
        [],
        view,
      );
    }
    await page.getByText("聊天").first().waitFor();
    await page.getByRole("button", { name: "设置" }).click();
    await page.getByRole("menuitem", { name: "English" }).click();
    await page.getByText("Chat", { exact: true }).first().waitFor();
    await page.reload();
    await page.getByText("Chat", { exact: true }).first().waitFor();
  },
  { context: { locale: "zh-CN" } },
);
