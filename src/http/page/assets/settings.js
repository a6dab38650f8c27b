// The menu at the end of the rail: theme, language, help, logout.

import * as api from "./api.js";
import { html } from "./lib.js";
import { forgetLogin } from "./store.js";
import { Menu } from "./ui.js";
import { locale, setLanguage, t } from "./i18n.js";

const THEMES = ["auto", "light", "dark"];

const theme = () => document.documentElement.dataset.theme ?? "auto";

export function setTheme(name) {
  if (name === "auto") {
    localStorage.removeItem("daoyou.theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("daoyou.theme", name);
    document.documentElement.dataset.theme = name;
  }
}

export const nextTheme = () => THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];

/** The languages, each in its own words. */
export const otherLanguage = () => (locale() === "en" ? { code: "zh-CN", name: "中文" } : { code: "en", name: "English" });

export async function logout() {
  await api.post("/api/logout");
  forgetLogin();
}

export function SettingsMenu({ onPalette, onShortcuts }) {
  const other = otherLanguage();
  const items = [
    ...THEMES.map((name) => ({ label: t(`theme.${name}`), icon: name === theme() ? "check" : "sun", onSelect: () => setTheme(name) })),
    { label: other.name, icon: "globe", onSelect: () => setLanguage(other.code) },
    { label: t("palette"), icon: "search", onSelect: onPalette },
    { label: t("shortcuts"), icon: "keyboard", onSelect: onShortcuts },
    { label: t("logout"), icon: "right", onSelect: logout },
  ];
  return html`<div class="rail-settings"><${Menu} label=${t("settings")} icon="more" items=${items} /></div>`;
}
