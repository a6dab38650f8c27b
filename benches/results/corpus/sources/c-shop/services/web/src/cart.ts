import { Money, add, multiply, zero } from "./money";

export interface CartLine {
  sku: string;
  title: string;
  price: Money;
  quantity: number;
  tags: string[];
}

export class CartError extends Error {}

/** The most pieces of one article. */
export const MAX_QUANTITY = 20;
const MAX_LINES = 100;
const STORAGE_KEY = "shop.cart.v3";

export class Cart {
  lines: CartLine[] = [];
  private listeners = new Set<() => void>();

  static load(storage: Storage): Cart {
    const cart = new Cart();
    try {
      cart.lines = JSON.parse(storage.getItem(STORAGE_KEY) ?? "[]");
    } catch {
      // A cart of an older release, or one that somebody has edited.
      storage.removeItem(STORAGE_KEY);
    }
    return cart;
  }

  save(storage: Storage): void {
    storage.setItem(STORAGE_KEY, JSON.stringify(this.lines));
  }

  add(line: Omit<CartLine, "quantity">, quantity = 1): void {
    const known = this.lines.find((one) => one.sku === line.sku);
    const wanted = (known?.quantity ?? 0) + quantity;
    if (wanted > MAX_QUANTITY) throw new CartError(`at most ${MAX_QUANTITY} pieces of one article`);
    if (known) {
      known.quantity = wanted;
    } else if (this.lines.length >= MAX_LINES) {
      throw new CartError("the cart is full");
    } else {
      this.lines.push({ ...line, quantity });
    }
    this.changed();
  }

  remove(sku: string): void {
    this.lines = this.lines.filter((line) => line.sku !== sku);
    this.changed();
  }

  total(): Money {
    return this.lines.reduce((sum, line) => add(sum, multiply(line.price, line.quantity)), zero("EUR"));
  }

  isEmpty(): boolean {
    return this.lines.length === 0;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  toJSON(): { sku: string; quantity: number }[] {
    return this.lines.map(({ sku, quantity }) => ({ sku, quantity }));
  }

  private changed(): void {
    for (const listener of this.listeners) listener();
  }
}
