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
  if (typeof args !== "object") return visible(String(args).slice(0, SUMMARY_LIMIT));
  const key = SUMMARY_KEYS.find((name) => typeof args[name] === "string" && args[name] !== "");
  const text = key ? args[key] : Object.keys(args).length > 0 ? JSON.stringify(args) : "";
  return visible(text.slice(0, RESULT_LIMIT).replace(/[\t\n\r ]+/g, " ")).slice(0, SUMMARY_LIMIT);
}

/** Characters that control the display, are invisible, or look like a space: everything but the usual spaces and line breaks. */
const UNSEEN = /(?![\t\n \u3000])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\ufffc]/u;
/** More blanks of one kind than these are counted, so that they move nothing out of sight. */
const LONG_RUNS = new RegExp(`(\\s|${UNSEEN.source})\\1{20,}`, "gu");

const codePoint = (character) => character.codePointAt(0).toString(16);

/** Returns a text to read: long runs of blanks are counted, and nothing is invisible or changes the order of what is shown. */
function visible(text) {
  return text
    .replace(LONG_RUNS, (run, blank) => `[U+${codePoint(blank).toUpperCase().padStart(4, "0")}×${run.length / blank.length}]`)
    .replace(new RegExp(UNSEEN, "gu"), (character) => `\\u{${codePoint(character)}}`);
}

/** Returns the arguments of a call as text to read. A call that waits for an approval is shown as the gateway writes it. */
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
