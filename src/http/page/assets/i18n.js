// Texts in the reader's language. Each language has one table, `lang/CODE.js`, with the same keys.

import en from "./lang/en.js";
import zh from "./lang/zh.js";
import { createStore, useStore } from "./store.js";

const TABLES = { en, "zh-CN": zh };
const STORED = "daoyou.language";

function preferred() {
  const chosen = localStorage.getItem(STORED);
  if (chosen in TABLES) return chosen;
  const first = (navigator.languages ?? [navigator.language]).find((tag) => /^(en|zh)\b/i.test(tag));
  return first && /^zh/i.test(first) ? "zh-CN" : "en";
}

const language = createStore({ code: preferred() });
document.documentElement.lang = language.get().code;

/** Returns "en" or "zh-CN". */
export const locale = () => language.get().code;

/** Renders a component again when the language changes. */
export const useLanguage = () => useStore(language).code;

export function setLanguage(code) {
  localStorage.setItem(STORED, code);
  document.documentElement.lang = code;
  language.set({ code });
}

/**
 * Returns the text of a key. `{name}` is replaced by the parameter; a text with forms, `{one: …, other: …}`, is chosen by `count`.
 * @param {string} key
 * @param {Record<string, string | number>} parameters
 */
export function t(key, parameters = {}) {
  let text = TABLES[locale()][key] ?? en[key];
  if (text === undefined) return key;
  if (typeof text === "object") text = text[new Intl.PluralRules(locale()).select(parameters.count)] ?? text.other;
  return text.replace(/\{(\w+)\}/g, (whole, name) => parameters[name] ?? whole);
}
