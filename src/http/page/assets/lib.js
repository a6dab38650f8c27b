// The rendering library in one place: preact with hooks, and htm's templates instead of JSX, so that there is no build step.

import { Component, Fragment, h, render } from "./vendor/preact.js";
import { useEffect, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export { Fragment, render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export const html = htm.bind(h);

/** Returns groups of a list in the order in which they begin: `[key, items][]`. */
export function groupBy(list, keyOf) {
  const groups = new Map();
  for (const item of list) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return [...groups];
}

/** Returns a value once it has not changed for `delay` milliseconds; until then the one before, at first `initial`. */
export function useSettled(value, delay, initial) {
  const [settled, setSettled] = useState(initial);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** Returns the component, which renders again only when `isSame` says that its properties changed. */
export function memo(component, isSame) {
  return class Memo extends Component {
    shouldComponentUpdate(next) {
      return !isSame(this.props, next);
    }

    render(props) {
      return h(component, props);
    }
  };
}
