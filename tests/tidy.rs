//! Keeps the house in order: who may import whom, no circles, no file over 600 lines, no `unwrap` outside tests.
//! Each failure says which rule was broken and why it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const MAX_LINES: usize = 600;

/// Words that have no place in finished code, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    (".unwrap()", "answer an error; where it cannot happen, `expect` with the reason why"),
    ("todo!", "finish it, or leave it out"),
    ("unimplemented!", "finish it, or leave it out"),
    ("dbg!", "log with tracing"),
];

/// Modules that the agent stands on.
const UNDER_THE_AGENT: &[&str] = &["tools", "memory", "skills", "cron", "postprocess", "guard", "llm", "bus"];
/// The agent: its loop, turns, sessions, and what shortens conversations.
const THE_AGENT: &[&str] = &["agent", "turn", "session", "consolidation"];
/// Modules that put the others together; nobody below imports them.
const ABOVE: &[&str] = &["gateway", "commands", "cli", "main"];
/// What the commands and `main` stand on.
const UNDER_THE_COMMANDS: &[&str] =
    &["gateway", "backup", "config", "control", "query", "home", "logging", "commands", "cli", "text"];
/// What the read models stand on.
const UNDER_THE_QUERIES: &[&str] = &["bus", "chat", "cron", "live", "llm", "memory", "origin", "store"];

/// Why `from` may not import `to`, if it may not.
fn forbidden_arrow(from: &str, to: &str) -> Option<&'static str> {
    let is_command = matches!(from, "commands" | "cli" | "main");
    if from == "store" {
        return Some("`store` imports nothing of ours, so that it can be read and tested alone");
    }
    if from == "metrics" {
        return Some(
            "`metrics` stands at the bottom and imports nothing of ours: whoever counts something hands it over",
        );
    }
    if from == "text" {
        return Some("`text` reads words by rules and imports nothing of ours, so that everybody may ask it");
    }
    if from == "origin" {
        return Some("`origin` is the vocabulary of who started a turn: it imports nothing of ours");
    }
    if from == "chat" && to != "text" {
        return Some("`chat` is the vocabulary that many modules share: it imports nothing of ours but `text`");
    }
    if from == "offline" && !matches!(to, "chat" | "text") {
        return Some("`offline` is a pure function over a conversation: it imports `chat` and `text` alone");
    }
    if UNDER_THE_AGENT.contains(&from) && THE_AGENT.contains(&to) {
        return Some("the agent stands on this module, which therefore never imports it; publish an inbound message");
    }
    if matches!(from, "channel_manager" | "http")
        && (THE_AGENT.contains(&to) || matches!(to, "channel_manager" | "http"))
    {
        return Some(
            "`channel_manager` and `http` stand beside `agent` and speak to it through the bus and the store; \
             neither imports the other",
        );
    }
    if from == "query" && !UNDER_THE_QUERIES.contains(&to) {
        return Some(
            "`query` reads and changes what is below the agent, and does not know who asks: `http` or a command",
        );
    }
    if to == "query" && !matches!(from, "http" | "control") && !ABOVE.contains(&from) {
        return Some("`query` answers `http`, `control`, `gateway` and the commands; nobody else needs it");
    }
    if from == "control" && !matches!(to, "llm" | "query") {
        return Some("`control` sends the requests of `query` to the gateway, and knows nothing of its parts");
    }
    if to == "config" && !ABOVE.contains(&from) {
        return Some("each area owns its `Config`; `config` composes them, and no area imports `config`");
    }
    if ABOVE.contains(&to) && !is_command {
        return Some("only `gateway` constructs; only `commands` and `main` stand on it");
    }
    if is_command && !UNDER_THE_COMMANDS.contains(&to) {
        return Some(
            "`commands` and `main` stand on `gateway`, `config`, `query`, the home and the control socket's client alone",
        );
    }
    None
}

