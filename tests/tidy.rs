//! Checks the layout and style of the sources: permitted imports between modules, no import cycles, no file over 600 lines,
//! no `unwrap` outside tests. Each failure names the broken rule and its reason.

mod graph;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use graph::Graph;
use source::{declares_test_module, module_path, production_code, root, rust_files, shown, strip, without_tests};

const MAX_LINES: usize = 600;

/// The words that finished code must not contain, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    (".unwrap()", "answer an error; where it cannot happen, `expect` with the reason why"),
    ("todo!", "finish it, or leave it out"),
    ("unimplemented!", "finish it, or leave it out"),
    ("dbg!", "log with tracing"),
];

/// Modules below the agent.
const UNDER_THE_AGENT: &[&str] = &["tools", "memory", "skills", "mcp", "cron", "postprocess", "guard", "llm", "bus"];
/// The agent: its loop, turns, sessions, and consolidation.
const THE_AGENT: &[&str] = &["agent", "turn", "session", "consolidation"];
/// The modules that compose the others. No lower module imports them.
const ABOVE: &[&str] = &["gateway", "commands", "cli", "main"];
/// Modules that the commands and `main` may import.
const UNDER_THE_COMMANDS: &[&str] =
    &["gateway", "backup", "config", "control", "query", "home", "logging", "commands", "cli", "text"];
/// Modules that the read models may import.
const UNDER_THE_QUERIES: &[&str] =
    &["bus", "chat", "cron", "live", "llm", "memory", "origin", "store", "text", "tools"];

/// Returns the reason why `from` may not import `to`; `None` if it may.
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
    if from == "control" && !matches!(to, "home" | "llm" | "sse" | "query") {
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

/// Returns the top-level modules that stripped code names by `crate::`, `daoyou::` or enough `super::`, with their lines.
/// `depth` is the depth of the file's module below the root.
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

/// Returns the first name of a path, or the first names in a group: `a::b` gives `a`, `{a::{b, c}, d}` gives `a` and `d`.
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

/// Returns a cycle in the graph, as the names along it.
fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
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

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn modules_import_only_what_they_may() {
    let mut faults = Vec::new();
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let files = production_code("src");
    let tops: BTreeSet<String> =
        files.iter().filter_map(|(file, _)| module_path(file, "src").into_iter().next()).collect();
    for (file, code) in &files {
        let path = module_path(file, "src");
        let Some(from) = path.first() else { continue };
        for (to, line) in imports(code, path.len()) {
            if to == *from || !tops.contains(&to) {
                continue;
            }
            modules.entry(from.clone()).or_default().insert(to.clone());
            if let Some(why) = forbidden_arrow(from, &to) {
                faults.push(format!("{}:{line}: `{from}` imports `{to}`: {why}", shown(file)));
            }
        }
    }
    if let Some(cycle) = cycle(&modules) {
        let cycle = cycle.join(" -> ");
        faults.push(format!("modules import each other in a cycle: {cycle}; let one publish, or move what both need"));
    }
    for file in rust_files(&root().join("channels")) {
        let code = strip(&fs::read_to_string(&file).expect("a file that was listed"));
        if code.contains("daoyou::") {
            faults.push(format!("{}: `daoyou-channels` imports nothing of ours", shown(&file)));
        }
    }
    report(&faults);
}

/// The crates whose files are checked, each with its folder and the names by which its own files refer to it.
const CRATES: &[(&str, &[&str])] = &[("src", &["daoyou"]), ("channels", &["daoyou_channels"])];

/// The files under [`SMALL_FILE`] lines with a single importer that stay separate for now. This list must only shrink.
const SMALL_FILES: &[&str] = &[];

/// The number of lines below which a file belongs into its importer, if it has only one.
const SMALL_FILE: usize = 60;

fn crate_graph(folder: &str, crate_names: &[&str]) -> Graph {
    let files = production_code(folder).into_iter();
    Graph::new(files.map(|(file, code)| (shown(&file), module_path(&file, folder), code)), crate_names)
}

#[test]
fn no_files_import_each_other_in_a_cycle() {
    let mut faults = Vec::new();
    for (folder, crate_names) in CRATES {
        faults.extend(crate_graph(folder, crate_names).cycles());
    }
    report(&faults);
}

#[test]
fn small_files_have_more_than_one_importer() {
    let mut faults = Vec::new();
    let mut exceptions: BTreeSet<&str> = SMALL_FILES.iter().copied().collect();
    for (folder, crate_names) in CRATES {
        for (file, importer) in crate_graph(folder, crate_names).single_importers() {
            let code = fs::read_to_string(root().join(file)).expect("a file that was listed");
            let lines = code.lines().count();
            let is_root = file.ends_with("/mod.rs") || file.ends_with("/lib.rs") || file.ends_with("/main.rs");
            if lines < SMALL_FILE && !is_root && !exceptions.remove(file) {
                faults.push(format!("{file}: {lines} lines, used by {importer} alone: it belongs there"));
            }
        }
    }
    let stale = exceptions.iter();
    faults.extend(
        stale.map(|file| format!("{file}: no small file with a single importer any more: remove this exception")),
    );
    report(&faults);
}

/// The type names that several modules use, qualified by the module's name, as Rust programs do.
const SHARED_TYPE_NAMES: &[&str] = &["Config", "Error"];

/// A name with two meanings costs every reader. Test and benchmark crates are not checked.
#[test]
fn type_names_are_unique() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in ["src", "channels", "xtask/src"] {
        for (file, code) in production_code(folder) {
            for (number, name) in declared_types(&code) {
                places.entry(name.to_owned()).or_default().push(format!("{}:{number}", shown(&file)));
            }
        }
    }
    let repeated: BTreeMap<_, _> = places.into_iter().filter(|(_, places)| places.len() > 1).collect();
    let faults = repeated.iter().filter(|(name, _)| !SHARED_TYPE_NAMES.contains(&name.as_str()));
    let mut faults: Vec<_> = faults
        .map(|(name, places)| format!("{name}: {}: each type has a name of its own", places.join(", ")))
        .collect();
    let stale = SHARED_TYPE_NAMES.iter().skip(2).filter(|name| !repeated.contains_key(**name));
    faults.extend(stale.map(|name| format!("{name}: unique by now: remove this exception")));
    report(&faults);
}

