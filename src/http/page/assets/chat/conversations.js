// The conversations that this page has opened: loads them, follows their events, and sends messages.

import * as api from "../api.js";
import { useEffect } from "../lib.js";
import { app, createStore, useStore } from "../store.js";
import { forgetUnsent, keepReturned, keepUnsent, takeReturned } from "./drafts.js";
import { applyEvent, fromHistory, merge, newTurn, openQuestion } from "./turns.js";

/** How long several reasons to load a conversation again are joined, in milliseconds. */
const RELOAD_DELAY = 150;
/** How long an answer of the gateway may take, in milliseconds, before the request counts as failed. */
const REQUEST_TIMEOUT = 20_000;
/** How long after a failure a conversation is loaded again, in milliseconds. */
const RETRY_DELAY = 2_000;
/** The delay before the page sends a message again, if only that request failed, in milliseconds: it doubles after each failure. */
const RESEND_DELAY = 2_000;
const MAX_RESEND_DELAY = 60_000;
/** How many conversations are kept in memory. */
const MAX_CONVERSATIONS = 30;
/** How many usages of turns are loaded with a conversation. */
const USAGES = 200;

/**
 * @typedef {object} Conversation
 * @property {"loading" | "ready" | "failed"} status
 * @property {import("./turns.js").Turn[]} turns
 * @property {Error | null} error
 * @property {object | null} session what the gateway says of it; null while it is new
 */

const conversations = new Map();

const empty = () => ({ status: "loading", turns: [], error: null, session: null });

function entryOf(key) {
  const entry = conversations.get(key) ?? {
    store: createStore(key === null ? { ...empty(), status: "ready" } : empty()),
    users: 0,
    last: "",
    buffer: null,
    timer: null,
    due: 0,
    run: 0,
    isSending: false,
  };
  // The one that was used last is at the end.
  conversations.delete(key);
  conversations.set(key, entry);
  for (const [other, { store }] of conversations) {
    if (conversations.size <= MAX_CONVERSATIONS) break;
    if (store !== entry.store) forgetUnused(other);
  }
  return entry;
}

/** Returns the store of a conversation; null is the chat that has no message yet. */
export const conversation = (key) => entryOf(key).store;

/** Returns the state of a conversation that a component shows. */
export function useConversation(key) {
  const entry = entryOf(key);
  useEffect(() => {
    entry.users += 1;
    return () => void (entry.users -= 1);
  }, [entry]);
  return useStore(entry.store);
}

/** Forgets a conversation that nothing shows and that has no message on its way. Returns true if it did. */
function forgetUnused(key) {
  const { users, store } = conversations.get(key);
  return users === 0 && !store.get().turns.some((turn) => turn.isLocal) && conversations.delete(key);
}

/** Loads a conversation. What happens while it loads is kept, and applied after what was loaded. */
export async function load(key) {
  if (key === null) return;
  const entry = entryOf(key);
  const { store } = entry;
  const run = ++entry.run;
  entry.buffer = [];
  try {
    const path = `/api/sessions/${api.segment(key)}`;
    // A turn that ends in between is in the history, which is read last.
    const live = await getInTime(`${path}/live`).catch(ifMissing({ turns: [], event: "" }));
    const [session, rows] = await Promise.all([
      getInTime(path).catch(ifMissing(null)),
      getInTime(`/api/turns?session=${api.segment(key)}&limit=${USAGES}`).catch(ifMissing([])),
    ]);
    if (run !== entry.run) return;
    const usages = new Map(rows.map((row) => [row.turn, row]));
    const history = fromHistory(session?.messages ?? []);
    const ended = new Set(history.map((turn) => turn.id));
    entry.last = live.event;
    store.set((state) => {
      let turns = merge(state.turns, { history, live: live.turns, usages, deliveries: session?.deliveries ?? [] });
      for (const { id, turn, event, at } of entry.buffer) {
        if (id !== null) {
          if (isContained(id, entry.last)) continue;
          entry.last = id;
        }
        if (!ended.has(turn)) turns = applyEvent(turns, turn, event, at);
      }
      return { ...state, status: "ready", error: null, session, turns };
    });
  } catch (error) {
    if (run !== entry.run) return;
    store.set((state) => ({ ...state, status: state.session ? "ready" : "failed", error }));
    // Otherwise it is loaded again when the connection is back.
    if ((error.status === 0 || error.status >= 500) && app.get().connection === "open") reloadSoon(key, RETRY_DELAY);
  } finally {
    if (run === entry.run) entry.buffer = null;
  }
}

