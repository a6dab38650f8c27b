// axe-core finds nothing serious: in all views, in both themes, wide and narrow.

import { readFileSync } from "node:fs";
import { assert, login, require, say, story, token, url, visit, waitIdle } from "./support.mjs";

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
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

async function check(page, where) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = found.violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const shown = serious.map(
    ({ id, nodes }) =>
      `${id}: ${nodes
        .slice(0, 3)
        .map((node) => `${node.html.slice(0, 160)} ${node.failureSummary.slice(0, 200)}`)
        .join(" | ")}`,
  );
  assert.deepEqual(shown, [], where);
}

await story(async ({ page, open }) => {
  await page.goto(url);
  await page.getByLabel("Access token").waitFor();
  await check(page, "login");
  await login(page);
  await page.request.post(`${url}/api/cron`, {
    headers: { Authorization: `Bearer ${token}` },
    data: { name: "tea", message: "The tea is ready", at: "in 20h" },
  });
  await page.request.post(`${url}/api/memory`, { headers: { Authorization: `Bearer ${token}` }, data: { text: "The cat is called Miso" } });
  await say(page, "look around");
  await page.locator(".tool").nth(1).waitFor();
  await waitIdle(page);
  await say(page, "run a command");
  await page.locator(".card.approval").waitFor();
  const chat = await page.evaluate(() => location.hash);
  const turn = (await page.locator(".turn-facts").first().getAttribute("href")).replace(/^.*#/, "#");
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const context = await open({ colorScheme, viewport: { width, height: 800 }, reducedMotion: "reduce" });
      const other = await context.newPage();
      await login(other);
      for (const view of [chat, turn, ...VIEWS]) {
        await visit(other, view);
        if (view === chat) await other.locator(".card.approval").waitFor();
        await check(other, `${view} ${colorScheme} ${width}`);
      }
      await other.keyboard.press("Control+k");
      await other.getByRole("dialog").waitFor();
      await check(other, `palette ${colorScheme} ${width}`);
      await context.close();
    }
  }
  await page.locator(".card.approval .deny").click();
  await waitIdle(page);
});
