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
  "#/system/log",
  "#/system/tokens",
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
    // What the gateway says in one word is Chinese, too.
    const job = await page.evaluate(async () => {
      const { post } = await import("/assets/api.js");
      const made = await post("/api/cron", { name: "浇花", message: "浇花", every: "1d" });
      await post(`/api/cron/${made.id}/run`);
      return made.id;
    });
    for (const view of ["#/jobs", `#/jobs/${job}`, "#/system/channels", "#/system/agents"]) {
      await visit(page, view);
      await page.locator(".status").first().waitFor();
      const states = await page.locator(".status").allInnerTexts();
      assert.deepEqual(
        states.filter((text) => !/[\u4e00-\u9fff]/.test(text) || /[a-z]/.test(text)),
        [],
        view,
      );
    }
    const spans = await page.evaluate(async () => {
      const { span } = await import("/assets/format.js");
      return [340, 999.7, 4_200, 59_700, 125_400, 3_599_800].map(span);
    });
    assert.deepEqual(spans, ["340毫秒", "1秒", "4.2秒", "1分钟 0秒", "2分钟 5秒", "1小时 0分钟"]);
    await page.getByText("聊天").first().waitFor();
    await page.getByRole("button", { name: "设置" }).click();
    await page.getByRole("menuitem", { name: "English" }).click();
    await page.getByText("Chat", { exact: true }).first().waitFor();
    await page.reload();
    await page.getByText("Chat", { exact: true }).first().waitFor();
  },
  { context: { locale: "zh-CN" } },
);
