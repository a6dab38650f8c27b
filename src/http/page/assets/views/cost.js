// Tokens and cost: by day and model as stacked bars, by session, and beside the budget.

import { html, useMemo, useState } from "../lib.js";
import { useResource } from "../store.js";
import { address } from "../route.js";
import { Empty, Loaded, Segmented, ViewHead, saveFile } from "../ui.js";
import { Icon } from "../icons.js";
import { compact, day, number } from "../format.js";
import { t } from "../i18n.js";

const RANGES = [7, 30, 90];
const WIDTH = 720;
const HEIGHT = 220;
const COLOURS = 6;

const isoDay = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 10);
const daysAgo = (days) => isoDay(new Date(Date.now() - days * 86_400_000));

export function CostView() {
  const [range, setRange] = useState({ from: daysAgo(29), to: daysAgo(0) });
  const [unit, setUnit] = useState("tokens");
  const cost = useResource(`/api/cost?from=${range.from}&to=${range.to}`, ["turns"]);
  const set = (name) => (event) => event.target.value && setRange({ ...range, [name]: event.target.value });
  const length = Math.round((new Date(range.to) - new Date(range.from)) / 86_400_000) + 1;
  const last = (days) => setRange({ from: daysAgo(days - 1), to: daysAgo(0) });
  const save = () => saveFile(`cost-${range.from}-${range.to}.csv`, csv(cost.data.days), "text/csv");
  return html`<div class="view">
    <${ViewHead} title=${t("cost")}>
      ${cost.data && html`<button type="button" class="button" onClick=${save}><${Icon} name="download" size=${16} />CSV</button>`}
    <//>
    <div class="filters">
      <${Segmented} label=${t("cost.range")} value=${range.to === daysAgo(0) ? length : null} onChange=${last} options=${RANGES.map((days) => [days, t("cost.days", { count: days })])} />
      <label class="inline-field">${t("cost.from")}<input type="date" value=${range.from} max=${range.to} onChange=${set("from")} /></label>
      <label class="inline-field">${t("cost.to")}<input type="date" value=${range.to} min=${range.from} onChange=${set("to")} /></label>
      <${Segmented} label=${t("cost.unit")} value=${unit} onChange=${setUnit} options=${["tokens", "cost"].map((name) => [name, t(`cost.unit.${name}`)])} />
    </div>
    <${Loaded} resource=${cost}>${(data) => html`<${Report} data=${data} unit=${unit} range=${range} />`}<//>
  </div>`;
}

const tokensOf = (model) => model.input + model.output;

function Report({ data, unit, range }) {
  const models = useMemo(() => totals(data.days), [data]);
  if (models.length === 0) return html`<${Empty} icon="cost" title=${t("cost.none")}>${t("cost.none.hint")}<//>`;
  const days = everyDay(data.days, range);
  const names = [...new Set(models.map((model) => model.model))];
  const currencies = [...new Set(models.filter((model) => model.cost !== null).map((model) => model.currency ?? ""))];
  const costIn = (currency) => (model) => ((model.currency ?? "") === currency ? Number(model.cost ?? 0) : 0);
  // Amounts of different currencies have no sum: each has a chart.
  const charts = unit === "cost" ? (currencies.length > 0 ? currencies : [""]).map((name) => [name, costIn(name)]) : [[t("tokens"), tokensOf]];
  return html`
    ${data.budget && html`<${Budget} budget=${data.budget} />`}
    ${charts.map(([name, value]) => html`<${Bars} key=${name} days=${days} names=${names} value=${value} unit=${name} format=${unit === "cost" ? price : compact} />`)}
    <${Models} models=${models} />
    ${data.sessions.length > 0 && html`<${Sessions} sessions=${data.sessions} />`}`;
}

/** Sums of each model and currency, the largest first. */
function totals(days) {
  const models = new Map();
  for (const one of days.flatMap((entry) => entry.models)) {
    const key = JSON.stringify([one.model, one.currency]);
    const sum = models.get(key) ?? { model: one.model, turns: 0, input: 0, output: 0, cached: 0, cost: null, currency: one.currency };
    for (const count of ["turns", "input", "output", "cached"]) sum[count] += one[count];
    if (one.cost !== null) sum.cost = Number(sum.cost ?? 0) + Number(one.cost);
    models.set(key, sum);
  }
  return [...models.values()].sort((one, other) => tokensOf(other) - tokensOf(one));
}

/** Days without a turn have a place, too. The gateway bounds the range. */
function everyDay(days, { from, to }) {
  const known = new Map(days.map((entry) => [entry.day, entry.models]));
  const all = [];
  for (let at = new Date(`${from}T12:00:00Z`); isoDayUtc(at) <= to; at = new Date(at.getTime() + 86_400_000)) {
    all.push({ day: isoDayUtc(at), models: known.get(isoDayUtc(at)) ?? [] });
  }
  return all;
}

const isoDayUtc = (date) => date.toISOString().slice(0, 10);
const noon = (text) => new Date(`${text}T12:00:00`);

