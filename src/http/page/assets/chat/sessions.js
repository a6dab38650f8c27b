// The list of sessions, and what can be done with one.

import * as api from "../api.js";
import { groupBy, html, useEffect, useLayoutEffect, useMemo, useRef, useSettled, useState } from "../lib.js";
import { app, createLoginStore, createPersistentStore, may, refresh, useResource, useStore } from "../store.js";
import { address, navigate } from "../route.js";
import { ActionButton, ConfirmDialog, Dialog, Empty, IconButton, Loaded, Menu, SearchField, moveFocus, saveFile } from "../ui.js";
import { Icon, channelIcon } from "../icons.js";
import { dayName, shortTime } from "../format.js";
import { t } from "../i18n.js";

/** How many sessions are shown before "show more". */
const PAGE = 100;
/** Messages that match are asked for after this silence, in milliseconds. */
const SEARCH_DELAY = 250;

/** When this login last showed each session: sessions that changed since then are unread. */
const seen = createLoginStore("daoyou.seen", {});

export function markSeen(key, at) {
  if (!at || seen.get()[key] >= at) return;
  // Only the newest are kept: the list has a bound, too.
  const entries = Object.entries({ ...seen.get(), [key]: at }).sort(([, one], [, other]) => (one < other ? 1 : -1));
  seen.set(() => Object.fromEntries(entries.slice(0, 500)));
}

/** When this login first listed the sessions: its first visit does not show every old session as unread. */
const since = createLoginStore("daoyou.since", null);

const isUnread = (session, marks) => session.updated_at > (marks[session.session] ?? since.get());

export const useSessions = () => useResource("/api/sessions", ["sessions"]);

/** Chats that the gateway itself begins. */
const OWN_CHATS = { "page:notices": "sessions.notices", "page:jobs": "sessions.jobs" };

/** Returns what a session is called: its title, what was said last, or its key. */
export function titleOf(session) {
  const title = jobTitle(session.title) ?? session.title;
  const isNamed = title && title === session.title;
  if (!isNamed && session.session in OWN_CHATS) return t(OWN_CHATS[session.session]);
  return title || plain(session.preview ?? "") || session.session;
}

export const channelOf = (session) => session.channel ?? session.session.split(":")[0];

/** The name of the job whose message began a chat. */
const jobTitle = (title) => /^\[The scheduled job "([^"]+)"/.exec(title ?? "")?.[1];

