// Markdown as virtual nodes. Text of a model never becomes HTML: marked only splits it into tokens, and every token becomes an element
// that is named here. HTML in the text is shown as it was written.

import { Lexer } from "./vendor/marked.js";
import { html, useMemo } from "./lib.js";
import { CodeBlock } from "./highlight.js";
import { t } from "./i18n.js";

/** Longer texts are shown without formatting. In characters. */
const TEXT_LIMIT = 200_000;
/** Quotes and lists that are nested deeper are shown as they were written. */
const DEPTH_LIMIT = 12;
/** The work on the inside of paragraphs grows with the square of their length; this bounds its sum. */
const INLINE_BUDGET = 40_000_000;
const TABLE_CELLS = 5_000;

/** marked's lexer with bounds: what exceeds them stays text. */
class BoundedLexer extends Lexer {
  depth = 0;
  budget = INLINE_BUDGET;

  blockTokens(source, tokens = [], isClipped = false) {
    if (this.depth >= DEPTH_LIMIT) {
      tokens.push({ type: "paragraph", raw: source, text: source, tokens: [{ type: "text", raw: source, text: source }] });
      return tokens;
    }
    this.depth += 1;
    try {
      return super.blockTokens(source, tokens, isClipped);
    } finally {
      this.depth -= 1;
    }
  }

  inlineTokens(source, tokens = []) {
    this.budget -= source.length ** 2;
    if (this.budget < 0) {
      tokens.push({ type: "text", raw: source, text: source });
      return tokens;
    }
    return super.inlineTokens(source, tokens);
  }
}

/** Returns the tokens of a text, or null if it is to be shown as it is. */
export function tokenize(text) {
  if (text.length > TEXT_LIMIT) return null;
  try {
    return new BoundedLexer({ gfm: true, breaks: true }).lex(text);
  } catch (error) {
    console.debug("markdown:", error.message);
    return null;
  }
}

/** A text in Markdown. `isStreaming`: more will follow, so an open code fence is not yet finished. */
export function Markdown({ text, isStreaming = false }) {
  const tokens = useMemo(() => tokenize(text), [text]);
  if (tokens === null) return html`<div class="prose plain">${text}</div>`;
  return html`<div class="prose">${tokens.map((token, at) => html`<${Block} key=${at} token=${token} isStreaming=${isStreaming} />`)}</div>`;
}

/** A block, rendered again only when its source changes: while an answer streams, that is the last one. */
function Block({ token, isStreaming }) {
  return useMemo(() => block(token, isStreaming), [token.raw, token.type, isStreaming && token.type === "code"]);
}

const blocks = (tokens = [], isStreaming) => tokens.map((token) => block(token, isStreaming));

function block(token, isStreaming) {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      // The page has its own first and second heading.
      const tag = `h${Math.min(token.depth + 2, 6)}`;
      return html`<${tag} class=${`heading-${token.depth}`}>${inlines(token.tokens)}<//>`;
    }
    case "paragraph":
      return html`<p>${inlines(token.tokens)}</p>`;
    case "text":
      return token.tokens ? inlines(token.tokens) : entities(token.text);
    case "code":
      return html`<${CodeBlock} text=${token.text} language=${token.lang ?? ""} isStreaming=${isStreaming} />`;
    case "blockquote":
      return html`<blockquote>${blocks(token.tokens, isStreaming)}</blockquote>`;
    case "list":
      return list(token, isStreaming);
    case "hr":
      return html`<hr />`;
    case "table":
      return table(token);
    case "html":
      return html`<p class="source">${token.raw.trim()}</p>`;
    case "checkbox":
      return html`<input type="checkbox" checked=${token.checked} disabled aria-label=${t(token.checked ? "markdown.done" : "markdown.open")} />`;
    default:
      return token.raw;
  }
}

function list(token, isStreaming) {
  const items = token.items.map((item) => html`<li class=${item.task ? "task" : ""}>${blocks(item.tokens, isStreaming)}</li>`);
  if (!token.ordered) return html`<ul>${items}</ul>`;
  return html`<ol start=${token.start === 1 ? undefined : token.start}>${items}</ol>`;
}

function table({ header, rows, raw }) {
  if (header.length * (rows.length + 1) > TABLE_CELLS) return html`<pre class="source">${raw}</pre>`;
  const cell = (tag) => (one) => html`<${tag} class=${one.align ? `align-${one.align}` : ""}>${inlines(one.tokens)}<//>`;
  return html`<div class="table-scroll" tabindex="0" role="group" aria-label=${t("markdown.table")}>
    <table>
      <thead><tr>${header.map(cell("th"))}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map(cell("td"))}</tr>`)}</tbody>
    </table>
  </div>`;
}

const inlines = (tokens = []) => tokens.map(inline);

function inline(token) {
  switch (token.type) {
    case "text":
      return token.tokens ? inlines(token.tokens) : entities(token.text);
    case "escape":
      return token.text;
    case "strong":
      return html`<strong>${inlines(token.tokens)}</strong>`;
    case "em":
      return html`<em>${inlines(token.tokens)}</em>`;
    case "del":
      return html`<del>${inlines(token.tokens)}</del>`;
    case "codespan":
      return html`<code>${token.text}</code>`;
    case "br":
      return html`<br />`;
    case "link":
      return link(token.href, inlines(token.tokens), token.raw);
    case "image":
      return image(token);
    case "checkbox":
      return block(token);
    default:
      return token.raw;
  }
}

/** Returns an address that may be followed, or null. */
function safeAddress(href) {
  let url;
  try {
    url = new URL(entities(href));
  } catch {
    return null;
  }
  return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
}

function link(href, content, raw) {
  const address = safeAddress(href);
  // A relative address has no meaning here, and any other scheme is none that a click may start.
  if (address === null) return raw;
  return html`<a href=${address} target="_blank" rel="noopener noreferrer">${content}</a>`;
}

/** Pictures of the gateway are shown. Those from elsewhere are links: loading one would tell its server who reads it, and when. */
function image({ href, text, raw }) {
  if (/^\/api\/files\/[\w-]+$/.test(href)) return html`<img class="picture" src=${href} alt=${text} loading="lazy" />`;
  return link(href, html`<span class="picture-link">${text || t("markdown.picture")}</span>`, raw);
}

const NAMED = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: " ", copy: "©", hellip: "…", mdash: "—", ndash: "–" };

/** Replaces character references, which Markdown takes from HTML. The result is still text. */
export function entities(text) {
  return text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(\w{2,8}));/gi, (whole, decimal, hex, name) => {
    if (name) return Object.hasOwn(NAMED, name) ? NAMED[name] : whole;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000) ? String.fromCodePoint(code) : whole;
  });
}