/// `code` with comments, strings and characters blanked out, line by line as it was.
fn strip(code: &str) -> String {
    let chars: Vec<char> = code.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(code.len());
    let mut i = 0;
    while i < chars.len() {
        let end = match (at(i), at(i + 1)) {
            ('/', '/') => (i..chars.len()).find(|j| at(*j) == '\n').unwrap_or(chars.len()),
            ('/', '*') => end_of_comment(&chars, i),
            ('"', _) => end_of_string(&chars, i),
            ('r', '"' | '#') if !ends_in_word(&out) => end_of_raw_string(&chars, i).unwrap_or(i),
            ('\'', '\\') => (i + 3..chars.len()).find(|j| at(*j) == '\'').map_or(chars.len(), |j| j + 1),
            ('\'', _) if at(i + 2) == '\'' => i + 3,
            _ => i,
        };
        if end == i {
            out.push(at(i));
            i += 1;
        }
        while i < end {
            out.push(if at(i) == '\n' { '\n' } else { ' ' });
            i += 1;
        }
    }
    out
}

/// Whether an `r` that follows is the end of a name rather than the beginning of a raw string.
fn ends_in_word(text: &str) -> bool {
    let word = text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
    !matches!(word, None | Some("" | "b" | "c"))
}

fn end_of_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut i = start;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    i
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

/// The end of a raw string that begins at `start`; `None` when none does.
fn end_of_raw_string(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: &usize| chars[*i] == '"' && chars[i + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some((open + 1..chars.len()).find(closes).map_or(chars.len(), |i| i + 1 + hashes))
}

/// Stripped code without the items under `#[cfg(test)]`, their lines kept empty.
fn without_tests(stripped: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::new();
    let mut rest = stripped;
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        let mut depth = 0_usize;
        let end = item.char_indices().skip(MARK.len()).find_map(|(i, c)| {
            depth = match c {
                '{' => depth + 1,
                '}' => depth.saturating_sub(1),
                _ => depth,
            };
            (depth == 0 && matches!(c, '}' | ';')).then_some(i + 1)
        });
        let end = end.unwrap_or(item.len());
        out.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    out + rest
}

/// The top-level modules that stripped code names, by `crate::`, `daoyou::` or enough `super::`, with their lines.
/// `depth` is how far below the root the file's module is.
fn imports(stripped: &str, depth: usize) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let roots = ["crate::".to_owned(), "daoyou::".to_owned(), "super::".repeat(depth)];
    for root in roots.iter().filter(|root| !root.is_empty()) {
        for (at, _) in stripped.match_indices(root.as_str()) {
            let before = stripped[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' || before == ':' || before == '$' {
                continue;
            }
            let line = stripped[..at].matches('\n').count() + 1;
            for module in first_names(&stripped[at + root.len()..]) {
                found.entry(module).or_insert(line);
            }
        }
    }
    found
}

/// The first name of a path, or those of a group: `a::b` is `a`, `{a::{b, c}, d}` is `a` and `d`.
fn first_names(path: &str) -> Vec<String> {
    let name =
        |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut names = vec![name(group)];
    let mut depth = 1_usize;
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(name(&group[i + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// A circle in the graph, as the names along it.
fn circle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit<'a>(
        node: &'a str,
        graph: &'a BTreeMap<String, BTreeSet<String>>,
        path: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|seen| *seen == node) {
            return Some(path[start..].iter().chain([&node]).map(ToString::to_string).collect());
        }
        if !done.contains(node) {
            path.push(node);
            let found = graph.get(node).into_iter().flatten().find_map(|next| visit(next, graph, path, done));
            if found.is_some() {
                return found;
            }
            path.pop();
            done.insert(node);
        }
        None
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|node| visit(node, graph, &mut Vec::new(), &mut done))
}

/// Every Rust file under `folder`, in order.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|fault| panic!("{}: {fault}", folder.display())) {
            let path = entry.expect("an entry of a folder that is there").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Test code that is a file of its own: by its name or folder, or by a neighbour's `#[cfg(test)] mod NAME;`.
fn is_test_file(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let folder = path.parent().unwrap_or(path);
    stem == "tests"
        || stem.ends_with("_tests")
        || path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "conformance")
        || rust_files(folder)
            .iter()
            .filter(|file| file.parent() == Some(folder))
            .any(|file| declares_test_module(&fs::read_to_string(file).expect("a file that was listed"), stem))
}

/// Whether `code` holds `#[cfg(test)] mod NAME;`.
fn declares_test_module(code: &str, name: &str) -> bool {
    let declared = |item: &str| item.split_once(';').is_some_and(|(head, _)| head.ends_with(&format!("mod {name}")));
    code.split("#[cfg(test)]").skip(1).any(declared)
}

