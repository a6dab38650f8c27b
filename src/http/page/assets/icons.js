// Icons, drawn on a grid of 24 with one stroke. They repeat what a label says, so readers of the screen skip them.

import { html } from "./lib.js";

const PATHS = {
  chat: "M4 5h16v11H9l-5 4z",
  jobs: "M12 7v5l3 2M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  memory: "M6 4h9l3 3v13H6zM9 10h6M9 14h6",
  queue: "M4 13l3-8h10l3 8v6H4zM4 13h5l1 2h4l1-2h5",
  cost: "M4 20h16M7 20v-7M12 20V6M17 20v-4",
  system:
    "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.1 2.1M16.3 16.3l2.1 2.1M5.6 18.4l2.1-2.1M16.3 7.7l2.1-2.1",
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l4.5 4.5",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  attach: "M8 12l6-6a3 3 0 0 1 4.5 4.5l-8 8a5 5 0 0 1-7-7L11 4",
  more: "M4.5 12a.5.5 0 1 0 1 0 .5.5 0 1 0-1 0zM11.5 12a.5.5 0 1 0 1 0 .5.5 0 1 0-1 0zM18.5 12a.5.5 0 1 0 1 0 .5.5 0 1 0-1 0z",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M7 7l10 10M17 7L7 17",
  hand: "M8 12V6a1.5 1.5 0 0 1 3 0v5M11 11V4.5a1.5 1.5 0 0 1 3 0V11M14 11V6a1.5 1.5 0 0 1 3 0v8c0 4-2 7-5.5 7S6.5 19 5 15l-1-2.5a1.4 1.4 0 0 1 2.5-1.2L8 13.5",
  down: "M6 9l6 6 6-6",
  right: "M9 6l6 6-6 6",
  left: "M15 6l-6 6 6 6",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  retry: "M4 12a8 8 0 1 1 2.5 5.8M4 18v-5h5",
  fork: "M7 4v6a4 4 0 0 0 4 4h6M14 10l4 4-4 4M7 14v6",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  edit: "M5 19l1-4L16 5l3 3L9 18z",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  play: "M8 5l11 7-11 7z",
  pause: "M8 5v14M16 5v14",
  history: "M4 12a8 8 0 1 1 2.5 5.8M4 18v-5h5M12 8v4l3 2",
  file: "M7 3h7l4 4v14H7zM14 3v4h4",
  terminal: "M4 5h16v14H4zM8 10l2.5 2L8 14M13 15h3",
  mail: "M4 6h16v12H4zM4 7l8 6 8-6",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1",
  globe: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18",
  plug: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  warn: "M12 4l9 16H3zM12 10v4M12 17h.01",
  timeline: "M4 6h9M8 12h9M5 18h6",
  keyboard: "M3 7h18v11H3zM7 11h.01M11 11h.01M15 11h.01M8 15h8",
  sliders: "M5 7h8M17 7h2M5 17h2M11 17h8M13 5v4M7 15v4",
};

export function Icon({ name, size = 20 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.75" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

const CHANNELS = { cli: "terminal", page: "chat", webhook: "link", email: "mail", mcp: "plug", cron: "jobs", fork: "fork" };

/** Returns the name of a channel's icon; `webhook:demo` is a webhook. */
export const channelIcon = (channel = "") => CHANNELS[channel.split(":")[0]] ?? "globe";
