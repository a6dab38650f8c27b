// Observable state, and hooks that read it.

import { useCallback, useEffect, useState } from "./lib.js";
import * as api from "./api.js";

/**
 * A value that components subscribe to. `set` takes a patch of an object, or a function from the old state to the new one.
 * @template T
 * @param {T} initial
 */
export function createStore(initial) {
  let state = initial;
  const listeners = new Set();
  return {
    get: () => state,
    set(change) {
      const next = typeof change === "function" ? change(state) : { ...state, ...change };
      if (next === state) return;
      state = next;
      for (const listener of [...listeners]) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Returns the selected part of a store, and renders again when that part is another one. */
export function useStore(store, select = (state) => state) {
  const [value, setValue] = useState(() => select(store.get()));
  useEffect(() => {
    const update = () => setValue(() => select(store.get()));
    update();
    return store.subscribe(update);
  }, [store]);
  return value;
}

/**
 * A store whose value outlives the page, as far as the browser lets it. What other tabs write is taken over.
 * @template T
 * @param {string} name
 * @param {T} initial
 * @param {() => Storage} storage `localStorage` for all tabs, or `sessionStorage` for this one
 */
export function createPersistentStore(name, initial, storage = () => localStorage) {
  const parse = (text) => {
    try {
      return JSON.parse(text) ?? initial;
    } catch {
      return initial;
    }
  };
  const read = () => {
    try {
      return parse(storage().getItem(name));
    } catch {
      // The browser keeps nothing for this page.
      return initial;
    }
  };
  const store = createStore(read());
  let isForeign = false;
  store.subscribe(() => {
    if (isForeign) return;
    try {
      storage().setItem(name, JSON.stringify(store.get()));
    } catch (error) {
      console.debug(`${name} is not kept:`, error.message);
    }
  });
  window.addEventListener("storage", ({ key, newValue }) => {
    if (key !== name) return;
    isForeign = true;
    store.set(() => parse(newValue));
    isForeign = false;
  });
  return store;
}

const loginStores = new Map();

/** A kept store that ends with the login: the next one may be somebody else. */
export function createLoginStore(name, initial, storage) {
  const store = createPersistentStore(name, initial, storage);
  loginStores.set(store, initial);
  return store;
}

/** Forgets what this browser keeps for a login. A page that shows something of it starts anew. */
export function forgetLogin() {
  for (const [store, initial] of loginStores) store.set(() => initial);
  if (!app.get().me) return app.set({ me: null });
  history.replaceState(null, "", "/");
  location.reload();
}

/** What the whole page shares. `me` is null before the login and undefined before that is known. `notice` is a text until it is read. */
export const app = createStore({
  me: undefined,
  connection: "connecting",
  version: null,
  started: null,
  outdated: false,
  notice: null,
  sidebar: false,
});

const RIGHTS = { admin: ["chat", "see", "change"], chat: ["chat"], read: ["see"] };

/**
 * Returns true if this login may do something; the gateway refuses the rest, so the page does not offer it.
 * @param {"chat" | "see" | "change"} right `chat`: write messages; `see`: look at everything; `change`: all else
 */
export const may = (right) => (RIGHTS[app.get().me?.scope] ?? []).includes(right);

// Resources: answers of GET requests, kept by path, so that a view that is opened again shows its last state at once.

const resources = new Map();

function resource(path) {
  let entry = resources.get(path);
  if (!entry) {
    entry = { store: createStore({ data: undefined, error: null, loading: false }), topics: [], users: 0, run: 0 };
    resources.set(path, entry);
  }
  return entry;
}

async function load(path) {
  const entry = resource(path);
  const run = ++entry.run;
  entry.store.set({ loading: true });
  try {
    const data = await api.get(path);
    if (run === entry.run) entry.store.set({ data, error: null, loading: false });
  } catch (error) {
    if (run === entry.run) entry.store.set({ error, loading: false });
  }
}

/**
 * Returns the answer of `GET path`, which is asked again when the gateway says that one of `topics` changed.
 * @param {string | null} path nothing is asked for null
 * @param {string[]} topics kinds of the `changed` event
 * @returns {{data: any, error: Error | null, loading: boolean, reload: () => Promise<void>}}
 */
export function useResource(path, topics = []) {
  const entry = path === null ? NOTHING : resource(path);
  useStore(entry.store);
  useEffect(() => {
    if (path === null) return undefined;
    entry.topics = topics;
    entry.users += 1;
    load(path);
    return () => void (entry.users -= 1);
  }, [path]);
  const reload = useCallback(() => (path === null ? Promise.resolve() : load(path)), [path]);
  // The hook's own state belongs to the last path until its effect has run.
  return { ...entry.store.get(), reload };
}

const NOTHING = { store: createStore({ data: undefined, error: null, loading: false }) };

/** Loads the resources on the screen again that `topics` concern; without `topics` all of them. Others are forgotten. */
export function refresh(topics) {
  for (const [path, entry] of resources) {
    if (topics && !topics.some((topic) => entry.topics.includes(topic))) continue;
    if (entry.users > 0) load(path);
    else resources.delete(path);
  }
}