/// The parts of a file's module path below `src`: `src/agent/turn.rs` is `agent`, `turn`.
fn module_path(file: &Path) -> Vec<String> {
    let below = file.strip_prefix(root().join("src")).expect("a file of src").with_extension("");
    let mut parts: Vec<_> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|part| part == "mod") {
        parts.pop();
    }
    parts
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn modules_import_only_what_they_may() {
    let mut faults = Vec::new();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let files: Vec<_> = rust_files(&root().join("src")).into_iter().filter(|file| !is_test_file(file)).collect();
    let tops: BTreeSet<String> = files.iter().filter_map(|file| module_path(file).into_iter().next()).collect();
    for file in &files {
        let path = module_path(file);
        let from = path.first().map_or("", String::as_str);
        if from == "lib" {
            continue;
        }
        let code = without_tests(&strip(&fs::read_to_string(file).expect("a file that was listed")));
        for (to, line) in imports(&code, path.len()) {
            if to == from || !tops.contains(&to) {
                continue;
            }
            graph.entry(from.to_owned()).or_default().insert(to.clone());
            if let Some(why) = forbidden_arrow(from, &to) {
                faults.push(format!("{}:{line}: `{from}` imports `{to}`: {why}", shown(file)));
            }
        }
    }
    if let Some(circle) = circle(&graph) {
        let circle = circle.join(" -> ");
        faults
            .push(format!("modules import each other in a circle: {circle}; let one publish, or move what both need"));
    }
    for file in rust_files(&root().join("channels")) {
        let code = strip(&fs::read_to_string(&file).expect("a file that was listed"));
        if code.contains("daoyou::") {
            faults.push(format!("{}: `daoyou-channels` imports nothing of ours", shown(&file)));
        }
    }
    report(&faults);
}

#[test]
fn files_stay_short() {
    let mut faults = Vec::new();
    for folder in ["src", "channels", "tests", "benches", "xtask"] {
        for file in rust_files(&root().join(folder)) {
            let lines = fs::read_to_string(&file).expect("a file that was listed").lines().count();
            if lines > MAX_LINES {
                faults.push(format!(
                    "{}: {lines} lines, at most {MAX_LINES}: it has more than one subject, so split it there",
                    shown(&file)
                ));
            }
        }
    }
    report(&faults);
}

#[test]
fn code_is_finished_and_does_not_panic_lightly() {
    let mut faults = Vec::new();
    for folder in ["src", "channels", "xtask/src"] {
        for file in rust_files(&root().join(folder)).into_iter().filter(|file| !is_test_file(file)) {
            let code = without_tests(&strip(&fs::read_to_string(&file).expect("a file that was listed")));
            for (number, line) in code.lines().enumerate() {
                for (word, instead) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
                    faults.push(format!("{}:{}: `{word}`: {instead}", shown(&file), number + 1));
                }
            }
        }
    }
    report(&faults);
}

/// Where a process may write to its own standard output or error, and why.
const PRINTERS: &[(&str, &str)] = &[
    ("src/commands/output.rs", "cleans what commands print"),
    ("src/logging.rs", "cleans what is logged"),
    ("src/guard/output_pump.rs", "is the supervisor of a command: its output is read by the gateway"),
    ("src/guard/supervisor.rs", "is the supervisor of a command"),
    ("src/guard/confine.rs", "becomes the command"),
    ("channels/cli/console.rs", "is the screen of a chat, whose painter cleans"),
    ("channels/cli/readline.rs", "is the line editor of a chat"),
    ("channels/cli/screen.rs", "measures the screen"),
];

#[test]
fn everything_is_printed_through_one_place() {
    const WORDS: [&str; 7] = ["stdout()", "stderr()", "println!", "eprintln!", "print!", "eprint!", "/dev/tty"];
    let mut faults = Vec::new();
    for folder in ["src", "channels"] {
        for file in rust_files(&root().join(folder)).into_iter().filter(|file| !is_test_file(file)) {
            let shown = shown(&file);
            if PRINTERS.iter().any(|(printer, _)| *printer == shown) {
                continue;
            }
            let code = without_tests(&strip(&fs::read_to_string(&file).expect("a file that was listed")));
            for (number, line) in code.lines().enumerate() {
                let others = line.replace("output::std", "").replace("error.use_stderr()", "");
                if WORDS.iter().any(|word| others.contains(word)) {
                    faults.push(format!(
                        "{shown}:{}: commands print through commands/output.rs alone, which takes terminal escapes out",
                        number + 1
                    ));
                }
            }
        }
    }
    report(&faults);
    for (printer, _) in PRINTERS {
        assert!(root().join(printer).is_file(), "{printer} is gone");
    }
}

