//! Finds which file uses which: resolves `use` trees and inline paths through modules and re-exports to the file that defines the item.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The maximum number of re-exports to follow for one path.
const MAX_REEXPORTS: usize = 12;

/// The keywords before the name of an item.
const ITEM_KEYWORDS: &[&str] =
    &["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mut", "macro_rules"];

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    /// `::`
    Colons,
    Other(char),
}

/// One leaf of a `use` tree.
struct Import {
    /// The name in this file; `*` for a glob.
    name: String,
    path: Vec<String>,
    is_public: bool,
    line: usize,
}

/// A path in the code outside of `use`.
struct InlinePath {
    path: Vec<String>,
    line: usize,
}

/// The declarations and paths of one file. Paths are absolute, from the root of the crate, where that is possible.
#[derive(Default)]
struct Unit {
    file: String,
    module: Vec<String>,
    items: BTreeSet<String>,
    /// The names in the code outside of `use`. They show whether the file itself needs a re-export.
    names: BTreeSet<String>,
    imports: Vec<Import>,
    paths: Vec<InlinePath>,
}

/// The files of one crate, and the uses between them.
pub struct Graph {
    units: Vec<Unit>,
    modules: BTreeMap<Vec<String>, usize>,
    /// For each file, the files that it uses, with the line of the first use.
    edges: Vec<BTreeMap<usize, usize>>,
}

impl Graph {
    /// Builds the graph of a crate from its files: path, module path, and code without comments, literals and tests.
    /// `crate_names` are the names, besides `crate`, by which the crate refers to itself.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<String>, String)>, crate_names: &[&str]) -> Self {
        let units: Vec<Unit> =
            files.into_iter().map(|(file, module, code)| read_unit(file, module, &code, crate_names)).collect();
        let modules = units.iter().enumerate().map(|(i, unit)| (unit.module.clone(), i)).collect();
        let mut graph = Self { edges: vec![BTreeMap::new(); units.len()], units, modules };
        for from in 0..graph.units.len() {
            for (to, line) in graph.uses(from) {
                if to != from {
                    let first = graph.edges[from].entry(to).or_insert(line);
                    *first = line.min(*first);
                }
            }
        }
        graph
    }

    /// Returns the files that a file uses, with the lines.
    fn uses(&self, from: usize) -> Vec<(usize, usize)> {
        let unit = &self.units[from];
        let mut used = Vec::new();
        for import in &unit.imports {
            let is_forwarded = import.is_public && !unit.names.contains(&import.name);
            if !is_forwarded {
                used.extend(self.definition(from, &import.path, 0).map(|to| (to, import.line)));
            }
        }
        used.extend(unit.paths.iter().filter_map(|path| Some((self.definition(from, &path.path, 0)?, path.line))));
        used
    }

    /// Returns the file that defines the item `path`, seen from the file `from`; `None` for a module and for an item of another crate.
    fn definition(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        if depth > MAX_REEXPORTS {
            return None;
        }
        let (first, rest) = path.split_first()?;
        if first == "crate" {
            return self.member(rest, depth);
        }
        let unit = &self.units[from];
        let child: Vec<String> = unit.module.iter().chain([first]).cloned().collect();
        if self.modules.contains_key(&child) {
            return self.member(&[&child, rest].concat(), depth);
        }
        let import = unit.imports.iter().find(|import| import.name == *first && import.path.first() != Some(first))?;
        self.definition(from, &[&import.path, rest].concat(), depth + 1)
    }

    /// Returns the file that defines the item with this absolute path.
    fn member(&self, path: &[String], depth: usize) -> Option<usize> {
        let (module, rest) = (0..=path.len()).rev().find_map(|n| Some((*self.modules.get(&path[..n])?, &path[n..])))?;
        let unit = &self.units[module];
        let (name, below) = rest.split_first()?;
        if name == "*" {
            return (!unit.items.is_empty()).then_some(module);
        }
        if unit.items.contains(name) {
            return Some(module);
        }
        if let Some(import) = unit.imports.iter().find(|import| import.name == *name) {
            return self.definition(module, &[&import.path, below].concat(), depth + 1);
        }
        let globs = unit.imports.iter().filter(|import| import.name == "*");
        let defined_by_glob = globs
            .filter_map(|glob| {
                let target: Vec<String> = glob.path[..glob.path.len() - 1].iter().chain(rest).cloned().collect();
                self.definition(module, &target, depth + 1)
            })
            .find(|found| self.units[*found].items.contains(name));
        Some(defined_by_glob.unwrap_or(module))
    }

    /// Returns the shortest path from one file to another, including both ends.
    fn way(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut previous = BTreeMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                let mut way = vec![to];
                while way[way.len() - 1] != from {
                    way.push(previous[&way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            for next in self.edges[node].keys() {
                if !previous.contains_key(next) {
                    previous.insert(*next, node);
                    queue.push_back(*next);
                }
            }
        }
        None
    }

    /// Returns every cycle among the files, one line each.
    pub fn cycles(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut seen = BTreeSet::new();
        for (from, edges) in self.edges.iter().enumerate() {
            for to in edges.keys() {
                let Some(back) = self.way(*to, from) else { continue };
                if seen.insert(back.iter().copied().collect::<BTreeSet<_>>()) {
                    let steps = [from].into_iter().chain(back.clone()).zip(back.iter());
                    let steps: Vec<_> = steps
                        .map(|(from, to)| {
                            let line = self.edges[from][to];
                            format!("{}:{line} uses {}", self.units[from].file, self.units[*to].file)
                        })
                        .collect();
                    faults.push(format!("files use each other in a cycle: {}", steps.join(", ")));
                }
            }
        }
        faults
    }

    /// Returns the files that exactly one other file uses, each with that file.
    pub fn single_importers(&self) -> Vec<(&str, &str)> {
        let used_by = |to: usize| (0..self.units.len()).filter(move |from| self.edges[*from].contains_key(&to));
        (0..self.units.len())
            .filter_map(|to| {
                let mut importers = used_by(to);
                let importer = importers.next()?;
                importers.next().is_none().then(|| (self.units[to].file.as_str(), self.units[importer].file.as_str()))
            })
            .collect()
    }
}

/// Returns the tokens of stripped code, with their lines.
fn tokens(code: &str) -> Vec<(Token, usize)> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\n' {
            line += 1;
        } else if c.is_alphanumeric() || c == '_' {
            let mut name = c.to_string();
            while let Some(more) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                name.push(more);
            }
            found.push((Token::Name(name), line));
        } else if c == ':' && chars.next_if_eq(&':').is_some() {
            found.push((Token::Colons, line));
        } else if !c.is_whitespace() {
            found.push((Token::Other(c), line));
        }
    }
    found
}

