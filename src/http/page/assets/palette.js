// The palette (Ctrl+K), which finds views, sessions and actions by their words, and the list of keyboard shortcuts.

import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { may, useResource } from "./store.js";
import { VIEWS, VIEW_KEYS, navigate } from "./route.js";
import { Dialog } from "./ui.js";
import { Icon, channelIcon } from "./icons.js";
import { setLanguage, t } from "./i18n.js";
import { logout, nextTheme, otherLanguage, setTheme } from "./settings.js";
import { channelOf, titleOf } from "./chat/sessions.js";

const MAX_SHOWN = 12;

export function Palette({ onClose, onShortcuts }) {
  const sessions = useResource("/api/sessions", ["sessions"]);
  const jobs = useResource(may("see") ? "/api/cron" : null, ["cron"]);
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef(null);
  const entries = useMemo(
    () => [...actions(onShortcuts), ...sessionEntries(sessions.data), ...jobEntries(jobs.data)],
    [sessions.data, jobs.data],
  );
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries.filter((entry) => words.every((word) => entry.words.toLowerCase().includes(word))).slice(0, MAX_SHOWN);
  const chosen = Math.min(at, found.length - 1);
  useEffect(() => setAt(0), [query]);
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [chosen]);
  const run = (entry) => {
    onClose();
    entry.run();
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((chosen + step + found.length) % Math.max(found.length, 1));
    else if (event.key === "Enter" && found[chosen]) run(found[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title=${t("palette")} class="palette" onClose=${onClose}>
    <input type="text" autofocus role="combobox" aria-label=${t("palette.find")} aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${found.length > 0 ? `palette-${chosen}` : undefined}
      placeholder=${t("palette.find")} value=${query} onInput=${(event) => setQuery(event.target.value)} onKeyDown=${onKeyDown} />
    <ul id="palette-list" role="listbox" aria-label=${t("palette")} ref=${list}>
      ${found.map(
        (entry, index) => html`<li id=${`palette-${index}`} role="option" aria-selected=${index === chosen} onClick=${() => run(entry)}>
        <${Icon} name=${entry.icon} size=${16} /><span>${entry.label}</span><small>${entry.kind}</small>
      </li>`,
      )}
    </ul>
    ${found.length === 0 && html`<p class="dim">${t("palette.nothing")}</p>`}
  <//>`;
}

function actions(onShortcuts) {
  const other = otherLanguage();
  const entry = (label, icon, run) => ({ label, icon, run, kind: t("palette.action"), words: label });
  return [
    entry(t("chat.new"), "plus", () => navigate("chat")),
    ...(may("see") ? VIEWS : ["chat"]).map((view) => ({ ...entry(t(view), view, () => navigate(view)), kind: t("palette.view") })),
    entry(t("palette.theme"), "sun", () => setTheme(nextTheme())),
    entry(other.name, "globe", () => setLanguage(other.code)),
    entry(t("shortcuts"), "keyboard", onShortcuts),
    entry(t("logout"), "right", logout),
  ];
}

const sessionEntries = (sessions = []) =>
  sessions.map((session) => ({
    label: titleOf(session),
    icon: channelIcon(channelOf(session)),
    kind: session.session,
    words: `${titleOf(session)} ${session.session}`,
    run: () => navigate("chat", session.session),
  }));

const jobEntries = (jobs = []) =>
  jobs.map((job) => ({
    label: job.name,
    icon: "jobs",
    kind: t("jobs"),
    words: `${job.name} ${job.text ?? ""}`,
    run: () => navigate("jobs", job.id),
  }));

const KEYS = [
  ["Enter", "keys.send"],
  ["Shift Enter", "keys.break"],
  ["Esc", "keys.stop"],
  ["/", "keys.search"],
  ["n", "keys.new"],
  ["Ctrl K", "keys.palette"],
  ...Object.entries(VIEW_KEYS).map(([key, view]) => [`g ${key}`, view]),
  ["?", "keys.help"],
];

export function ShortcutsDialog({ onClose }) {
  return html`<${Dialog} title=${t("shortcuts")} onClose=${onClose}>
    <dl class="shortcuts">${KEYS.map(
      ([keys, label]) => html`<div><dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}</dt>
      <dd>${t(label)}</dd></div>`,
    )}</dl>
  <//>`;
}
