import { Cart, CartError } from "./cart";
import { Money, format } from "./money";

export type CheckoutStep = "address" | "shipping" | "payment" | "review" | "done";

export interface Address {
  name: string;
  street: string;
  postcode: string;
  city: string;
  country: string;
}

export interface ShippingMethod {
  id: "standard" | "express" | "pickup";
  price: Money;
  days: [number, number];
}

export class CheckoutError extends Error {
  constructor(
    readonly code: "empty_cart" | "bad_address" | "out_of_stock" | "price_changed" | "payment_failed" | "session_expired",
    message: string,
    readonly retryable = false,
  ) {
    super(message);
    this.name = "CheckoutError";
  }
}

const STEPS: CheckoutStep[] = ["address", "shipping", "payment", "review", "done"];

const POSTCODES: Record<string, RegExp> = {
  DE: /^\d{5}$/,
  AT: /^\d{4}$/,
  CH: /^\d{4}$/,
  NL: /^\d{4} ?[A-Z]{2}$/,
  CN: /^\d{6}$/,
};

/** Orders from this value on are delivered free of charge, except by express. */
export const FREE_SHIPPING_FROM: Money = { cents: 4900, currency: "EUR" };

export function validateAddress(address: Address): string[] {
  const faults: string[] = [];
  if (address.name.trim().length < 2) faults.push("name");
  if (!/\d/.test(address.street)) faults.push("street");
  const pattern = POSTCODES[address.country];
  if (pattern && !pattern.test(address.postcode.trim().toUpperCase())) faults.push("postcode");
  if (!address.city.trim()) faults.push("city");
  return faults;
}

export function shippingMethods(cart: Cart, country: string): ShippingMethod[] {
  const isFree = cart.total().cents >= FREE_SHIPPING_FROM.cents;
  const abroad = country !== "DE";
  const methods: ShippingMethod[] = [
    { id: "standard", price: { cents: isFree ? 0 : abroad ? 990 : 490, currency: "EUR" }, days: abroad ? [4, 7] : [2, 3] },
  ];
  if (!abroad) {
    methods.push({ id: "pickup", price: { cents: 0, currency: "EUR" }, days: [1, 2] });
  }
  // Batteries may not go by air.
  if (!cart.lines.some((line) => line.tags.includes("battery"))) {
    methods.push({ id: "express", price: { cents: abroad ? 2490 : 1290, currency: "EUR" }, days: [1, 1] });
  }
  return methods;
}

export class Checkout {
  step: CheckoutStep = "address";
  address?: Address;
  shipping?: ShippingMethod;
  private key = crypto.randomUUID();

  constructor(
    readonly cart: Cart,
    private readonly api: { post(path: string, body: unknown, headers?: Record<string, string>): Promise<Response> },
  ) {
    if (cart.isEmpty()) throw new CheckoutError("empty_cart", "The cart is empty");
  }

  setAddress(address: Address): void {
    const faults = validateAddress(address);
    if (faults.length > 0) throw new CheckoutError("bad_address", `Please check: ${faults.join(", ")}`);
    this.address = address;
    this.advance("shipping");
  }

  setShipping(id: ShippingMethod["id"]): void {
    const method = shippingMethods(this.cart, this.address!.country).find((one) => one.id === id);
    if (!method) throw new CheckoutError("bad_address", `${id} is not offered there`);
    this.shipping = method;
    this.advance("payment");
  }

  /** What the customer pays, with delivery. */
  total(): Money {
    const goods = this.cart.total();
    return { cents: goods.cents + (this.shipping?.price.cents ?? 0), currency: goods.currency };
  }

  async place(token: string): Promise<string> {
    const body = { lines: this.cart.toJSON(), address: this.address, shipping: this.shipping?.id, total: format(this.total()), token };
    for (let attempt = 1; ; attempt++) {
      const response = await this.api.post("/orders", body, { "Idempotency-Key": this.key });
      if (response.ok) {
        this.step = "done";
        return (await response.json()).id;
      }
      const error = await this.errorOf(response);
      if (!error.retryable || attempt >= 3) throw error;
      await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
    }
  }

  private async errorOf(response: Response): Promise<CheckoutError> {
    switch (response.status) {
      case 401:
        return new CheckoutError("session_expired", "Please sign in again");
      case 409:
        // The price is that of the server. The next try needs a new key, as the body differs.
        this.key = crypto.randomUUID();
        return new CheckoutError("price_changed", "A price has changed since you put the article into the cart");
      case 410: {
        const { sku } = await response.json();
        this.cart.remove(sku);
        return new CheckoutError("out_of_stock", `${sku} is sold out`);
      }
      case 402:
        this.key = crypto.randomUUID();
        return new CheckoutError("payment_failed", "The payment was declined");
      default:
        return new CheckoutError("payment_failed", `The server answered ${response.status}`, response.status >= 500);
    }
  }

  private advance(to: CheckoutStep): void {
    if (STEPS.indexOf(to) > STEPS.indexOf(this.step)) this.step = to;
  }
}

export { CartError };
