// The chat: the list of sessions, one conversation, and the composer.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { app, may, useResource, useStore } from "../store.js";
import { navigate, replaceRoute } from "../route.js";
import { ErrorNote, IconButton } from "../ui.js";
import { Icon } from "../icons.js";
import { t } from "../i18n.js";
import { Composer } from "./composer.js";
import { moveDraft } from "./drafts.js";
import { AgentPicker, choices, choose } from "./picker.js";
import { ListButton, SessionList, SessionMenu, markSeen, titleOf, useSessions } from "./sessions.js";
import { SummaryMark, TurnView } from "./message.js";
import { load, send, sendAgain, stop, takeBack, useConversation } from "./conversations.js";
import { isOpen } from "./turns.js";

/** Older turns are shown on demand. */
const PAGE = 40;
/** The view follows new text when it is this near to the end, in pixels. */
const NEAR_END = 80;
const NO_CHOICE = {};

export function ChatView({ id }) {
  return html`<${SessionList} current=${id} /><${ConversationPane} key=${id ?? ""} id=${id} />`;
}

function ConversationPane({ id }) {
  const state = useConversation(id);
  const approvals = useResource(may("see") ? "/api/approvals" : null, ["approvals"]);
  const sessions = useSessions();
  const agents = useResource(may("change") ? "/api/agents" : null);
  const entry = sessions.data?.find((session) => session.session === id);
  const choice = useStore(choices, (all) => all[id ?? ""] ?? NO_CHOICE);
  const [error, setError] = useState(null);
  const [sent, setSent] = useState(0);
  const [returned, setReturned] = useState(null);
  const isShown = useRef(true);
  useEffect(() => () => void (isShown.current = false), []);
  useEffect(() => void load(id), [id]);
  useEffect(() => markSeen(id, entry?.updated_at), [id, entry?.updated_at]);
  useEffect(() => {
    document.title = entry ? `${titleOf(entry)} · daoyou` : "daoyou";
  }, [entry && titleOf(entry)]);

  const actions = useMemo(() => {
    const open = (session) => {
      if (session === id) return;
      choose(session, choice);
      choose(null, NO_CHOICE);
      // A message that is sent later does not take the reader away from another conversation.
      if (!isShown.current) return;
      moveDraft(id, session);
      replaceRoute("chat", session);
    };
    const write = async (content, attachments = [], more = {}) => {
      setError(null);
      setSent((count) => count + 1);
      await send(id, { content, attachments, ...choice, ...more }, open);
    };
    return {
      send: write,
      answer: (text, shown) => write(text, [], { shown }),
      resend: (turn) => sendAgain(id, turn, open),
      takeBack: (turn) => setReturned(takeBack(id, turn)),
      /** Asks again. The gateway goes back to the end of the turn before once it has the new message. */
      retry(turn) {
        // Messages that were joined have the files of all.
        const files = new Map(turn.users.flatMap((user) => user.attachments).map((file) => [file.id, file]));
        return write(turn.users.map((user) => user.text).join("\n\n"), [...files.values()], { replaces: turn.id });
      },
      stop: () => stop(id).catch(setError),
    };
  }, [id, choice]);

  const isRunning = state.turns.some((turn) => isOpen(turn) && turn.state !== "sending");
  const waiting = (approvals.data ?? []).filter((approval) => approval.session === id);
  const title = entry ? titleOf(entry) : t("chat.new");
  return html`<section class="conversation" aria-label=${t("chat")}>
    <header class="chat-head">
      <${ListButton} />
      <h1 title=${id ?? ""}>${title}</h1>
      ${may("change") && html`<${AgentPicker} choice=${choice} onChoose=${(next) => choose(id, next)} session=${state.session ?? entry} agents=${agents.data?.agents ?? []} />`}
      <${IconButton} class="only-narrow" icon="plus" label=${t("chat.new")} onClick=${() => navigate("chat")} />
      ${entry && html`<${SessionMenu} session=${entry} />`}
    </header>
    ${state.status === "failed" && html`<${ErrorNote} error=${state.error} onRetry=${() => load(id)} />`}
    ${
      state.turns.length === 0 && state.status === "ready"
        ? html`<${Welcome} onPick=${actions.send} />`
        : html`<${Turns} state=${state} approvals=${waiting} actions=${actions} sent=${sent} />`
    }
    ${error && html`<${ErrorNote} error=${error} />`}
    ${may("chat") ? html`<${Composer} id=${id} returned=${returned} isRunning=${isRunning} onSend=${actions.send} onStop=${actions.stop} />` : html`<p class="composer-frame dim">${t("readOnly")}</p>`}
    <${Announcer} turns=${state.turns} />
  </section>`;
}

