// Code blocks: a copy button, and colours for the few kinds of token that nearly all languages share.

import { html, useMemo } from "./lib.js";
import { CopyButton } from "./ui.js";
import { t } from "./i18n.js";

/** Longer code has no colours. In characters. */
const LIMIT = 50_000;
/** What comes after this many pieces has no colours. */
const PIECES = 5_000;

const KEYWORDS = {
  c: "auto bool break case catch char class const constexpr continue default delete do double else enum explicit extern false float for friend if include inline int long namespace new nullptr operator private protected public return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void volatile while",
  go: "break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var",
  java: "abstract boolean break byte case catch char class const continue default do double else enum extends final finally float for if implements import instanceof int interface long new null package private protected public record return short static super switch this throw throws true false try var void while",
  js: "as async await break case catch class const continue debugger default delete do else export extends false finally for from function if import in instanceof interface let new null of return static super switch this throw true try type typeof undefined var void while yield",
  python:
    "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return self True try while with yield match case",
  rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
  shell: "if then else elif fi for in do done while until case esac function return export local set unset cd echo sudo exit source",
  sql: "select from where and or not insert into values update set delete create table index view drop alter join left right inner outer on group by order having limit offset as distinct union all null is in like between case when then else end primary key references default with",
  data: "true false null yes no on off",
};

const ALIASES = {
  "c++": "c",
  cpp: "c",
  h: "c",
  hpp: "c",
  cs: "java",
  csharp: "java",
  kotlin: "java",
  kt: "java",
  swift: "java",
  scala: "java",
  php: "js",
  javascript: "js",
  jsx: "js",
  mjs: "js",
  ts: "js",
  tsx: "js",
  typescript: "js",
  py: "python",
  rs: "rust",
  golang: "go",
  rb: "python",
  ruby: "python",
  sh: "shell",
  bash: "shell",
  zsh: "shell",
  console: "shell",
  dockerfile: "shell",
  make: "shell",
  json: "data",
  jsonc: "data",
  yaml: "data",
  yml: "data",
  toml: "data",
  ini: "data",
};

const HASH_COMMENTS = new Set(["python", "shell", "data"]);

const rules = new Map();

/** Returns the expression that splits a language into comments, strings, numbers and words; null if it is unknown. */
function rule(language) {
  const name = ALIASES[language] ?? language;
  if (!Object.hasOwn(KEYWORDS, name)) return null;
  if (!rules.has(name)) {
    const comment = name === "sql" ? "--[^\\n]*" : HASH_COMMENTS.has(name) ? "#[^\\n]*" : "//[^\\n]*|/\\*[^]*?(?:\\*/|$)";
    const string =
      "\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?" + (name === "js" || name === "go" ? "|`(?:\\\\.|[^`\\\\])*`?" : "");
    // A lifetime of Rust, and an apostrophe in a comment of the shell, begin no string.
    const quoted = name === "rust" ? "\"(?:\\\\.|[^\"\\\\])*\"?|'(?:\\\\.|[^'\\\\])'" : string;
    const expression = new RegExp(`(${comment})|(${quoted})|(\\b\\d[\\w.]*)|([A-Za-z_$][\\w$]*)`, "g");
    const words = new Set(KEYWORDS[name].split(" "));
    rules.set(name, { expression, has: name === "sql" ? (word) => words.has(word.toLowerCase()) : (word) => words.has(word) });
  }
  return rules.get(name);
}

/** Returns the pieces of a code: plain strings, and `{kind, text}` for what has a colour. */
export function highlight(text, language) {
  if (text.length > LIMIT) return [text];
  if (language === "diff" || language === "patch") return diffPieces(text);
  const found = rule(language);
  if (!found) return [text];
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(found.expression)) {
    const [whole, comment, string, digits, word] = match;
    const kind = comment ? "comment" : string ? "string" : digits ? "number" : found.has(word) ? "keyword" : null;
    if (kind === null) continue;
    if (match.index > end) pieces.push(text.slice(end, match.index));
    pieces.push({ kind, text: whole });
    end = match.index + whole.length;
    if (pieces.length >= PIECES) break;
  }
  pieces.push(text.slice(end));
  return pieces;
}

function diffPieces(text) {
  const lines = text.split(/(?<=\n)/);
  const rest = lines.splice(PIECES).join("");
  return [...lines.map(diffLine), rest];
}

function diffLine(text) {
  if (text.startsWith("+")) return { kind: "added", text };
  if (text.startsWith("-")) return { kind: "removed", text };
  return text.startsWith("@@") ? { kind: "comment", text } : text;
}

/** Returns the elements of the pieces of a code. */
export const pieceNodes = (pieces) =>
  pieces.map((piece) => (typeof piece === "string" ? piece : html`<span class=${`code-${piece.kind}`}>${piece.text}</span>`));

/** Code with its language and a button that copies it. While it streams it has no colours, which would be computed for each token. */
export function CodeBlock({ text, language = "", isStreaming = false }) {
  const name = language.trim().split(/\s/)[0].toLowerCase();
  const pieces = useMemo(() => (isStreaming ? [text] : highlight(text, name)), [text, name, isStreaming]);
  const label = name ? t("code.of", { language: name }) : t("code.plain");
  return html`<div class="code-block">
    <div class="code-head"><span>${name}</span><${CopyButton} text=${text} /></div>
    <pre tabindex="0" role="group" aria-label=${label}><code>${pieceNodes(pieces)}</code></pre>
  </div>`;
}
