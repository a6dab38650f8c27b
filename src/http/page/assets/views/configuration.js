// The configuration in force, to read: each key with its value and where it comes from. Secrets never reach the page.

import { groupBy, html, useState } from "../lib.js";
import { useResource } from "../store.js";
import { Loaded, SearchField, Status } from "../ui.js";
import { t } from "../i18n.js";

const TONES = { default: "", file: "ok", environment: "warn", option: "warn" };

export function Configuration() {
  const values = useResource("/api/config", ["config"]);
  const [query, setQuery] = useState("");
  const [isSetOnly, setIsSetOnly] = useState(false);
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = ({ section, key, help = "", source }) =>
    (!isSetOnly || source !== "default") && words.every((word) => `${section}.${key} ${help}`.toLowerCase().includes(word));
  return html`<div class="filters">
      <${SearchField} class="grow" label=${t("config.search")} value=${query} onValue=${setQuery} />
      <label class="check"><input type="checkbox" checked=${isSetOnly} onChange=${(event) => setIsSetOnly(event.target.checked)} />${t("config.setOnly")}</label>
    </div>
    <p class="dim">${t("config.hint")}</p>
    <${Loaded} resource=${values}>${(list) => html`<${Sections} values=${list.filter(matches)} />`}<//>`;
}

function Sections({ values }) {
  return groupBy(values, (value) => value.section).map(
    ([section, entries]) => html`<section class="group" key=${section}><h2 class="group-title mono">[${section}]</h2>
    <ul class="rows">${entries.map(
      ({ key, value, source, from, help }) => html`<li class="row config-row">
      <div class="row-main"><p class="mono"><strong>${key}</strong> = ${shown(value)}</p>${help && html`<p class="row-facts">${help}</p>`}</div>
      <${Status} tone=${TONES[source] ?? ""}>${source === "default" ? t("config.default") : (from ?? t(`config.${source}`))}<//>
    </li>`,
    )}</ul></section>`,
  );
}

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
