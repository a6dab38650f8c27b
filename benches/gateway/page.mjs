// Opens the page of a logged-in browser several times, each time without a cache, and prints what it took as one line of JSON: `bytes` on
// the wire, `paint` and `interactive` in milliseconds after the navigation began. Interactive is when the composer takes a letter.

import { login, story } from "../../tests/page/support.mjs";

const LOADS = 7;

/** The median, the minimum and the maximum. */
function spread(figures) {
  const sorted = figures.toSorted((a, b) => a - b);
  return [sorted[sorted.length >> 1], sorted[0], sorted.at(-1)].map(Math.round);
}

await story(async ({ page, context }) => {
  await login(page);
  const measured = { bytes: [], paint: [], interactive: [] };
  for (let load = 0; load < LOADS; load++) {
    const tab = await context.newPage();
    const network = await context.newCDPSession(tab);
    await network.send("Network.enable");
    await network.send("Network.setCacheDisabled", { cacheDisabled: true });
    let bytes = 0;
    network.on("Network.loadingFinished", (event) => (bytes += event.encodedDataLength));
    await tab.addInitScript(() => {
      const look = () => {
        const composer = document.querySelector("#composer");
        if (!composer || composer.disabled) return requestAnimationFrame(look);
        composer.focus();
        document.execCommand("insertText", false, "x");
        if (composer.value.endsWith("x")) window.interactiveAfter = performance.now();
        else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    });
    await tab.goto(page.url());
    await tab.waitForFunction(() => window.interactiveAfter && performance.getEntriesByName("first-contentful-paint")[0]);
    const [paint, interactive] = await tab.evaluate(() => [
      performance.getEntriesByName("first-contentful-paint")[0].startTime,
      window.interactiveAfter,
    ]);
    await tab.waitForLoadState("load");
    measured.paint.push(paint);
    measured.interactive.push(interactive);
    measured.bytes.push(bytes);
    await tab.close();
  }
  console.log(JSON.stringify(Object.fromEntries(Object.entries(measured).map(([name, figures]) => [name, spread(figures)]))));
});