const getInTime = (path) => api.get(path, { signal: AbortSignal.timeout(REQUEST_TIMEOUT) });

/** A session without a message yet is not an error. */
const ifMissing = (instead) => (error) => {
  if (error.status === 404) return instead;
  throw error;
};

/** Ids of events are a list's name and a number that grows in it. */
function isContained(id, last = "") {
  const [list, number] = id.split("-");
  const [lastList, lastNumber] = last.split("-");
  return list === lastList && Number(number) <= Number(lastNumber);
}

/** Loads a conversation again soon, if it is open somewhere on this page. */
export function reloadSoon(key, delay = RELOAD_DELAY) {
  const entry = conversations.get(key);
  const due = Date.now() + delay;
  if (!entry || (entry.timer !== null && entry.due <= due)) return;
  clearTimeout(entry.timer);
  entry.due = due;
  entry.timer = setTimeout(() => {
    entry.timer = null;
    if (conversations.get(key) === entry && !forgetUnused(key)) load(key);
  }, delay);
}

/** Loads all open conversations again: after events were lost. */
export function reloadAll() {
  for (const key of conversations.keys()) if (key !== null) reloadSoon(key);
}

/** Takes an event of a turn. */
export function takeEvent(id, { session, turn, event }) {
  const entry = conversations.get(session);
  // The stream may be behind what was loaded, and the next tab that listens repeats what the last one told.
  if (!entry || isContained(id, entry.last)) return;
  entry.last = id;
  apply(entry, id, turn, event);
  // The history has what events do not: the message itself, and which others were joined with it.
  if (event.type === "done" || event.type === "error" || event.type === "started") reloadSoon(session);
}

/** Applies an event, now and to what is being loaded. The id is null for what this page itself knows. */
function apply(entry, id, turn, event) {
  const at = Date.now();
  entry.buffer?.push({ id, turn, event, at });
  entry.store.set((state) => ({ ...state, turns: applyEvent(state.turns, turn, event, at) }));
}

function changeTurn(key, id, change) {
  conversation(key).set((state) => ({
    ...state,
    turns: state.turns.map((turn) => (turn.id === id ? { ...turn, ...change(turn) } : turn)),
  }));
}

function removeTurn(key, id) {
  conversation(key).set((state) => ({ ...state, turns: state.turns.filter((turn) => turn.id !== id) }));
}

/**
 * Sends a message. It is on the screen at once, under an id that this page made, so that a second try is not a second message.
 * @param {string | null} key the session; null begins a new chat
 * @param {{content: string, attachments: import("./turns.js").Attachment[], agent?: string, model?: string, replaces?: string, shown?: string}} message
 * `replaces` is the last turn, which is asked again; `shown` is what the page shows of an answer
 * @param {(key: string) => void} onAccepted is called with the session's key
 */
export async function send(key, message, onAccepted = () => {}) {
  // The answer to a question belongs to the turn that asked.
  const question = openQuestion(conversation(key).get().turns);
  const asked = question && !message.content.startsWith("/") ? question.call.id : null;
  // A message that comes back from the composer as it was may have arrived before.
  const id = takeReturned(key, message, asked) ?? newId();
  if (asked !== null) {
    const mark = (answer) =>
      changeTurn(key, question.turn.id, (turn) => ({
        parts: turn.parts.map((part) => (part.id === question.call.id ? { ...part, answer } : part)),
      }));
    mark(message.shown ?? message.content);
    await post(key, id, message).catch((error) => {
      mark(undefined);
      keepReturned(key, id, message, asked);
      throw error;
    });
    return;
  }
  const at = Date.now();
  const turn = {
    ...newTurn(id, "sending"),
    users: [{ text: message.content, attachments: message.attachments, at }],
    at,
    begun: at,
    isLocal: true,
    message,
    onAccepted,
  };
  conversation(key).set((state) => ({ ...state, turns: [...state.turns, turn] }));
  await sendAll(key);
}