function Welcome({ onPick }) {
  const me = useStore(app, (state) => state.me);
  const ideas = ["welcome.time", "welcome.files", "welcome.remind"];
  return html`<div class="welcome">
    <h2>${t("welcome", { name: me?.agent_name ?? "daoyou" })}</h2>
    <p>${t("welcome.hint")}</p>
    ${may("chat") && html`<div class="ideas">${ideas.map((idea) => html`<button type="button" class="button" onClick=${() => onPick(t(idea))}>${t(idea)}</button>`)}</div>`}
  </div>`;
}

/** The turns in a box that scrolls. It follows new text only while the reader is at the end. */
function Turns({ state, approvals, actions, sent }) {
  const box = useRef(null);
  const follows = useRef(true);
  const top = useRef(0);
  const [hasNew, setHasNew] = useState(false);
  const [count, setCount] = useState(PAGE);
  const { turns, session } = state;

  const scrollToEnd = () => {
    box.current.scrollTop = box.current.scrollHeight;
    top.current = box.current.scrollTop;
  };
  const toEnd = () => {
    follows.current = true;
    setHasNew(false);
    scrollToEnd();
  };
  /** Notes where the reader is: who moves up wants to read there, and who comes back to the end wants to follow. */
  const observe = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    const distance = scrollHeight - scrollTop - clientHeight;
    if (scrollTop < top.current - 1 && distance > 1) follows.current = false;
    else if (distance <= NEAR_END) follows.current = true;
    top.current = scrollTop;
  };
  useLayoutEffect(() => {
    // New text may come before the browser reports that the reader has moved.
    observe();
    if (follows.current) scrollToEnd();
    else setHasNew(true);
  }, [turns, approvals.length]);
  // Who sends a message wants to see it.
  useLayoutEffect(() => void (sent > 0 && toEnd()), [sent]);
  useEffect(() => {
    const observer = new ResizeObserver(() => follows.current && box.current && scrollToEnd());
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const onScroll = () => {
    // The browser may report it after the box is gone.
    if (!box.current) return;
    observe();
    if (follows.current) setHasNew(false);
  };
  const shown = turns.slice(-count);
  const lastId = turns.findLast((turn) => !turn.isLocal && !turn.isExtra)?.id;
  const known = new Set(turns.map((turn) => turn.id));
  // Approvals of sub-agents belong to turns that are not in this conversation.
  const others = approvals.filter((approval) => !known.has(approval.turn));
  const approvalsOf = (turn) =>
    approvals.filter((approval) => approval.turn === turn.id || (turn.id === lastId && others.includes(approval)));
  const summaryBefore = (turn) => (session?.summary?.turn === turn.id ? session.summary.text : null);
  return html`<div class="turns-frame">
    <div class="turns" ref=${box} onScroll=${onScroll} tabindex="0" role="log" aria-live="off" aria-label=${t("chat.messages")} aria-busy=${state.status === "loading"}>
      <div class="column">
        ${turns.length > count && html`<button type="button" class="button wide" onClick=${() => setCount(count + PAGE)}>${t("chat.earlier", { count: turns.length - count })}</button>`}
        ${shown.map((turn) => html`<${TurnView} key=${turn.id} turn=${turn} isLast=${turn.id === lastId} actions=${actions} approvals=${approvalsOf(turn)} summary=${summaryBefore(turn)} />`)}
        ${session?.summary && session.summary.turn === null && html`<${SummaryMark} text=${session.summary.text} />`}
      </div>
    </div>
    ${hasNew && html`<button type="button" class="pill" onClick=${toEnd}>${t("chat.newText")}<${Icon} name="down" size=${14} /></button>`}
  </div>`;
}

/** Marks the tab until the reader comes back to it. */
export function markTitle() {
  if (document.title.startsWith("● ")) return;
  document.title = `● ${document.title}`;
  document.addEventListener("visibilitychange", () => (document.title = document.title.replace(/^● /, "")), { once: true });
}

/** Tells readers of the screen that an answer is complete, and what it says; not each token. */
function Announcer({ turns }) {
  const [text, setText] = useState("");
  const open = useRef(new Set());
  useEffect(() => {
    for (const turn of turns) {
      if (isOpen(turn)) open.current.add(turn.id);
      // A message that was not sent is an alert of its own.
      else if (open.current.delete(turn.id) && turn.state !== "failed") {
        const answer = turn.parts.findLast((part) => part.kind === "text")?.text ?? turn.error ?? "";
        setText(t("chat.finished", { text: answer.slice(0, 500) }));
        if (document.hidden) markTitle();
      }
    }
  }, [turns]);
  return html`<div class="visually-hidden" role="status" aria-live="polite">${text}</div>`;
}
