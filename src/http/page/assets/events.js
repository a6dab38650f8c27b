// The stream of events of the gateway: reads server-sent events, connects again by itself, and goes on where it was cut off.

import { ApiError, request } from "./api.js";

const FIRST_DELAY = 500;
const LAST_DELAY = 10_000;
/** The largest event that is read, in characters: a server that never ends one is cut off. */
const EVENT_LIMIT = 8_000_000;

/** A stream that is silent for this long is dead, in milliseconds: the gateway sends something every 15 seconds. */
const SILENCE = 45_000;

/** @typedef {{id: string, kind: string, data: any}} GatewayEvent */

/**
 * Splits a stream of text into events.
 * @param {(event: GatewayEvent) => void} emit
 * @returns {(text: string) => void} takes the next piece of the stream
 */
function eventParser(emit) {
  let rest = "";
  let [id, kind, data] = ["", "message", []];
  const line = (text) => {
    if (text === "") {
      if (data.length > 0) emit({ id, kind, data: JSON.parse(data.join("\n")) });
      [kind, data] = ["message", []];
      return;
    }
    const colon = text.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (field === "id") id = value;
    else if (field === "event") kind = value;
    else if (field === "data") data.push(value);
  };
  return (text) => {
    rest += text;
    if (rest.length > EVENT_LIMIT) throw new Error("an event is too large");
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    lines.forEach(line);
  };
}

/**
 * Listens to the gateway until `close` is called.
 * @param {(event: GatewayEvent) => void} onEvent
 * @param {(state: "connecting" | "open" | "lost") => void} onState
 * @param {string} lastId the last event that the caller has
 */
function connect(onEvent, onState, lastId) {
  let isClosed = false;
  let abort = new AbortController();
  let wake = () => {};
  let heardAt = Date.now();

  async function listen() {
    heardAt = Date.now();
    const headers = { Accept: "text/event-stream", ...(lastId && { "Last-Event-ID": lastId }) };
    const response = await request("GET", "/api/events", { headers, signal: abort.signal });
    onState("open");
    const parse = eventParser((event) => {
      if (event.id) lastId = event.id;
      onEvent(event);
    });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heardAt = Date.now();
      parse(value);
    }
  }

  async function run() {
    let delay = FIRST_DELAY;
    while (!isClosed) {
      const begun = Date.now();
      try {
        await listen();
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) return;
        if (!isClosed && error.name !== "AbortError") console.debug("events:", error.message);
      }
      if (isClosed) return;
      if (Date.now() - begun > LAST_DELAY) delay = FIRST_DELAY;
      onState("lost");
      await pause(delay * (0.75 + Math.random() / 2));
      delay = Math.min(delay * 2, LAST_DELAY);
      abort = new AbortController();
    }
  }

  const pause = (span) =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, span);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });

  const endSilence = () => Date.now() - heardAt > SILENCE && abort.abort();
  const watch = setInterval(endSilence, SILENCE / 9);
  // A machine that slept, or found its network again, does not wait for the next try.
  const onWake = () => {
    if (document.visibilityState !== "visible") return;
    endSilence();
    wake();
  };
  window.addEventListener("online", onWake);
  document.addEventListener("visibilitychange", onWake);
  run();
  return {
    close() {
      isClosed = true;
      clearInterval(watch);
      abort.abort();
      wake();
      window.removeEventListener("online", onWake);
      document.removeEventListener("visibilitychange", onWake);
    },
  };
}

/**
 * Listens like {@link connect}, with one connection for all tabs of the browser: browsers open only six to one server, so that a seventh
 * tab would hang. The tab that holds the lock listens and tells the others; when it is closed, the next one goes on behind the last event.
 * @param {(event: GatewayEvent) => void} onEvent
 * @param {(state: "connecting" | "open" | "lost") => void} onState
 * @returns {{close: () => void}}
 */
export function connectTabs(onEvent, onState) {
  // Browsers offer locks only over https and from the own machine.
  if (!navigator.locks || !window.BroadcastChannel) return connect(onEvent, onState, "");
  const channel = new BroadcastChannel("daoyou.events");
  const waiting = new AbortController();
  let [lastId, state, stream] = ["", "connecting", null];
  let release = () => {};

  const receive = (event) => {
    lastId = event.id || lastId;
    onEvent(event);
  };
  const setState = (next) => {
    state = next;
    onState(next);
  };
  channel.onmessage = ({ data }) => {
    if (stream) return void (data.asks && channel.postMessage({ state }));
    if (data.event) receive(data.event);
    if (data.state && data.state !== state) setState(data.state);
  };
  channel.postMessage({ asks: true });

  const listenForAllTabs = () => {
    const broadcast = (event) => {
      channel.postMessage({ event });
      receive(event);
    };
    const broadcastState = (next) => {
      channel.postMessage({ state: next });
      setState(next);
    };
    broadcastState("connecting");
    stream = connect(broadcast, broadcastState, lastId);
    return new Promise((resolve) => (release = resolve));
  };
  // Closed while it waits for the lock: there is nothing to give back.
  navigator.locks.request("daoyou.events", { signal: waiting.signal }, listenForAllTabs).catch(() => {});
  return {
    close() {
      waiting.abort();
      stream?.close();
      channel.close();
      release();
    },
  };
}