/// Returns the types that `code` declares outside of functions and implementations, with their lines.
fn declared_types(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let line = line.strip_prefix("pub").map_or(line, |rest| {
            rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest).trim_start()
        });
        let Some((word, rest)) = line.split_once(' ') else { continue };
        if ["struct", "enum", "trait", "union", "type"].contains(&word) {
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            found.push((number + 1, name));
        }
    }
    found
}

#[test]
fn declared_types_are_found() {
    let code = "pub struct A<T>(T);\nenum B {\n    C,\n}\npub(super) trait D: Send {\n    type Of;\n}\npub type E = A;\nimpl F {}\nfn type_of() {}";
    let found: Vec<_> = declared_types(code).into_iter().map(|(_, name)| name).collect();
    assert_eq!(found, ["A", "B", "D", "E"]);
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
fn production_code_has_no_unwrap_or_placeholder() {
    let mut faults = Vec::new();
    for folder in ["src", "channels", "xtask/src"] {
        for (file, code) in production_code(folder) {
            for (number, line) in code.lines().enumerate() {
                for (word, instead) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
                    faults.push(format!("{}:{}: `{word}`: {instead}", shown(&file), number + 1));
                }
            }
        }
    }
    report(&faults);
}

/// The files that may write to the process's standard output or error, each with the reason.
const PRINTERS: &[(&str, &str)] = &[
    ("src/commands/output.rs", "cleans what commands print"),
    ("src/logging.rs", "cleans what is logged"),
    ("src/guard/output_pump.rs", "is the supervisor of a command: its output is read by the gateway"),
    ("src/guard/supervisor.rs", "is the supervisor of a command"),
    ("src/guard/confine.rs", "becomes the command"),
    ("src/tools/documents/extract.rs", "is a process of its own: its output is read by the gateway"),
    ("channels/cli/console.rs", "is the screen of a chat, whose painter cleans"),
    ("channels/cli/readline.rs", "is the line editor of a chat"),
    ("channels/cli/screen.rs", "measures the screen"),
];

#[test]
fn everything_is_printed_through_the_output_module() {
    const WORDS: [&str; 7] = ["stdout()", "stderr()", "println!", "eprintln!", "print!", "eprint!", "/dev/tty"];
    let mut faults = Vec::new();
    for folder in ["src", "channels"] {
        for (file, code) in production_code(folder) {
            let shown = shown(&file);
            if PRINTERS.iter().any(|(printer, _)| *printer == shown) {
                continue;
            }
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

/// Secrets are compared with input in constant time, so that the timing does not reveal how much was correct.
#[test]
fn secrets_are_compared_in_constant_time() {
    const COMPARE: [&str; 5] = ["==", "!=", ".eq(", ".ne(", "matches!"];
    let mut faults = Vec::new();
    let mut compared = 0;
    for (file, code) in ["src/http", "channels/webhook"].iter().flat_map(|folder| production_code(folder)) {
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
fn comments_literals_and_tests_are_no_code() {
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
}

#[test]
fn a_cycle_of_modules_is_found() {
    let edges = |list: &[(&str, &[&str])]| {
        list.iter().map(|(from, to)| ((*from).to_owned(), to.iter().map(|to| (*to).to_owned()).collect())).collect()
    };
    assert_eq!(cycle(&edges(&[("a", &["b", "c"]), ("b", &["c"])])), None);
    let found = cycle(&edges(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]));
    assert_eq!(found, Some(vec!["b".to_owned(), "c".to_owned(), "b".to_owned()]));
}

#[test]
fn arrows_between_modules_follow_the_table() {
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
