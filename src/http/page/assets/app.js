// The shell of the page: login, navigation, and the view that the address names.

import * as api from "./api.js";
import { html, render, useEffect, useState } from "./lib.js";
import { app, forgetLogin, may, refresh, useResource, useStore } from "./store.js";
import { VIEWS, VIEW_KEYS, address, navigate, useRoute } from "./route.js";
import { follow } from "./live.js";
import { Icon } from "./icons.js";
import { Palette, ShortcutsDialog } from "./palette.js";
import { SettingsMenu } from "./settings.js";
import { t, useLanguage } from "./i18n.js";
import { ChatView } from "./chat/view.js";
import { listState } from "./chat/sessions.js";
import { Login } from "./views/login.js";
import { JobsView } from "./views/jobs.js";
import { MemoryView } from "./views/memory.js";
import { QueueView } from "./views/queue.js";
import { CostView } from "./views/cost.js";
import { SystemView } from "./views/system.js";
import { TurnView } from "./views/turn.js";

const COMPONENTS = {
  chat: ChatView,
  jobs: JobsView,
  memory: MemoryView,
  queue: QueueView,
  cost: CostView,
  system: SystemView,
  turn: TurnView,
};

function App() {
  const me = useStore(app, (state) => state.me);
  const language = useLanguage();
  useEffect(() => {
    api.onUnauthorized(forgetLogin);
    loadLogin();
  }, []);
  if (me === undefined) return html`<${ConnectionBar} />`;
  if (me === null) return html`<${Login} key=${language} onLogin=${loadLogin} />`;
  return html`<${Shell} key=${language} />`;
}

/** Asks who is logged in. Without a connection the page waits, and tries again. */
async function loadLogin() {
  try {
    app.set({ me: await api.get("/api/me") });
  } catch (error) {
    if (error.status === 401) return;
    app.set({ connection: "lost" });
    setTimeout(loadLogin, 2_000);
  }
}

function Shell() {
  const route = useRoute();
  const [overlay, setOverlay] = useState(null);
  const isHidden = useStore(listState, (state) => state.isHidden);
  useEffect(follow, []);
  useEffect(() => listenForShortcuts(setOverlay), []);
  useEffect(() => {
    app.set({ sidebar: false });
    if (route.view !== "chat") document.title = `${t(VIEWS.includes(route.view) ? route.view : "turn.timeline")} · daoyou`;
  }, [route.view]);
  const View = may("see") || route.view === "turn" ? COMPONENTS[route.view] : ChatView;
  const close = () => setOverlay(null);
  return html`
    <a class="skip" href="#main" onClick=${skipToMain}>${t("skip")}</a>
    <${ConnectionBar} />
    <${NoticeBar} />
    <div class=${`shell ${route.view === "chat" ? "with-list" : ""} ${isHidden ? "list-hidden" : ""}`}>
      <${Rail} current=${route.view} onPalette=${() => setOverlay("palette")} onShortcuts=${() => setOverlay("shortcuts")} />
      <main id="main" tabindex="-1"><${View} id=${route.id} more=${route.more} /></main>
    </div>
    ${overlay === "palette" && html`<${Palette} onClose=${close} onShortcuts=${() => setOverlay("shortcuts")} />`}
    ${overlay === "shortcuts" && html`<${ShortcutsDialog} onClose=${close} />`}`;
}

function skipToMain(event) {
  event.preventDefault();
  (document.getElementById("composer") ?? document.getElementById("main")).focus();
}

function Rail({ current, onPalette, onShortcuts }) {
  const approvals = useResource(may("see") ? "/api/approvals" : null, ["approvals"]);
  const count = approvals.data?.length ?? 0;
  return html`<nav class="rail" aria-label=${t("navigation")}>
    ${(may("see") ? VIEWS : ["chat"]).map(
      (
        view,
      ) => html`<a href=${address(view)} aria-current=${current === view || (view === "chat" && current === "turn") ? "page" : undefined}>
      <span class="rail-icon"><${Icon} name=${view} size=${22} />${view === "queue" && count > 0 && html`<span class="badge">${count}</span>`}</span>
      <span class="rail-label">${t(view)}</span>
    </a>`,
    )}
    <span class="rail-space"></span>
    <${SettingsMenu} onPalette=${onPalette} onShortcuts=${onShortcuts} />
  </nav>`;
}

/** Says that the connection is lost, or that the gateway has a newer page; never in the way. */
function ConnectionBar() {
  const connection = useStore(app, (state) => state.connection);
  const isOutdated = useStore(app, (state) => state.outdated);
  if (connection === "lost") return html`<div class="connection-bar" role="status">${t("connection.lost")}</div>`;
  if (isOutdated)
    return html`<div class="connection-bar calm" role="status">${t("connection.outdated")} <button type="button" onClick=${() => location.reload()}>${t("connection.reload")}</button>
      </div>`;
  return null;
}

/** Says what became of an action whose place on the screen is gone. */
function NoticeBar() {
  const notice = useStore(app, (state) => state.notice);
  if (notice === null) return null;
  return html`<div class="connection-bar calm" role="alert">${notice} <button type="button" onClick=${() => app.set({ notice: null })}>${t("notice.read")}</button>
      </div>`;
}

const isWriting = (element) => element.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName);

function listenForShortcuts(setOverlay) {
  let isAfterG = false;
  const onKeyDown = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      setOverlay("palette");
      return;
    }
    const isModified = event.ctrlKey || event.metaKey || event.altKey;
    if (isModified || isWriting(event.target) || document.querySelector("dialog[open]")) return;
    if (isAfterG && Object.hasOwn(VIEW_KEYS, event.key)) {
      event.preventDefault();
      navigate(VIEW_KEYS[event.key]);
    } else if (event.key === "?") setOverlay("shortcuts");
    else if (event.key === "n") navigate("chat");
    else if (event.key === "/") {
      event.preventDefault();
      (document.getElementById("search") ?? document.getElementById("composer"))?.focus();
    }
    isAfterG = event.key === "g" && !isAfterG;
  };
  document.addEventListener("keydown", onKeyDown);
  return () => document.removeEventListener("keydown", onKeyDown);
}

// A tab that was in the background shows what it missed.
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && app.get().me && refresh());

render(html`<${App} />`, document.getElementById("app"));