fn read_unit(file: String, module: Vec<String>, code: &str, crate_names: &[&str]) -> Unit {
    let tokens = tokens(code);
    let mut unit = Unit { file, module, ..Unit::default() };
    // The inline modules around the current token, each with the brace depth at which it ends.
    let mut inline: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut i = 0;
    while let Some((token, line)) = tokens.get(i) {
        let next = tokens.get(i + 1).map(|(token, _)| token);
        let module: Vec<String> = unit.module.iter().chain(inline.iter().map(|(name, _)| name)).cloned().collect();
        match token {
            Token::Other('{') => depth += 1,
            Token::Other('}') => {
                depth -= 1;
                inline.retain(|(_, end)| *end <= depth);
            }
            Token::Name(name) if name == "use" && next != Some(&Token::Other('<')) => {
                let is_public = matches!(i.checked_sub(1).map(|i| &tokens[i].0), Some(Token::Other(')')))
                    || matches!(i.checked_sub(1).map(|i| &tokens[i].0), Some(Token::Name(name)) if name == "pub");
                let end = tokens[i..].iter().position(|(token, _)| *token == Token::Other(';'));
                let end = i + end.unwrap_or(tokens.len() - i - 1);
                let tree: Vec<Token> = tokens[i + 1..end].iter().map(|(token, _)| token.clone()).collect();
                for (name, path) in leaves(&tree) {
                    let path = absolute(path, &module, crate_names);
                    unit.imports.push(Import { name, path, is_public, line: *line });
                }
                i = end;
            }
            Token::Name(name) if name == "mod" && matches!(tokens.get(i + 2), Some((Token::Other('{'), _))) => {
                if let Some(Token::Name(name)) = next {
                    inline.push((name.clone(), depth + 1));
                    unit.items.insert(name.clone());
                }
            }
            Token::Name(name) if next == Some(&Token::Colons) => {
                let mut path = vec![name.clone()];
                while let (Some((Token::Colons, _)), Some((Token::Name(name), _))) =
                    (tokens.get(i + 1), tokens.get(i + 2))
                {
                    path.push(name.clone());
                    i += 2;
                }
                unit.names.insert(path[0].clone());
                let path = absolute(path, &module, crate_names);
                unit.paths.push(InlinePath { path, line: *line });
            }
            Token::Name(name) => {
                let previous = i.checked_sub(1).map(|i| &tokens[i].0);
                let after_keyword =
                    matches!(previous, Some(Token::Name(keyword)) if ITEM_KEYWORDS.contains(&keyword.as_str()));
                let is_macro = previous == Some(&Token::Other('!'))
                    && matches!(tokens.get(i.wrapping_sub(2)), Some((Token::Name(name), _)) if name == "macro_rules");
                if (after_keyword || is_macro) && depth == inline.len() {
                    unit.items.insert(name.clone());
                }
                if previous != Some(&Token::Other('.')) && previous != Some(&Token::Name("mod".to_owned())) {
                    unit.names.insert(name.clone());
                }
            }
            Token::Colons | Token::Other(_) => {}
        }
        i += 1;
    }
    unit
}

