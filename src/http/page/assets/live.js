// Follows the gateway for the whole page: keeps conversations, lists and the state of the connection true.

import { connectTabs } from "./events.js";
import { app, refresh } from "./store.js";
import { reloadAll, reloadSoon, resendAll, takeEvent } from "./chat/conversations.js";

/** The stream is in one of these states for this long before the page says so, in milliseconds. */
const PATIENCE = 800;

/** Starts to follow. @returns {() => void} stops */
export function follow() {
  let timer;
  let wasOpen = false;
  const onState = (connection) => {
    clearTimeout(timer);
    if (connection === "lost") {
      timer = setTimeout(() => app.set({ connection }), PATIENCE);
      return;
    }
    app.set({ connection });
    if (connection !== "open") return;
    // What was loaded before the stream was open may lack what happened in between.
    reloadAll();
    resendAll();
    // What a stream cannot repeat, the lists know.
    if (wasOpen) refresh();
    wasOpen = true;
  };
  const onEvent = ({ id, kind, data }) => {
    if (kind === "turn") takeEvent(id, data);
    if (kind === "changed") onChanged(data);
    if (kind === "hello") onHello(data);
    if (kind === "resync") {
      reloadAll();
      refresh();
    }
  };
  const stream = connectTabs(onEvent, onState);
  return () => {
    clearTimeout(timer);
    stream.close();
  };
}

function onChanged({ what, session }) {
  refresh(what);
  if (session && what.includes("sessions")) reloadSoon(session);
}

function onHello({ version, started }) {
  const known = app.get();
  // Another process: its ids of events are others, and so may its files be.
  if (known.started && known.started !== started) {
    reloadAll();
    refresh();
  }
  app.set({ version, started, outdated: Boolean(known.version) && known.version !== version });
}
