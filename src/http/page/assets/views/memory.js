// What the agent knows, by person and kind: search, change, forget.

import * as api from "../api.js";
import { groupBy, html, useMemo, useSettled, useState } from "../lib.js";
import { may, refresh, useResource } from "../store.js";
import { address } from "../route.js";
import { ActionButton, ConfirmDialog, Dialog, Empty, Loaded, SearchField, ViewHead } from "../ui.js";
import { Icon } from "../icons.js";
import { dateTime, percent, relative } from "../format.js";
import { t } from "../i18n.js";

/** The memory is searched after this silence, in milliseconds. */
const SEARCH_DELAY = 250;
const KINDS = ["fact", "preference", "case", "task", "summary"];
const PAGE = 200;

export function MemoryView() {
  const [query, setQuery] = useState("");
  const settledQuery = useSettled(query.trim(), SEARCH_DELAY, "");
  const [kind, setKind] = useState("");
  const [dialog, setDialog] = useState(null);
  const known = useResource("/api/memory", ["memory"]);
  const hits = useResource(settledQuery === "" ? null : `/api/memory/search?q=${api.segment(settledQuery)}&limit=50`, ["memory"]);
  const close = () => setDialog(null);
  return html`<div class="view">
    <${ViewHead} title=${t("memory")}>${may("change") && html`<button type="button" class="button primary" onClick=${() => setDialog({ kind: "add" })}><${Icon} name="plus" size=${16} />${t("memory.add")}</button>`}<//>
    <div class="filters">
      <${SearchField} class="grow" label=${t("memory.search")} value=${query} onValue=${setQuery} />
      <label class="inline-field"><span class="visually-hidden">${t("memory.kind")}</span>
        <select value=${kind} onChange=${(event) => setKind(event.target.value)}>
        <option value="">${t("memory.all")}</option>${KINDS.map((name) => html`<option value=${name}>${t(`memory.kind.${name}`)}</option>`)}</select>
          </label>
    </div>
    <${Loaded} resource=${known}>${(list) => html`<${Facts} list=${list} hits=${settledQuery === "" ? null : hits.data} kind=${kind} onDialog=${setDialog} />`}<//>
    ${dialog?.kind === "add" && html`<${FactDialog} onClose=${close} />`}
    ${dialog?.kind === "edit" && html`<${FactDialog} fact=${dialog.fact} onClose=${close} />`}
    ${dialog?.kind === "forget" && html`<${ForgetDialog} fact=${dialog.fact} onClose=${close} />`}
  </div>`;
}

function Facts({ list, hits, kind, onDialog }) {
  const [count, setCount] = useState(PAGE);
  const shown = useMemo(() => {
    const byId = new Map(list.map((fact) => [fact.id, fact]));
    const found = hits ? hits.map((hit) => byId.get(hit.id)).filter(Boolean) : list;
    return found.filter((fact) => !fact.replaced_by && (kind === "" || fact.kind === kind));
  }, [list, hits, kind]);
  if (list.length === 0) return html`<${Empty} icon="memory" title=${t("memory.none")}>${t("memory.none.hint")}<//>`;
  if (shown.length === 0) return html`<p class="dim">${t("memory.nothing")}</p>`;
  const groups = groupBy(shown.slice(0, count), (fact) => (hits ? t("memory.found") : `${fact.owner} · ${t(`memory.kind.${fact.kind}`)}`));
  return html`${groups.map(
    ([name, facts]) => html`<section class="group" key=${name}><h2 class="group-title">${name}</h2>
      <ul class="rows">${facts.map((fact) => html`<${FactRow} key=${fact.id} fact=${fact} onDialog=${onDialog} />`)}</ul></section>`,
  )}
    ${shown.length > count && html`<button type="button" class="button wide" onClick=${() => setCount(count + PAGE)}>${t("more")}</button>`}`;
}

function FactRow({ fact, onDialog }) {
  const { source, confidence, used_at: used, created_at: created } = fact;
  return html`<li class="row">
    <div class="row-main">
      <p class="fact-text">${fact.name && html`<strong>${fact.name}: </strong>`}${fact.text}</p>
      <p class="row-facts">
        <span title=${dateTime(created)}>${t(`memory.origin.${fact.origin}`, { when: relative(created) })}</span>
        <span>${t("memory.confidence", { share: percent(confidence) })}</span>
        <span>${used ? t("memory.used", { when: relative(used) }) : t("memory.unused")}</span>
        ${source?.session && html`<a href=${address("chat", source.session)}>${t("memory.source")}</a>`}
      </p>
    </div>
    ${
      may("change") &&
      html`<div class="row-actions">
      <button type="button" class="button quiet" onClick=${() => onDialog({ kind: "edit", fact })}><${Icon} name="edit" size=${16} />${t("edit")}</button>
      <button type="button" class="button quiet danger-text" onClick=${() => onDialog({ kind: "forget", fact })}><${Icon} name="trash" size=${16} />${t("memory.forget")}</button>
    </div>`
    }
  </li>`;
}

function FactDialog({ fact, onClose }) {
  const [content, setContent] = useState(fact?.text ?? "");
  const save = async () => {
    if (fact) await api.patch(`/api/memory/${fact.id}`, { content: content.trim() });
    else await api.post("/api/memory", { text: content.trim() });
    refresh(["memory"]);
    onClose();
  };
  return html`<${Dialog} title=${t(fact ? "memory.edit" : "memory.add")} onClose=${onClose}>
    <label class="field">${t("memory.text")}<textarea rows="4" autofocus value=${content} onInput=${(event) => setContent(event.target.value)}></textarea>
      </label>
    <footer><button type="button" class="button" onClick=${onClose}>${t("cancel")}</button>
      <${ActionButton} class="primary" onAct=${save}>${t("save")}<//></footer>
  <//>`;
}

/** Forgetting is for good; says what else goes. */
function ForgetDialog({ fact, onClose }) {
  const details = useResource(`/api/memory/${fact.id}`);
  const forget = async () => {
    await api.post("/api/memory/forget", { ids: [fact.id] });
    refresh(["memory"]);
  };
  const earlier = details.data?.before ?? [];
  return html`<${ConfirmDialog} title=${t("memory.forget.title")} action=${t("memory.forget")} onConfirm=${forget} onClose=${onClose}>
    <blockquote>${fact.text}</blockquote>
    <p>${t("memory.forget.hint")}</p>
    ${earlier.length > 0 && html`<p>${t("memory.forget.earlier", { count: earlier.length })}</p>`}
  <//>`;
}
