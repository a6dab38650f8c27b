// What the stories of the page share. A story is a script: it takes the address of a running gateway in DAOYOU_PAGE_URL and its token in
// DAOYOU_PAGE_TOKEN, drives a real browser, and exits with 0, or with 1 and a message. Packages are looked for in NODE_PATH.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(import.meta.url);
const { chromium } = require("playwright-core");

export { assert, require };
export const url = process.env.DAOYOU_PAGE_URL ?? fail("DAOYOU_PAGE_URL is not set");
export const token = process.env.DAOYOU_PAGE_TOKEN ?? fail("DAOYOU_PAGE_TOKEN is not set");

/** How long a state may take to come, in milliseconds. */
const PATIENCE = 40_000;

function fail(message) {
  console.error(message);
  process.exit(1);
}

function browserPath() {
  const known = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  return known.find((path) => path && existsSync(path)) ?? fail("there is no chromium");
}

/** A failed request that the browser reports in its console: the first question whether somebody is logged in, and what a story expects. */
const isExpected = (message, expected) => [/\/api\/me$/, ...expected].some((pattern) => pattern.test(message.location().url));

/**
 * Runs a story in a browser of its own. Errors in the console, exceptions, and requests to other hosts fail it.
 * @param {(tools: {page: any, context: any, open: (options?: object) => Promise<any>}) => Promise<void>} run
 * @param {{context?: object, expectedFailures?: RegExp[]}} options
 */
export async function story(run, { context: settings = {}, expectedFailures = [] } = {}) {
  const browser = await chromium.launch({ executablePath: browserPath(), args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  const faults = [];
  const watch = (page) => {
    page.setDefaultTimeout(PATIENCE);
    page.on("pageerror", (error) => faults.push(`exception: ${error.stack}`));
    page.on("console", (message) => {
      if (message.type() === "error" && !isExpected(message, expectedFailures))
        faults.push(`console: ${message.text()} ${message.location().url}`);
    });
    page.on("request", (request) => {
      if (!request.url().startsWith(url) && !/^(blob|data):/.test(request.url())) faults.push(`request to another host: ${request.url()}`);
    });
    return page;
  };
  const open = async (more = {}) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-US", ...settings, ...more });
    context.on("page", watch);
    return context;
  };
  let page;
  try {
    const context = await open();
    page = await context.newPage();
    await run({ page, context, open });
    assert.deepEqual(faults, []);
  } catch (error) {
    if (page && process.env.DAOYOU_PAGE_SHOT) await page.screenshot({ path: process.env.DAOYOU_PAGE_SHOT }).catch(() => {});
    const seen = await page?.innerText("body", { timeout: 1_000 }).catch((reason) => reason.message);
    console.error(`${process.argv[1]}: ${error.stack}\n${faults.join("\n")}\nthe page shows:\n${seen}`);
    process.exitCode = 1;
  }
  await browser.close();
  process.exit();
}

export async function login(page) {
  await page.goto(url);
  await page.getByLabel(/access token|访问令牌/i).fill(token);
  await page.keyboard.press("Enter");
  await page.locator(".shell").waitFor();
}

/** Sends a message. */
export async function say(page, text) {
  await page.locator("#composer").fill(text);
  await page.locator(".send").click();
}

/** Returns when the conversation contains a text. */
export async function waitText(page, text) {
  await page.locator(".turns").getByText(text).last().waitFor();
}

/** Returns when no turn runs any more. */
export async function waitIdle(page) {
  await page.waitForFunction(
    () => document.querySelector(".turn") && !document.querySelector(".turn[aria-busy=true]") && !document.querySelector(".composer .stop"),
  );
}

/** Goes to a view, and returns when it shows something. */
export async function visit(page, hash) {
  // The page hears of the new address later, and shows the old view until then.
  await page.evaluate(
    (to) =>
      new Promise((done) => {
        const before = location.hash;
        addEventListener("hashchange", () => done(), { once: true });
        location.hash = to;
        if (location.hash === before) done();
      }),
    hash,
  );
  await page.locator("main .view, main .conversation").first().waitFor();
  await page.waitForFunction(() => !document.querySelector("main .placeholder"));
}

/** Waits until a function of the page returns something true. */
export async function until(page, what, ready, argument) {
  await page.waitForFunction(ready, argument, { polling: 50 }).catch(() => assert.fail(`this did not come: ${what}`));
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Waits until an element that a selector finds has the focus: the page moves it after it has drawn the element. */
export const waitFocus = (page, selector) => until(page, `the focus in ${selector}`, (to) => document.activeElement?.matches(to), selector);

/** Asks whoever runs the story for something that only they can do, and waits until it is done. */
export async function ask(order) {
  console.log(order);
  const { value } = await lines.next();
  assert.equal(value, "done", order);
}

/** Elements that stick out to the right of the window, outside of boxes that scroll by themselves. */
export async function overflowing(page) {
  return page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const scrolls = "pre, .table-scroll, .tabs, .visually-hidden, .skip, .sessions:not(.open)";
    const wide = [...document.querySelectorAll("body *")].filter(
      (element) => element.getBoundingClientRect().right > width + 1 && !element.closest(scrolls),
    );
    return wide.map((element) => `${element.tagName}.${element.className}`).slice(0, 5);
  });
}
