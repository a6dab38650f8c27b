// Where messages are written: a text that grows, files, slash commands with completion, and the button that sends or stops.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { useResource, useStore } from "../store.js";
import { errorText, IconButton } from "../ui.js";
import { Icon } from "../icons.js";
import { bytes } from "../format.js";
import { t } from "../i18n.js";
import { segment, upload } from "../api.js";
import { addToDraft, draftFilesOf, drafts, forgetReturned, setDraft, setDraftFiles } from "./drafts.js";

const MAX_LINES = 8;
const FILE_LIMIT = 25_000_000;
const MAX_FILES = 10;

/**
 * @param {object} props
 * @param {string | null} props.id the session
 * @param {{content: string, attachments: any[]} | null} props.returned a message that was not sent and is written again
 * @param {boolean} props.isRunning
 * @param {(text: string, attachments: any[]) => Promise<void>} props.onSend
 * @param {() => void} props.onStop
 */
export function Composer({ id, returned, isRunning, onSend, onStop }) {
  const text = useStore(drafts, (all) => all[id ?? ""] ?? "");
  const area = useRef(null);
  const files = useFiles(id);
  const [error, setError] = useState(null);
  const completion = useCompletion(text, (command) => write(`${command} `));
  const write = (value) => setDraft(id, value);
  const isTouch = matchMedia("(pointer: coarse)").matches;

  useLayoutEffect(() => grow(area.current), [text]);
  useEffect(() => void (isTouch || area.current.focus()), []);
  const restoreMessage = ({ content, attachments }) => {
    addToDraft(id, content);
    files.restore(attachments);
    area.current.focus();
  };
  // At once: nothing else keeps the message any more.
  useLayoutEffect(() => void (returned && restoreMessage(returned)), [returned]);
  useEffect(() => {
    // Esc stops the turn wherever the focus is, unless an input method, a search, a dialog or a menu takes it.
    const onKeyDown = (event) => {
      if (event.key !== "Escape" || !isRunning || event.defaultPrevented || isComposing(event)) return;
      if (!event.target.closest?.("input[type=search]") && !document.querySelector("dialog[open]")) onStop();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, [isRunning, onStop]);

  const ready = readyOf(files.list);
  const isUploading = files.list.some((file) => file.state === "uploading");
  const canSend = (text.trim() !== "" || ready.length > 0) && !isUploading;
  const submit = async () => {
    if (!canSend) return;
    setError(null);
    const [content, attachments] = [text.trim(), ready.map((file) => file.stored)];
    write("");
    files.clear();
    // The session of a new chat takes over the draft, perhaps before this component is rendered again.
    setDraftFiles(id, []);
    area.current.focus();
    try {
      await onSend(content, attachments);
    } catch (caught) {
      restoreMessage({ content, attachments });
      setError(caught);
    }
  };
  const onKeyDown = (event) => {
    if (isComposing(event)) return;
    if (completion.onKeyDown(event)) return;
    const isEnter = event.key === "Enter" && !event.shiftKey;
    if (isEnter && (!isTouch || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      submit();
    }
  };
  const onPaste = (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    files.add(event.clipboardData.files);
  };
  return html`<div class="composer-frame">
    <${DropZone} onDrop=${files.add} />
    <form class="composer" onSubmit=${(event) => (event.preventDefault(), submit())}>
      ${completion.list}
      <${FileChips} files=${files} />
      ${error && html`<p class="error-text" role="alert">${errorText(error)}</p>`}
      <div class="composer-row">
        <label class="icon-button" title=${t("composer.attach")}>
          <${Icon} name="attach" /><span class="visually-hidden">${t("composer.attach")}</span>
          <input type="file" multiple class="visually-hidden" onChange=${(event) => (files.add(event.target.files), (event.target.value = ""))} />
        </label>
        <textarea id="composer" ref=${area} rows="1" dir="auto" value=${text} placeholder=${t("composer.placeholder")} aria-label=${t("composer.placeholder")} ...${completion.attributes}
          onInput=${(event) => (forgetReturned(id), write(event.target.value))} onKeyDown=${onKeyDown} onPaste=${onPaste}></textarea>
        ${isRunning && html`<${IconButton} class="stop" icon="stop" label=${t("stop")} onClick=${onStop} />`}
        ${
          (!isRunning || canSend) &&
          html`<button type="submit" class="icon-button send" aria-label=${t("send")} title=${t("send")} disabled=${!canSend}><${Icon} name="send" />
          </button>`
        }
      </div>
    </form>
    <p class="composer-hint">${t(isTouch ? "composer.hint.touch" : "composer.hint")}</p>
  </div>`;
}

/** A key that belongs to an input method. */
const isComposing = (event) => event.isComposing || event.keyCode === 229;

function grow(element) {
  element.style.height = "auto";
  const style = getComputedStyle(element);
  const limit = MAX_LINES * parseFloat(style.lineHeight) + parseFloat(style.paddingTop) + parseFloat(style.paddingBottom);
  element.style.height = `${Math.min(element.scrollHeight, limit)}px`;
  element.classList.toggle("full", element.scrollHeight > limit);
}

/** A file that is uploaded already. */
const uploaded = (file) => ({
  key: Math.random(),
  file,
  stored: file,
  abort: new AbortController(),
  preview: file.mime.startsWith("image/") ? `/api/files/${segment(file.id)}` : null,
  state: "ready",
});

const readyOf = (list) => list.filter((file) => file.state === "ready");

/** Files that are uploaded while the message is written. Like its text, they outlive the page. */
function useFiles(id) {
  const [list, setList] = useState(() => draftFilesOf(id).map(uploaded));
  // At once: the page may be gone before the next frame.
  useLayoutEffect(
    () =>
      setDraftFiles(
        id,
        readyOf(list).map((file) => file.stored),
      ),
    [list],
  );
  const [refused, setRefused] = useState(0);
  const current = useRef(list);
  current.current = list;
  const change = (key, patch) => setList((files) => files.map((file) => (file.key === key ? { ...file, ...patch } : file)));
  const start = async (entry) => {
    try {
      change(entry.key, { state: "ready", stored: await upload(entry.file, entry.abort.signal) });
    } catch (error) {
      if (error.name !== "AbortError") change(entry.key, { state: "failed", error });
    }
  };
  const forget = (entry) => {
    entry.abort.abort();
    if (entry.preview) URL.revokeObjectURL(entry.preview);
  };
  useEffect(() => () => current.current.forEach(forget), []);
  return {
    list,
    /** How many files of the last choice were too many for one message. */
    refused,
    add(files) {
      const room = Math.max(MAX_FILES - current.current.length, 0);
      setRefused(Math.max(files.length - room, 0));
      const added = [...files].slice(0, room).map((file) => ({
        key: Math.random(),
        file,
        abort: new AbortController(),
        preview: file.type.startsWith("image/") ? URL.createObjectURL(file) : null,
        ...(file.size > FILE_LIMIT
          ? { state: "failed", error: new Error(t("files.large", { limit: bytes(FILE_LIMIT) })) }
          : { state: "uploading" }),
      }));
      setList((known) => [...known, ...added]);
      added.filter((entry) => entry.state === "uploading").forEach(start);
    },
    /** Adds files that are uploaded already. */
    restore(stored) {
      setList((known) => {
        const ids = new Set(known.map((file) => file.stored?.id));
        return [...known, ...stored.filter((file) => !ids.has(file.id)).map(uploaded)];
      });
    },
    retry(entry) {
      change(entry.key, { state: "uploading", error: null });
      start(entry);
    },
    remove(entry) {
      forget(entry);
      setRefused(0);
      setList((known) => known.filter((file) => file.key !== entry.key));
    },
    clear() {
      current.current.forEach((entry) => entry.preview && URL.revokeObjectURL(entry.preview));
      setRefused(0);
      setList([]);
    },
  };
}

function FileChips({ files }) {
  if (files.list.length === 0) return null;
  return html`<ul class="file-chips" aria-label=${t("files")}>${files.list.map(
    (entry) => html`<li key=${entry.key} class=${`file-chip ${entry.state}`}>
      ${entry.preview ? html`<img src=${entry.preview} alt="" width="40" height="40" />` : html`<${Icon} name="file" size=${16} />`}
      <span class="file-name">${entry.file.name}<small>${entry.state === "failed" ? errorText(entry.error) : entry.state === "uploading" ? t("files.uploading") : bytes(entry.file.size)}</small>
        </span>
      ${entry.state === "failed" && entry.file.size <= FILE_LIMIT && html`<${IconButton} icon="retry" size=${14} label=${t("retry")} onClick=${() => files.retry(entry)} />`}
      <${IconButton} icon="close" size=${14} label=${t("files.remove", { name: entry.file.name })} onClick=${() => files.remove(entry)} />
    </li>`,
  )}${files.refused > 0 && html`<li class="file-chip failed"><small role="status">${t("files.many", { count: files.refused, limit: MAX_FILES })}</small></li>`}</ul>`;
}

/** Files may be dropped anywhere on the page. */
function DropZone({ onDrop }) {
  const [isOver, setIsOver] = useState(false);
  useEffect(() => {
    const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    const over = (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setIsOver(true);
    };
    const leave = (event) => event.relatedTarget === null && setIsOver(false);
    const drop = (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setIsOver(false);
      onDrop(event.dataTransfer.files);
    };
    const handlers = { dragover: over, dragleave: leave, drop };
    Object.entries(handlers).forEach(([name, handler]) => document.addEventListener(name, handler));
    return () => Object.entries(handlers).forEach(([name, handler]) => document.removeEventListener(name, handler));
  }, []);
  return isOver ? html`<div class="drop-zone" aria-hidden="true"><${Icon} name="attach" size=${32} />${t("files.drop")}</div>` : null;
}

/** Completes slash commands. The focus stays in the text; arrows choose, Tab or Enter takes, Esc closes. */
function useCompletion(text, onTake) {
  const commands = useResource("/api/commands");
  const [at, setAt] = useState(0);
  const [closedFor, setClosedFor] = useState(null);
  const isCommand = /^\/[\w-]*$/.test(text) && closedFor !== text;
  const found = isCommand ? (commands.data ?? []).filter((command) => command.name.startsWith(text)) : [];
  // A command that is complete is sent, not completed.
  const isOpen = found.length > 0 && !(found.length === 1 && found[0].name === text);
  const chosen = Math.min(at, found.length - 1);
  useEffect(() => setAt(0), [text]);
  const onKeyDown = (event) => {
    if (!isOpen) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((chosen + step + found.length) % found.length);
    else if (event.key === "Tab" || (event.key === "Enter" && found[chosen].name !== text)) onTake(found[chosen].name);
    else if (event.key === "Escape") setClosedFor(text);
    else return false;
    event.preventDefault();
    return true;
  };
  const attributes = isOpen
    ? {
        role: "combobox",
        "aria-expanded": "true",
        "aria-controls": "commands",
        "aria-activedescendant": `command-${chosen}`,
        "aria-autocomplete": "list",
      }
    : {};
  const list = isOpen
    ? html`<ul class="completion" id="commands" role="listbox" aria-label=${t("composer.commands")}>${found.map(
        (command, index) =>
          html`<li id=${`command-${index}`} role="option" aria-selected=${index === chosen} onPointerDown=${(event) => (event.preventDefault(), onTake(command.name))}><code>${command.usage ?? command.name}</code>
            <span>${command.help}</span></li>`,
      )}</ul>`
    : null;
  return { onKeyDown, attributes, list };
}
