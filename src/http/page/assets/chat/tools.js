// A tool call as one row that opens to its arguments and its result.

import { html, useState } from "../lib.js";
import { CopyButton } from "../ui.js";
import { Icon } from "../icons.js";
import { highlight, pieceNodes } from "../highlight.js";
import { span } from "../format.js";
import { t } from "../i18n.js";

/** Longer results are cut until the reader asks for all. In characters. */
const RESULT_LIMIT = 20_000;
const SUMMARY_LIMIT = 200;

/** Arguments that say most about a call, in this order. */
const SUMMARY_KEYS = ["command", "path", "url", "query", "pattern", "question", "content", "message", "task", "name", "action"];

/** Returns the arguments of a call in one line. */
export function summary(args) {
  if (args === null || args === undefined) return "";
  if (typeof args !== "object") return String(args).slice(0, SUMMARY_LIMIT);
  const key = SUMMARY_KEYS.find((name) => typeof args[name] === "string" && args[name] !== "");
  const text = key ? args[key] : Object.keys(args).length > 0 ? JSON.stringify(args) : "";
  return text.slice(0, SUMMARY_LIMIT).replace(/\s+/g, " ");
}

/** Characters that control the display or are invisible: controls, marks of the reading direction, empty characters, tags. */
const DISPLAY_CONTROLS =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\u{e0000}-\u{e007f}]/gu;

/** Returns a text with these characters written as escapes, so that nothing is hidden or shown in another order. */
export const visible = (text) => text.replace(DISPLAY_CONTROLS, (control) => `\\u{${control.codePointAt(0).toString(16)}}`);

/** Returns arguments as text to read, in their real order and with nothing invisible. */
export const argumentsText = (args) => visible(typeof args === "string" ? args : JSON.stringify(args ?? {}, null, 2));

const STATES = {
  running: { className: "running", icon: null, label: "state.running" },
  approval: { className: "warn", icon: "hand", label: "state.approval" },
  ok: { className: "ok", icon: "check", label: "state.ok" },
  failed: { className: "bad", icon: "cross", label: "state.failed" },
  none: { className: "", icon: "stop", label: "state.none" },
};

function stateOf(call, isRunning, hasApproval) {
  if (hasApproval) return STATES.approval;
  if (call.result === null) return isRunning ? STATES.running : STATES.none;
  return call.success === false ? STATES.failed : STATES.ok;
}

/**
 * @param {{call: import("./turns.js").ToolCall, isRunning: boolean, hasApproval: boolean}} props
 */
export function ToolRow({ call, isRunning, hasApproval }) {
  const [isOpen, setIsOpen] = useState(false);
  const state = stateOf(call, isRunning, hasApproval);
  return html`<div class=${`tool ${isOpen ? "open" : ""}`}>
    <button type="button" class="tool-head" aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)}>
      <span class=${`tool-state ${state.className}`} role="img" aria-label=${t(state.label)}>${state.icon ? html`<${Icon} name=${state.icon} size=${16} />` : html`<span class="spinner"></span>`}</span>
      <span class="tool-name">${call.name}</span>
      <span class="tool-summary">${summary(call.arguments)}</span>
      <span class="tool-time">${call.duration !== null ? span(call.duration) : ""}</span>
      <${Icon} name=${isOpen ? "down" : "right"} size=${14} />
    </button>
    ${
      isOpen &&
      html`<div class="tool-body">
      <${Section} title=${t("tool.arguments")} text=${argumentsText(call.arguments)} language="json" />
      ${call.result !== null && html`<${Section} title=${t("tool.result")} text=${call.result} language="" />`}
    </div>`
    }
  </div>`;
}

function Section({ title, text, language }) {
  const [isWhole, setIsWhole] = useState(false);
  const isCut = text.length > RESULT_LIMIT && !isWhole;
  const shown = isCut ? text.slice(0, RESULT_LIMIT) : text;
  return html`<section class="tool-section">
    <header><h4>${title}</h4><${CopyButton} text=${text} /></header>
    <pre tabindex="0" role="group" aria-label=${title}>${pieceNodes(highlight(shown, language))}</pre>
    ${isCut && html`<button type="button" class="button small" onClick=${() => setIsWhole(true)}>${t("tool.all")}</button>`}
  </section>`;
}