/// Returns the leaves of a `use` tree, each as its name in this file and its path.
fn leaves(tree: &[Token]) -> Vec<(String, Vec<String>)> {
    let mut prefix = Vec::new();
    for (i, token) in tree.iter().enumerate() {
        match token {
            Token::Name(name) if name == "as" => {
                let Some(Token::Name(alias)) = tree.get(i + 1) else { break };
                return vec![(alias.clone(), prefix)];
            }
            Token::Name(name) => prefix.push(name.clone()),
            Token::Other('*') => prefix.push("*".to_owned()),
            Token::Other('{') => {
                let group = branches(&tree[i + 1..]);
                let below = group.into_iter().flat_map(leaves);
                return below.map(|(name, path)| join(&prefix, name, &path)).collect();
            }
            Token::Colons | Token::Other(_) => {}
        }
    }
    prefix.last().cloned().map(|name| vec![(name, prefix)]).unwrap_or_default()
}

/// Returns a leaf of a group below `prefix`; `self` is the prefix itself.
fn join(prefix: &[String], name: String, path: &[String]) -> (String, Vec<String>) {
    if path.len() == 1 && path[0] == "self" {
        let name = if name == "self" { prefix.last().cloned().unwrap_or(name) } else { name };
        return (name, prefix.to_vec());
    }
    (name, [prefix, path].concat())
}