function Bars({ days, names, value, unit, format }) {
  const [at, setAt] = useState(null);
  const colour = (name) => Math.min(names.indexOf(name), COLOURS - 1);
  const sum = (entry) => entry.models.reduce((total, model) => total + value(model), 0);
  const top = Math.max(...days.map(sum), Number.MIN_VALUE);
  const step = WIDTH / days.length;
  const bars = days.map((entry, index) => {
    let base = HEIGHT;
    return entry.models.map((model) => {
      const height = (value(model) / top) * (HEIGHT - 8);
      base -= height;
      return html`<rect class=${`bar-${colour(model.model)}`} x=${index * step + step * 0.12} y=${base} width=${step * 0.76} height=${height} rx="1.5" />`;
    });
  });
  const shown = at === null ? null : days[at];
  const amount = (entries) => `${format(entries.reduce((total, entry) => total + sum(entry), 0))} ${unit}`;
  return html`<figure class="chart">
    <figcaption aria-live="polite">${shown ? `${day(noon(shown.day))}: ${amount([shown])}` : t("cost.total", { amount: amount(days) })}</figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${t("cost.chart")} onPointerLeave=${() => setAt(null)}>
      ${[0.25, 0.5, 0.75, 1].map((share) => html`<line class="grid" x1="0" x2=${WIDTH} y1=${HEIGHT - share * (HEIGHT - 8)} y2=${HEIGHT - share * (HEIGHT - 8)} />`)}
      ${bars}
      ${days.map((_, index) => html`<rect class=${`hover ${index === at ? "on" : ""}`} x=${index * step} y="0" width=${step} height=${HEIGHT} onPointerEnter=${() => setAt(index)} />`)}
    </svg>
    <div class="axis" aria-hidden="true"><span>${day(noon(days[0].day))}</span><span>${day(noon(days.at(-1).day))}</span></div>
    <ul class="legend">${names.slice(0, COLOURS).map(
      (name, index) => html`<li><svg width="10" height="10" aria-hidden="true"><rect class=${`bar-${index}`} width="10" height="10" rx="2" />
      </svg>${name}</li>`,
    )}</ul>
  </figure>`;
}

const price = (amount) => number(amount, { maximumFractionDigits: 4 });
const money = ({ cost, currency }) => (cost === null ? "—" : `${price(Number(cost))} ${currency ?? ""}`);

function Models({ models }) {
  return html`<section class="group"><h2 class="group-title">${t("cost.models")}</h2>
    <div class="table-scroll" tabindex="0" role="group" aria-label=${t("cost.models")}><table>
    <thead><tr><th>${t("cost.model")}</th><th class="number">${t("cost.turns")}</th><th class="number">${t("cost.input")}</th>
      <th class="number">${t("cost.cached")}</th><th class="number">${t("cost.output")}</th><th class="number">${t("cost")}</th>
      </tr></thead>
    <tbody>${models.map(
      (model) => html`<tr><td>${model.model}</td><td class="number">${number(model.turns)}</td>
      <td class="number">${number(model.input)}</td><td class="number">${number(model.cached)}</td>
      <td class="number">${number(model.output)}</td><td class="number">${money(model)}</td></tr>`,
    )}</tbody>
  </table></div></section>`;
}

function Sessions({ sessions }) {
  return html`<section class="group"><h2 class="group-title">${t("cost.sessions")}</h2>
    <div class="table-scroll" tabindex="0" role="group" aria-label=${t("cost.sessions")}><table>
    <thead><tr><th>${t("session")}</th><th class="number">${t("cost.turns")}</th><th class="number">${t("tokens")}</th>
      <th class="number">${t("cost")}</th></tr></thead>
    <tbody>${sessions.map(
      (one) => html`<tr><td><a href=${address("chat", one.session)}>${one.session}</a></td>
      <td class="number">${number(one.turns)}</td><td class="number">${number(one.tokens)}</td>
      <td class="number">${one.cost ?? "—"}</td></tr>`,
    )}</tbody>
  </table></div></section>`;
}

function Budget({ budget }) {
  const [used, limit] = [Number.parseFloat(budget.used), Number.parseFloat(budget.limit)];
  const shown = (value) => (typeof value === "number" ? number(value, { maximumFractionDigits: 4 }) : value);
  return html`<div class="budget"><span>${t(`cost.budget.${budget.kind}`, { used: shown(budget.used), limit: shown(budget.limit) })}</span>
    <progress max=${limit} value=${Math.min(used, limit)} aria-label=${t("cost.budget.label")}></progress></div>`;
}

/** Returns the days as comma-separated values. A cell that a spreadsheet could take for a formula is quoted with an apostrophe. */
export function csv(days) {
  const cell = (value) => {
    const text = String(value ?? "");
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const columns = ["model", "turns", "input", "cached", "output", "cost", "currency"];
  const rows = days.flatMap((entry) => entry.models.map((model) => [entry.day, ...columns.map((name) => model[name])]));
  return [["day", ...columns], ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
