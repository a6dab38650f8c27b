// Dates, numbers and sizes in the reader's language.

import { locale, t } from "./i18n.js";

const formats = new Map();

function format(kind, options) {
  const key = `${locale()} ${kind.name} ${JSON.stringify(options)}`;
  if (!formats.has(key)) formats.set(key, new kind(locale(), options));
  return formats.get(key);
}

export const number = (value, options = {}) => format(Intl.NumberFormat, options).format(value);
export const compact = (value) => number(value, { notation: "compact", maximumFractionDigits: 1 });
export const percent = (share) => number(share, { style: "percent", maximumFractionDigits: 0 });

export const time = (at) => format(Intl.DateTimeFormat, { hour: "2-digit", minute: "2-digit" }).format(new Date(at));
export const clock = (at) => format(Intl.DateTimeFormat, { timeStyle: "medium" }).format(new Date(at));
export const day = (at) => format(Intl.DateTimeFormat, { weekday: "long", day: "numeric", month: "long" }).format(new Date(at));
export const dateTime = (at) => format(Intl.DateTimeFormat, { dateStyle: "medium", timeStyle: "short" }).format(new Date(at));

const DAY = 86_400_000;
const startOfDay = (at) => new Date(at).setHours(0, 0, 0, 0);
const daysFromNow = (at) => Math.round((startOfDay(at) - startOfDay(Date.now())) / DAY);

/** Today's times as a time, others as a date: for lists. */
export function shortTime(at) {
  const days = daysFromNow(at);
  if (days === 0) return time(at);
  if (days > -7 && days < 0) return format(Intl.DateTimeFormat, { weekday: "short" }).format(new Date(at));
  return format(Intl.DateTimeFormat, { day: "numeric", month: "short" }).format(new Date(at));
}

/** "Today", "Tomorrow", or the date. */
export function dayName(at) {
  const days = daysFromNow(at);
  if (days === 0) return t("time.today");
  if (days === 1) return t("time.tomorrow");
  if (days === -1) return t("time.yesterday");
  return day(at);
}

/** "5 minutes ago", "in 3 days". */
export function relative(at) {
  const seconds = (new Date(at).getTime() - Date.now()) / 1_000;
  const units = [
    ["day", 86_400],
    ["hour", 3_600],
    ["minute", 60],
  ];
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  return format(Intl.RelativeTimeFormat, { numeric: "auto" }).format(Math.round(seconds / size), unit);
}

/** A span of milliseconds: "340 ms", "4.2 sec", "2 min 5 sec"; in Chinese "2分钟 5秒". */
export function span(ms) {
  const amount = (value, unit) => number(value, { style: "unit", unit, unitDisplay: "short", maximumFractionDigits: 1 });
  if (ms < 999.5) return amount(Math.round(ms), "millisecond");
  // Rounded before it is split: 59.7 seconds are a minute, not 60 seconds.
  const seconds = ms < 9_950 ? ms / 1_000 : Math.round(ms / 1_000);
  if (seconds < 60) return amount(seconds, "second");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${amount(minutes, "minute")} ${amount(seconds % 60, "second")}`;
  return `${amount(Math.floor(minutes / 60), "hour")} ${amount(minutes % 60, "minute")}`;
}

export function bytes(size) {
  const units = ["B", "KB", "MB", "GB"];
  let at = 0;
  while (size >= 1_000 && at < units.length - 1) {
    size /= 1_000;
    at += 1;
  }
  return `${number(size, { maximumFractionDigits: size < 10 && at > 0 ? 1 : 0 })} ${units[at]}`;
}