/// Returns the parts of a group, up to its closing brace.
fn branches(group: &[Token]) -> Vec<&[Token]> {
    let mut found = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    for (i, token) in group.iter().enumerate() {
        match token {
            Token::Other('{') => depth += 1,
            Token::Other('}') if depth == 0 => {
                found.push(&group[start..i]);
                break;
            }
            Token::Other('}') => depth -= 1,
            Token::Other(',') if depth == 0 => {
                found.push(&group[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    found.retain(|branch| !branch.is_empty());
    found
}

/// Returns `path`, seen from `module`, as an absolute path if its first name belongs to the crate.
fn absolute(path: Vec<String>, module: &[String], crate_names: &[&str]) -> Vec<String> {
    let root = || vec!["crate".to_owned()];
    match path[0].as_str() {
        first if crate_names.contains(&first) => [root(), path[1..].to_vec()].concat(),
        "self" => [root(), module.to_vec(), path[1..].to_vec()].concat(),
        "super" => {
            let up = path.iter().take_while(|part| *part == "super").count();
            let above = module.get(..module.len().saturating_sub(up)).unwrap_or_default();
            [root(), above.to_vec(), path[up..].to_vec()].concat()
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cycles in small sources, given as file and code. The module paths follow from the file names.
    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        graph(files).cycles()
    }

    fn graph(files: &[(&str, &str)]) -> Graph {
        let module = |file: &str| {
            let parts = file.trim_end_matches(".rs").split('/').map(str::to_owned);
            parts.filter(|part| part != "mod" && part != "lib").collect()
        };
        Graph::new(files.iter().map(|(file, code)| ((*file).to_owned(), module(file), (*code).to_owned())), &["me"])
    }

    #[test]
    fn files_in_a_cycle_are_found() {
        let table: [(&str, &[(&str, &str)]); 11] = [
            ("by `crate::`", &[("a.rs", "use crate::b::B; struct A;"), ("b.rs", "use crate::a::A; struct B;")]),
            (
                "by the name of the crate",
                &[("a.rs", "use me::b::B; struct A;"), ("b.rs", "use crate::a::A; struct B;")],
            ),
            ("by `super::`", &[("m/a.rs", "use super::b::B; struct A;"), ("m/b.rs", "use super::a::A; struct B;")]),
            ("by inline paths", &[("m/a.rs", "fn a() { super::b::b() }"), ("m/b.rs", "fn b() { crate::m::a::a() }")]),
            (
                "by nested groups",
                &[
                    ("m/a.rs", "use crate::{m::{b::{self, B}, c}, other}; struct A;"),
                    ("m/b.rs", "use super::{a::{A as Renamed}}; struct B;"),
                ],
            ),
            (
                "by a module and a path that begins with it",
                &[("m/a.rs", "use super::b; fn a() { b::b() }"), ("m/b.rs", "use super::a; fn b() { a::a() }")],
            ),
            (
                "by re-exports",
                &[
                    ("m/mod.rs", "mod a; mod b; pub use a::A; pub(crate) use self::b::{B, b as c};"),
                    ("m/a.rs", "use super::B; struct A;"),
                    ("m/b.rs", "struct B; fn b() { crate::m::A::new() }"),
                ],
            ),
            (
                "by a glob that is re-exported",
                &[
                    ("m/mod.rs", "pub use a::*;"),
                    ("m/a.rs", "use crate::b::B; struct A;"),
                    ("b.rs", "use crate::m::A; struct B;"),
                ],
            ),
            (
                "a child and the items of its parent",
                &[("m/mod.rs", "mod a; use a::A; struct M(A);"), ("m/a.rs", "use super::M; struct A;")],
            ),
            (
                "a child and the parent that needs what it re-exports",
                &[
                    ("m/mod.rs", "mod a; pub use a::A; struct M(A);"),
                    ("m/a.rs", "fn a() -> super::M { todo() } struct A;"),
                ],
            ),
            (
                "through a third file",
                &[
                    ("a.rs", "use crate::b::B; struct A;"),
                    ("b.rs", "use crate::c::C; struct B;"),
                    ("c.rs", "struct C(crate::a::A);"),
                ],
            ),
        ];
        for (what, files) in table {
            assert_eq!(cycles(files).len(), 1, "{what}: {:?}", cycles(files));
        }
        let found = cycles(table[0].1);
        assert_eq!(found, ["files use each other in a cycle: a.rs:1 uses b.rs, b.rs:1 uses a.rs"]);
    }

    #[test]
    fn files_without_a_cycle_pass() {
        let table: [(&str, &[(&str, &str)]); 7] = [
            ("one way", &[("a.rs", "use crate::b::B; struct A;"), ("b.rs", "struct B;")]),
            (
                "a parent that only declares and re-exports",
                &[
                    ("m/mod.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
                    ("m/a.rs", "use super::B; struct A;"),
                    ("m/b.rs", "struct B;"),
                ],
            ),
            (
                "a parent that holds a type and re-exports children",
                &[
                    ("m/mod.rs", "mod a; pub use a::run; struct M; fn m(m: M) { m.run() }"),
                    ("m/a.rs", "use super::M; fn run() {}"),
                ],
            ),
            (
                "an import of the parent's import",
                &[
                    ("m/mod.rs", "mod a; use a::A; use crate::b::B; fn m(a: A, b: B) {}"),
                    ("m/a.rs", "use super::B; struct A;"),
                    ("b.rs", "struct B;"),
                ],
            ),
            ("a module of the same name elsewhere", &[("a.rs", "use other::b::B;"), ("b.rs", "use crate::a::A;")]),
            (
                "an inline module",
                &[("a.rs", "struct A; pub mod m { use super::A; fn f() {} }"), ("b.rs", "fn f() { crate::a::m::f() }")],
            ),
            (
                "a call of a method",
                &[("a.rs", "use crate::b; struct A;"), ("b.rs", "use crate::a::A; fn f(a: A) { a.b() }")],
            ),
        ];
        for (what, files) in table {
            assert_eq!(cycles(files), [""; 0], "{what}");
        }
    }

    #[test]
    fn a_file_with_one_importer_is_named_with_it() {
        let files = [
            ("m/mod.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("m/a.rs", "struct A;"),
            ("m/b.rs", "use super::A; struct B;"),
            ("c.rs", "use crate::m::{A, B};"),
        ];
        assert_eq!(graph(&files).single_importers(), [("m/b.rs", "c.rs")]);
    }
}