/** Sends a message again that was not accepted, under the same id. */
export async function sendAgain(key, turn, onAccepted) {
  changeTurn(key, turn.id, () => ({ state: "sending", onAccepted }));
  await sendAll(key);
}

/** Returns true if a message was not sent because the gateway was away: it is sent when the gateway is back. */
export const waitsForGateway = ({ state, cause }) =>
  state === "failed" && (["offline", "draining"].includes(cause.code) || [502, 504].includes(cause.status));

/** Sends the messages again that did not reach the gateway. They keep their ids, so that one that did reach it counts once. */
export function resendAll() {
  resending.stop();
  for (const key of [...conversations.keys()]) sendAll(key);
}

/** Sends all messages again after a while. If the connection is lost, they are sent as soon as it is back. */
const resending = {
  delay: RESEND_DELAY,
  timer: null,
  start() {
    if (this.timer !== null) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      if (app.get().connection === "open") resendAll();
    }, this.delay);
    this.delay = Math.min(2 * this.delay, MAX_RESEND_DELAY);
  },
  stop() {
    clearTimeout(this.timer);
    this.timer = null;
  },
};

/** Sends the waiting messages of a conversation one by one, in their order. */
async function sendAll(key) {
  const entry = entryOf(key);
  if (entry.isSending) return;
  entry.isSending = true;
  const local = () => entry.store.get().turns.filter((turn) => turn.isLocal);
  // The first message of a new chat begins it for those that were written before it was accepted.
  let session = key;
  let members = new Set();
  for (;;) {
    const turn = local().find((turn) => turn.state === "sending" || waitsForGateway(turn));
    if (!turn) break;
    changeTurn(key, turn.id, () => ({ state: "sending" }));
    const to = key ?? (members.has(turn.id) ? session : null);
    let accepted;
    try {
      accepted = await post(to, turn.id, turn.message);
    } catch (cause) {
      if (fail(key, turn, cause)) continue;
      for (const other of local()) if (other.state === "sending") fail(key, other, cause);
      resending.start();
      break;
    }
    resending.delay = RESEND_DELAY;
    if (to === null) [session, members] = [accepted.session, new Set(local().map((other) => other.id))];
    showAccepted(key, turn, accepted);
  }
  entry.isSending = false;
}

/** Shows that a message was not sent. Returns true if it was refused, and false if the gateway was away. */
function fail(key, turn, cause) {
  const failed = { state: "failed", cause };
  keepUnsent(key, turn.id, turn.message);
  changeTurn(key, turn.id, () => failed);
  return !waitsForGateway(failed);
}

/** Moves a message to the session that took it. */
function showAccepted(key, turn, accepted) {
  const session = accepted.session;
  forgetUnsent(turn.id);
  removeTurn(key, turn.id);
  const entry = entryOf(session);
  if (key === null) entry.store.set({ status: "ready" });
  const { users, begun, at } = turn;
  apply(entry, null, accepted.id, { type: "accepted", users, begun, at });
  turn.onAccepted(session);
  reloadSoon(session);
}

function post(session, id, { content, attachments, agent, model, replaces }) {
  const body = { session: session ?? undefined, content, files: attachments.map((file) => file.id), agent, model, replaces, id };
  return api.post("/api/chat", body, { signal: AbortSignal.timeout(REQUEST_TIMEOUT) });
}

/** Forgets a message that was not accepted, and returns it. */
export function takeBack(key, turn) {
  forgetUnsent(turn.id);
  removeTurn(key, turn.id);
  keepReturned(key, turn.id, turn.message);
  return turn.message;
}

export const stop = (key) => api.post(`/api/sessions/${api.segment(key)}/stop`);

/** Returns a random UUID, also where the browser offers none because the page came over plain HTTP. */
function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
