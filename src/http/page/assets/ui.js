// Small parts that all views share.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { Icon } from "./icons.js";
import { t } from "./i18n.js";

/** A button that is an icon alone; the label is its name. */
export function IconButton({ icon, label, size, ...rest }) {
  return html`<button type="button" aria-label=${label} title=${label} ...${rest} class=${`icon-button ${rest.class ?? ""}`}><${Icon} name=${icon} size=${size} />
    </button>`;
}

/** A button whose work takes time: it is disabled meanwhile, and an error stands beside it. */
export function ActionButton({ onAct, children, class: name = "", icon, ...rest }) {
  const [state, setState] = useState({ busy: false, error: null });
  const mounted = useRef(true);
  useEffect(() => () => void (mounted.current = false), []);
  const act = async () => {
    setState({ busy: true, error: null });
    let error = null;
    try {
      await onAct();
    } catch (caught) {
      error = caught;
    }
    if (mounted.current) setState({ busy: false, error });
  };
  return html`<span class="action">
    <button type="button" class=${`button ${name}`} disabled=${state.busy} aria-busy=${state.busy} onClick=${act} ...${rest}>
      ${icon && html`<${Icon} name=${icon} size=${16} />`}${children}
    </button>
    ${state.error && html`<span class="error-text" role="alert">${errorText(state.error)}</span>`}
  </span>`;
}

/** Copies a text; says so for a moment. */
export function CopyButton({ text, label = t("copy") }) {
  const [isCopied, setIsCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return undefined;
    const timer = setTimeout(() => setIsCopied(false), 1_500);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = async () => setIsCopied(await copyText(text));
  return html`<button type="button" class="copy" onClick=${copy}><${Icon} name=${isCopied ? "check" : "copy"} size=${14} />${isCopied ? t("copied") : label}</button>`;
}

/** Copies to the clipboard, which browsers offer to a page of another machine over https only. Returns true if it worked. */
async function copyText(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}

/** Says what went wrong, in the reader's language where the cause is known here. */
export function errorText(error) {
  if (error.code === "offline") return t("error.offline");
  if (error.code === "csrf") return t("error.csrf");
  return error.message;
}

/** An error where it happened, with the way out. */
export function ErrorNote({ error, onRetry }) {
  return html`<div class="error-note" role="alert">
    <${Icon} name="warn" /><span>${errorText(error)}</span>
    ${onRetry && html`<button type="button" class="button" onClick=${onRetry}>${t("retry")}</button>`}
  </div>`;
}

/** What would be here, and the one thing to do. */
export function Empty({ icon, title, children }) {
  return html`<div class="empty"><${Icon} name=${icon} size=${32} /><h2>${title}</h2><div>${children}</div></div>`;
}

/** Shows a resource: its error, a placeholder until it is there, then what `children`, a function of its data, returns. */
export function Loaded({ resource, children }) {
  const { data, error, reload } = resource;
  if (data === undefined) {
    return error
      ? html`<${ErrorNote} error=${error} onRetry=${reload} />`
      : html`<div class="placeholder" aria-busy="true" aria-label=${t("loading")}></div>`;
  }
  return html`${error && html`<${ErrorNote} error=${error} onRetry=${reload} />`}${children(data)}`;
}

/** A modal dialog; the browser keeps the focus inside, and gives it back. */
export function Dialog({ title, onClose, children, class: name = "" }) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    const element = dialog.current;
    element.showModal();
    return () => element.close();
  }, []);
  const onClick = (event) => event.target === dialog.current && onClose();
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${dialog} class=${`dialog ${name}`} aria-label=${title} onClick=${onClick} onCancel=${onCancel}>
    <div class="dialog-body">
      <header><h2>${title}</h2><${IconButton} icon="close" label=${t("close")} onClick=${onClose} /></header>
      ${children}
    </div>
  </dialog>`;
}

/** Asks before something that cannot be undone. */
export function ConfirmDialog({ title, children, action, onConfirm, onClose }) {
  const confirm = async () => {
    await onConfirm();
    onClose();
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <div class="dialog-text">${children}</div>
    <footer>
      <button type="button" class="button" autofocus onClick=${onClose}>${t("cancel")}</button>
      <${ActionButton} class="danger" onAct=${confirm}>${action}<//>
    </footer>
  <//>`;
}

