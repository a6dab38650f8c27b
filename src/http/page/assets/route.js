// Views by the part of the address after `#`: `#/VIEW/ID/MORE`.

import { useEffect, useState } from "./lib.js";

/** The views of the rail, in its order. */
export const VIEWS = ["chat", "jobs", "memory", "queue", "cost", "system"];

/** The key after `g` that goes to each view. */
export const VIEW_KEYS = { c: "chat", j: "jobs", m: "memory", q: "queue", k: "cost", s: "system" };

/** Returns the route of the address; an unknown view is the chat. @returns {{view: string, id: string | null, more: string | null}} */
function currentRoute() {
  const [view, id, more] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  if (view !== "turn" && !VIEWS.includes(view)) return { view: "chat", id: null, more: null };
  return { view, id: id || null, more: more || null };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Returns the address of a view. */
export function address(view, ...parts) {
  return `#/${[view, ...parts].map(encodeURIComponent).join("/")}`;
}

export function navigate(view, ...parts) {
  location.hash = address(view, ...parts);
}

/** Replaces the address without a new entry in the history: for a chat that has just got its key. */
export function replaceRoute(view, ...parts) {
  history.replaceState(null, "", address(view, ...parts));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const update = () => setRoute(currentRoute());
    window.addEventListener("hashchange", update);
    return () => window.removeEventListener("hashchange", update);
  }, []);
  return route;
}
