// Texts in the reader's language. Each language has one table, `lang/CODE.js`, with the same keys.

import en from "./lang/en.js";
import zh from "./lang/zh.js";
import { createPersistentStore, useStore } from "./store.js";

const TABLES = { en, "zh-CN": zh };

/** The language of the browser, unless somebody chose one. */
function preferred() {
  const first = (navigator.languages ?? [navigator.language]).find((tag) => /^(en|zh)\b/i.test(tag));
  return first && /^zh/i.test(first) ? "zh-CN" : "en";
}

const language = createPersistentStore("daoyou.language", { code: preferred() });
const mark = () => void (document.documentElement.lang = locale());
language.subscribe(mark);
mark();

/** Returns "en" or "zh-CN". */
export function locale() {
  return language.get().code in TABLES ? language.get().code : "en";
}

/** Renders a component again when the language changes. */
export const useLanguage = () => useStore(language).code;

export function setLanguage(code) {
  language.set({ code });
}

/** Returns the text of a word of the gateway, such as a state; a word without a text is shown as it is. */
export function wordText(prefix, word) {
  return Object.hasOwn(en, `${prefix}.${word}`) ? t(`${prefix}.${word}`) : word;
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