/// What a caller shows is compared with a secret in a time that does not tell how much of it was right.
#[test]
fn secrets_are_compared_in_constant_time() {
    const COMPARE: [&str; 5] = ["==", "!=", ".eq(", ".ne(", "matches!"];
    let mut faults = Vec::new();
    let mut compared = 0;
    for file in ["src/http", "channels/webhook"].iter().flat_map(|folder| rust_files(&root().join(folder))) {
        if is_test_file(&file) {
            continue;
        }
        let code = without_tests(&strip(&std::fs::read_to_string(&file).unwrap()));
        compared += code.matches(".ct_eq(").count();
        for (number, line) in code.lines().enumerate() {
            if line.contains("expose()") && COMPARE.iter().any(|compare| line.contains(compare)) {
                faults.push(format!("{}:{}: compares a secret; use ct_eq", shown(&file), number + 1));
            }
        }
    }
    assert!(compared >= 3, "tokens, and two kinds of webhooks: {compared}");
    report(&faults);
}

#[test]
fn the_reader_of_these_rules_reads_right() {
    let code = r##"
use crate::store::{Store, Row};
use crate::{bus::{Bus, Queue}, llm};
// use crate::agent; x.unwrap()
/* crate::http /* nested */ crate::gateway */
const A: &str = "crate::cron \" todo!()";
const B: &str = r#"crate::memory " "#;
fn quote<'a>(x: &'a str) -> char { let _ = '"'; let _ = '\''; super::super::skills::load(); '{' }
#[cfg(test)]
mod tests { use crate::guard; fn f() { x.unwrap(); } }
fn last() { other_crate::a(); crate::tools::run() }
"##;
    let code = without_tests(&strip(code));
    let found: Vec<_> = imports(&code, 2).into_keys().collect();
    assert_eq!(found, ["bus", "llm", "skills", "store", "tools"]);
    assert_eq!(imports(&code, 2)["tools"], 11, "lines are those of the file");
    assert!(!code.contains("unwrap"));
    assert!(declares_test_module("mod a;\n#[cfg(test)]\npub(crate) mod fake;\nmod b;", "fake"));
    assert!(!declares_test_module("mod fake;\n#[cfg(test)]\nmod tests;\nmod b;", "fake"));

    let edges = |list: &[(&str, &[&str])]| {
        list.iter().map(|(from, to)| ((*from).to_owned(), to.iter().map(|to| (*to).to_owned()).collect())).collect()
    };
    assert_eq!(circle(&edges(&[("a", &["b", "c"]), ("b", &["c"])])), None);
    let found = circle(&edges(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]));
    assert_eq!(found, Some(vec!["b".to_owned(), "c".to_owned(), "b".to_owned()]));

    let table = [
        ("store", "bus", false),
        ("store", "metrics", false),
        ("metrics", "store", false),
        ("text", "llm", false),
        ("chat", "llm", false),
        ("chat", "text", true),
        ("offline", "llm", false),
        ("offline", "chat", true),
        ("cron", "text", true),
        ("llm", "text", true),
        ("bus", "metrics", true),
        ("agent", "store", true),
        ("tools", "agent", false),
        ("cron", "turn", false),
        ("http", "session", false),
        ("session", "turn", true),
        ("http", "channel_manager", false),
        ("http", "bus", true),
        ("http", "query", true),
        ("control", "query", true),
        ("control", "http", false),
        ("query", "store", true),
        ("query", "http", false),
        ("query", "agent", false),
        ("bus", "query", false),
        ("llm", "config", false),
        ("gateway", "config", true),
        ("gateway", "agent", true),
        ("agent", "gateway", false),
        ("commands", "gateway", true),
        ("commands", "agent", false),
    ];
    for (from, to, allowed) in table {
        assert_eq!(forbidden_arrow(from, to).is_none(), allowed, "{from} -> {to}");
    }
}