/**
 * A button with a menu. Arrows move in it, Esc closes it.
 * @param {{items: ({label: string, icon: string, onSelect: () => void, isDanger?: boolean} | null)[]}} props
 */
export function Menu({ label, items, icon = "more" }) {
  const [isOpen, setIsOpen] = useState(false);
  const root = useRef(null);
  const buttons = () => [...root.current.querySelectorAll("[role=menuitem]")];
  const close = () => {
    setIsOpen(false);
    root.current.querySelector("button").focus();
  };
  useLayoutEffect(() => {
    if (isOpen) buttons()[0].focus();
  }, [isOpen]);
  useEffect(() => {
    if (!isOpen) return undefined;
    const onPress = (event) => root.current?.contains(event.target) || setIsOpen(false);
    document.addEventListener("pointerdown", onPress);
    return () => document.removeEventListener("pointerdown", onPress);
  }, [isOpen]);
  const onKeyDown = (event) => {
    if (!isOpen) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    }
    if (event.key === "Tab") setIsOpen(false);
    moveFocus(event, buttons());
  };
  const select = (item) => {
    close();
    item.onSelect();
  };
  return html`<div class="menu" ref=${root} onKeyDown=${onKeyDown}>
    <${IconButton} icon=${icon} label=${label} aria-haspopup="menu" aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)} />
    ${
      isOpen &&
      html`<div role="menu" aria-label=${label} class="menu-list">${items
        .filter(Boolean)
        .map(
          (item) =>
            html`<button type="button" role="menuitem" tabindex="-1" class=${item.isDanger ? "danger-text" : ""} onClick=${() => select(item)}><${Icon} name=${item.icon} size=${16} />${item.label}</button>`,
        )}</div>`
    }
  </div>`;
}

/** Moves the focus in a list with the arrows, Home and End. */
export function moveFocus(event, elements) {
  const at = elements.indexOf(document.activeElement);
  const last = elements.length - 1;
  const targets = { ArrowDown: Math.min(at + 1, last), ArrowUp: Math.max(at - 1, 0), Home: 0, End: last };
  const target = elements[targets[event.key]];
  if (!target) return;
  event.preventDefault();
  target.focus();
}

/** The head of a view, with its actions. */
export function ViewHead({ title, children }) {
  return html`<header class="view-head"><h1>${title}</h1><div class="view-actions">${children}</div></header>`;
}

/** A word with a colour: `ok`, `warn`, `bad` or none. The dot repeats what the word says. */
export function Status({ tone = "", children }) {
  return html`<span class=${`status ${tone}`}><span class="dot" aria-hidden="true"></span>${children}</span>`;
}

/** Tabs of a view; each is a link, so that the address says which is open. */
export function Tabs({ label, tabs, current }) {
  return html`<nav class="tabs" aria-label=${label}>${tabs.map(
    ({ id, name, href }) => html`<a href=${href} aria-current=${id === current ? "page" : undefined}>${name}</a>`,
  )}</nav>`;
}

/** Saves a text as a file on the reader's machine. */
export function saveFile(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A labelled input of one line. */
export function TextField({ label, class: name = "", ...rest }) {
  return html`<label class=${`field ${name}`}>${label}<input type="text" spellcheck="false" ...${rest} /></label>`;
}

/** A field that filters what is below it; `/` moves the focus there. */
export function SearchField({ label, value, onValue, class: name = "" }) {
  return html`<label class=${`search ${name}`}><${Icon} name="search" size=${16} /><span class="visually-hidden">${label}</span>
    <input type="search" id="search" placeholder=${label} value=${value} onInput=${(event) => onValue(event.target.value)} />
  </label>`;
}

/**
 * A labelled choice from a list.
 * @param {{label: string, options: [string, string][], value: string, onChange: (event: Event) => void}} props options are values with their texts
 */
export function SelectField({ label, options, ...rest }) {
  return html`<label class="field">${label}
    <select ...${rest}>${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
  </label>`;
}

/**
 * A choice of few, side by side.
 * @param {{label: string, options: [any, string][], value: any, onChange: (value: any) => void}} props
 */
export function Segmented({ label, options, value, onChange }) {
  const button = ([one, text]) => html`<button type="button" aria-pressed=${one === value} onClick=${() => onChange(one)}>${text}</button>`;
  return html`<div class="segmented" role="group" aria-label=${label}>${options.map(button)}</div>`;
}