/** A line of Markdown without its marks. */
const plain = (text) =>
  text
    .replace(/[*_`#>|~]+|\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/\s+/g, " ")
    .trim();

/** Whether the list is hidden on wide windows. On narrow ones it is a drawer. */
export const listState = createPersistentStore("daoyou.list", { isHidden: false });
const isNarrow = () => matchMedia("(max-width: 767px)").matches;

/** Opens the drawer, or hides or shows the list. */
export function ListButton() {
  const { isHidden } = useStore(listState);
  const isOpen = useStore(app, (state) => state.sidebar);
  const toggle = () => (isNarrow() ? app.set({ sidebar: true }) : listState.set({ isHidden: !isHidden }));
  return html`<${IconButton} icon="menu" label=${t("sessions")} aria-expanded=${isNarrow() ? isOpen : !isHidden} onClick=${toggle} />`;
}

export function SessionList({ current }) {
  const sessions = useSessions();
  const isOpen = useStore(app, (state) => state.sidebar);
  const close = () => app.set({ sidebar: false });
  const panel = useRef(null);
  useEffect(close, [current]);
  useLayoutEffect(() => (isOpen ? openDrawer(panel.current, close) : undefined), [isOpen]);
  const onKeyDown = (event) => moveFocus(event, [...panel.current.querySelectorAll("input, a.session")]);
  return html`
    ${isOpen && html`<div class="scrim" onClick=${close}></div>`}
    <aside class=${`sessions ${isOpen ? "open" : ""}`} aria-label=${t("sessions")} tabindex="-1" ref=${panel} onKeyDown=${onKeyDown} onClick=${(event) => event.target.closest("a") && close()}>
      <${Loaded} resource=${sessions}>${(list) => html`<${Entries} list=${list} current=${current} />`}<//>
    </aside>`;
}

/**
 * Moves the focus into the drawer and keeps it there: everything else is inert, and Esc closes.
 * @returns {() => void} gives back what was before
 */
function openDrawer(panel, onClose) {
  const before = document.activeElement;
  const others = document.querySelectorAll(".skip, .connection-bar, .rail, .conversation");
  const wide = matchMedia("(min-width: 768px)");
  const onKeyDown = (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    event.stopPropagation();
    onClose();
  };
  for (const element of others) element.inert = true;
  // Not the search: a phone would open its keyboard.
  (panel.querySelector("a[aria-current]") ?? panel.querySelector("a") ?? panel).focus();
  document.addEventListener("keydown", onKeyDown, { capture: true });
  wide.addEventListener("change", onClose);
  return () => {
    document.removeEventListener("keydown", onKeyDown, { capture: true });
    wide.removeEventListener("change", onClose);
    for (const element of others) element.inert = false;
    before?.focus();
  };
}

function Entries({ list, current }) {
  const [query, setQuery] = useState("");
  const [count, setCount] = useState(PAGE);
  const marks = useStore(seen);
  if (since.get() === null) since.set(() => new Date().toISOString());
  const wanted = query.trim().toLowerCase();
  const found = useMemo(() => {
    const texts = (session) => `${session.title ?? ""} ${session.preview ?? ""} ${session.session}`.toLowerCase();
    return wanted === "" ? list : list.filter((session) => texts(session).includes(wanted));
  }, [list, wanted]);
  const days = groupBy(found.slice(0, count), (session) => dayName(session.updated_at));
  return html`
    <div class="sessions-head">
      <${SearchField} label=${t("sessions.search")} value=${query} onValue=${setQuery} />
      <a class="icon-button" href=${address("chat")} aria-label=${t("chat.new")} title=${t("chat.new")}><${Icon} name="plus" /></a>
    </div>
    ${may("see") && html`<${WaitingApprovals} current=${current} />`}
    <nav class="session-scroll" aria-label=${t("sessions")}>
      ${list.length === 0 && html`<${Empty} icon="chat" title=${t("sessions.none")}>${t("sessions.none.hint")}<//>`}
      ${days.map(
        ([day, sessions]) => html`<section key=${day}>
        <h2 class="group-title">${day}</h2>
        ${sessions.map((session) => html`<${Entry} key=${session.session} session=${session} isCurrent=${session.session === current} isUnread=${session.session !== current && isUnread(session, marks)} />`)}
      </section>`,
      )}
      ${found.length > count && html`<button type="button" class="button wide" onClick=${() => setCount(count + PAGE)}>${t("more")}</button>`}
      ${wanted !== "" && may("see") && html`<${MessageHits} query=${query.trim()} />`}
    </nav>`;
}

function Entry({ session, isCurrent, isUnread }) {
  const title = titleOf(session);
  return html`<a class="session" href=${address("chat", session.session)} aria-current=${isCurrent ? "page" : undefined}>
    <${Icon} name=${channelIcon(channelOf(session))} size=${16} />
    <span class="session-title" title=${title}>${title}</span>
    ${
      session.running
        ? html`<span class="spinner" role="img" aria-label=${t("state.running")}></span>`
        : isUnread
          ? html`<span class="unread" role="img" aria-label=${t("sessions.unread")}></span>`
          : html`<time datetime=${session.updated_at}>${shortTime(session.updated_at)}</time>`
    }
  </a>`;
}

/** Messages in which the words are found, also of older sessions. */
function MessageHits({ query }) {
  const settledQuery = useSettled(query, SEARCH_DELAY, null);
  const hits = useResource(settledQuery && `/api/search?q=${api.segment(settledQuery)}&limit=20`);
  if (!hits.data?.length) return null;
  return html`<section>
    <h2 class="group-title">${t("sessions.messages")}</h2>
    ${hits.data.map(
      (hit) => html`<a class="session hit" href=${address("chat", hit.session)}><${Icon} name=${channelIcon(hit.session)} size=${16} />
      <span class="hit-text">${hit.text}</span></a>`,
    )}
  </section>`;
}

/** Says that other sessions wait for an approval. */
function WaitingApprovals({ current }) {
  const approvals = useResource("/api/approvals", ["approvals"]);
  const others = (approvals.data ?? []).filter((approval) => approval.session !== current);
  if (others.length === 0) return null;
  return html`<a class="waiting-note" href=${address("queue")}><${Icon} name="hand" size=${16} />${t("approvals.waiting", { count: others.length })}</a>`;
}

/** The menu of a session: rename, export, delete. */
export function SessionMenu({ session }) {
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const exportAs = (format) => async () => saveSession(session.session, format);
  const items = [
    may("chat") && { label: t("rename"), icon: "edit", onSelect: () => setDialog("rename") },
    { label: t("sessions.export.md"), icon: "download", onSelect: exportAs("md") },
    { label: t("sessions.export.json"), icon: "download", onSelect: exportAs("json") },
    may("chat") && { label: t("delete"), icon: "trash", isDanger: true, onSelect: () => setDialog("delete") },
  ];
  const clear = async () => {
    await api.remove(`/api/sessions/${api.segment(session.session)}`);
    refresh(["sessions"]);
    navigate("chat");
  };
  return html`<${Menu} label=${t("sessions.menu")} items=${items} />
    ${dialog === "rename" && html`<${RenameDialog} session=${session} onClose=${close} />`}
    ${
      dialog === "delete" &&
      html`<${ConfirmDialog} title=${t("sessions.delete")} action=${t("delete")} onConfirm=${clear} onClose=${close}>
      <p>${t("sessions.delete.hint", { title: titleOf(session) })}</p>
    <//>`
    }`;
}

function RenameDialog({ session, onClose }) {
  const [title, setTitle] = useState(session.title ?? "");
  const rename = async () => {
    await api.patch(`/api/sessions/${api.segment(session.session)}`, { title: title.trim() });
    refresh(["sessions"]);
    onClose();
  };
  const form = useRef(null);
  const submit = (event) => {
    event.preventDefault();
    form.current.querySelector(".primary").click();
  };
  return html`<${Dialog} title=${t("rename")} onClose=${onClose}>
    <form ref=${form} onSubmit=${submit}>
      <label class="field">${t("sessions.title")}<input type="text" maxlength="120" autofocus value=${title} placeholder=${session.preview ?? session.session} onInput=${(event) => setTitle(event.target.value)} />
        </label>
      <footer>
        <button type="button" class="button" onClick=${onClose}>${t("cancel")}</button>
        <${ActionButton} class="primary" onAct=${rename}>${t("save")}<//>
      </footer>
    </form>
  <//>`;
}

async function saveSession(key, format) {
  const name = key.replace(/[^\w.-]+/g, "-");
  const path = `/api/sessions/${api.segment(key)}`;
  if (format === "json") {
    saveFile(`${name}.json`, JSON.stringify(await api.get(path), null, 2), "application/json");
    return;
  }
  saveFile(`${name}.md`, transcriptText(await api.get(`${path}/transcript`)), "text/markdown");
}

/** A transcript as Markdown; its last lines are for `daoyou sessions import`. */
function transcriptText({ session, messages, import: lines }) {
  const parts = messages.map(({ at, role, text, calls = [] }) => {
    const tools = calls.map(
      (call) => `\n\n> \`${call.name}\` ${typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments)}`,
    );
    return `## ${role} · ${at}\n\n${text}${tools.join("")}`;
  });
  return [`# ${session}`, ...parts, lines].filter(Boolean).join("\n\n") + "\n";
}
