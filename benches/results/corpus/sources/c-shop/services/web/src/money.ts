export interface Money {
  cents: number;
  currency: "EUR" | "CHF";
}

export function zero(currency: Money["currency"]): Money {
  return { cents: 0, currency };
}

export function add(one: Money, other: Money): Money {
  if (one.currency !== other.currency) throw new TypeError(`${one.currency} and ${other.currency} cannot be added`);
  return { cents: one.cents + other.cents, currency: one.currency };
}

export function multiply(money: Money, factor: number): Money {
  return { cents: Math.round(money.cents * factor), currency: money.currency };
}

/** Formats for the API: "12.90". */
export function format(money: Money): string {
  return (money.cents / 100).toFixed(2);
}

/** Formats for people: "12,90 €". */
export function display(money: Money, locale = "de-DE"): string {
  return new Intl.NumberFormat(locale, { style: "currency", currency: money.currency }).format(money.cents / 100);
}
