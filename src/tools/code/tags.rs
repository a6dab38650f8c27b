//! The definitions of a source file, and its references to names that are defined elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use strum::VariantArray;
use tree_sitter::{Node, Query, QueryMatch};

use super::language::CodeLanguage;
use super::parser::{ParseFailure, SourceParser};
use super::queries::query_text;
use crate::guard::StopSignal;

/// The maximum length of a name, in bytes, and the maximum numbers of definitions and of different references of a file. Further
/// ones are ignored.
const MAX_NAME: usize = 200;
const MAX_DEFINITIONS: usize = 5_000;
const MAX_REFERENCES: usize = 10_000;

/// The kind of a definition. Its name is the same for models, in queries and in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(super) enum SymbolKind {
    Class,
    Constant,
    Constructor,
    Enum,
    Field,
    Function,
    /// A block of Rust with the methods of a type. It defines no name.
    Impl,
    Interface,
    Macro,
    Method,
    Module,
    Struct,
    Trait,
    Type,
    Union,
    Variable,
    Variant,
}

impl SymbolKind {
    /// Returns true for a type that has members.
    pub(super) fn is_type(self) -> bool {
        matches!(
            self,
            Self::Class | Self::Enum | Self::Interface | Self::Struct | Self::Trait | Self::Type | Self::Union
        )
    }

    /// Returns true for a member of a type.
    pub(super) fn is_member(self) -> bool {
        matches!(self, Self::Constructor | Self::Field | Self::Method | Self::Variant)
    }
}

/// A definition with its line numbers, which start at 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Definition {
    #[serde(rename = "k")]
    pub kind: SymbolKind,
    #[serde(rename = "n")]
    pub name: String,
    /// The line of the name.
    #[serde(rename = "l")]
    pub line: u32,
    /// The first and the last line of the whole definition.
    #[serde(rename = "s")]
    pub start: u32,
    #[serde(rename = "e")]
    pub end: u32,
}

/// How often each name occurs, as a text with one line for each name. A map would take several times the memory, and all files of
/// a repository map are in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct NameCounts(String);

impl NameCounts {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.lines().filter_map(|line| {
            let (count, name) = line.split_once(' ')?;
            Some((name, count.parse().unwrap_or(1)))
        })
    }
}

impl<T: Display> From<BTreeMap<T, u32>> for NameCounts {
    fn from(counts: BTreeMap<T, u32>) -> Self {
        Self(counts.into_iter().map(|(name, count)| format!("{count} {name}\n")).collect())
    }
}

/// The definitions and references of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileTags {
    /// The definitions in the order of their positions.
    #[serde(rename = "d")]
    pub definitions: Vec<Definition>,
    /// The references. A name with a leading dot can refer only to a member.
    #[serde(rename = "r")]
    pub references: NameCounts,
    /// True if nothing was read of the file, because its code is nested too deeply.
    #[serde(default, rename = "p", skip_serializing_if = "std::ops::Not::not")]
    pub is_too_deep: bool,
}

/// The role of a capture in a query.
#[derive(Clone, Copy)]
enum CaptureRole {
    Name,
    Definition(SymbolKind),
    Reference,
    Member,
    Constant,
}

/// The compiled query of a language.
struct TagQuery {
    query: Query,
    /// The roles by the index of the capture.
    roles: Vec<CaptureRole>,
}

impl TagQuery {
    fn compile(language: CodeLanguage) -> Result<Self, String> {
        let query = Query::new(&language.grammar(), &query_text(language)).map_err(|error| error.to_string())?;
        let role = |name: &&str| match *name {
            "name" => Ok(CaptureRole::Name),
            "reference" => Ok(CaptureRole::Reference),
            "member" => Ok(CaptureRole::Member),
            "constant" => Ok(CaptureRole::Constant),
            other => other
                .strip_prefix("definition.")
                .and_then(|kind| kind.parse().ok())
                .map(CaptureRole::Definition)
                .ok_or_else(|| format!("@{other} is not known")),
        };
        let roles = query.capture_names().iter().map(role).collect::<Result<_, _>>()?;
        Ok(Self { query, roles })
    }

    fn of(language: CodeLanguage) -> Option<&'static Self> {
        static COMPILED: [OnceLock<Option<TagQuery>>; CodeLanguage::VARIANTS.len()] =
            [const { OnceLock::new() }; CodeLanguage::VARIANTS.len()];
        let compile = || {
            let fault = |error: &String| tracing::error!(%error, language = language.name(), "a query is wrong");
            Self::compile(language).inspect_err(fault).ok()
        };
        COMPILED.get(language as usize)?.get_or_init(compile).as_ref()
    }
}

/// Finds the definitions and references of a file.
///
/// # Errors
/// The file took too long, or the work was stopped.
pub(super) fn extract_tags(
    parser: &mut SourceParser,
    language: CodeLanguage,
    source: &[u8],
    stop: &StopSignal,
) -> Result<FileTags, ParseFailure> {
    let Some(TagQuery { query, roles }) = TagQuery::of(language) else { return Ok(FileTags::default()) };
    let tree = parser.parse(language, source, stop)?;
    // The key is the byte offset of the name. A definition has the number of the pattern that found it.
    let mut definitions: BTreeMap<usize, (usize, Definition)> = BTreeMap::new();
    let mut references: HashMap<usize, (bool, &str)> = HashMap::new();
    parser.query(query, &tree, source, stop, |found| {
        let role = |index: u32| roles.get(index as usize).copied();
        if let Some((name, definition)) = read_definition(found, role, source) {
            let pattern = found.pattern_index;
            let is_better = definitions.get(&name).is_none_or(|(other, _)| pattern < *other);
            if is_better && (definitions.len() < MAX_DEFINITIONS || definitions.contains_key(&name)) {
                definitions.insert(name, (pattern, definition));
            }
            return;
        }
        for capture in found.captures() {
            let Some(name) = name_of(capture.node, source) else { continue };
            let is_member = match role(capture.index) {
                Some(CaptureRole::Reference) => false,
                Some(CaptureRole::Member) => is_of_type(capture.node, source),
                Some(CaptureRole::Constant) if name.chars().next().is_some_and(char::is_uppercase) => false,
                Some(CaptureRole::Name | CaptureRole::Constant | CaptureRole::Definition(_)) | None => continue,
            };
            if references.len() < MAX_REFERENCES {
                // A constant may be the constant of a type.
                references.entry(capture.node.start_byte()).or_insert((is_member, name)).0 |= is_member;
            }
        }
    })?;
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for (_, (is_member, name)) in references.iter().filter(|(at, _)| !definitions.contains_key(at)) {
        *counts.entry(format!("{}{name}", if *is_member { "." } else { "" })).or_default() += 1;
    }
    let mut definitions: Vec<_> = definitions.into_values().map(|(_, definition)| definition).collect();
    // An outer definition precedes those in it.
    definitions.sort_by_key(|definition| (definition.start, std::cmp::Reverse(definition.end)));
    Ok(FileTags { definitions, references: counts.into(), is_too_deep: false })
}

/// The primitive types of Rust. A name before `::` that is one of them is a type, not a module.
const PRIMITIVE_TYPES: [&str; 16] = [
    "bool", "char", "str", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "usize",
];

/// Returns true if the name follows a value (`value.name`) or a type (`Type::name`), and false if it follows a module.
fn is_of_type(name: Node<'_>, source: &[u8]) -> bool {
    let Some(path) = name.parent().and_then(|parent| parent.child_by_field_name("path")) else { return true };
    let last = path.child_by_field_name("name").unwrap_or(path);
    let is_type = |name: &str| name.starts_with(char::is_uppercase) || PRIMITIVE_TYPES.contains(&name);
    name_of(last, source).is_none_or(is_type)
}

fn name_of<'a>(node: Node<'_>, source: &'a [u8]) -> Option<&'a str> {
    let name = source.get(node.byte_range()).filter(|name| name.len() <= MAX_NAME)?;
    // A name that is not UTF-8 is ignored.
    std::str::from_utf8(name).ok().filter(|name| !name.is_empty() && !name.contains(char::is_control))
}

/// Returns the byte offset of a definition's name, and the definition.
fn read_definition(
    found: &QueryMatch<'_, '_>,
    role: impl Fn(u32) -> Option<CaptureRole>,
    source: &[u8],
) -> Option<(usize, Definition)> {
    let mut name = None;
    let mut whole = None;
    for capture in found.captures() {
        match role(capture.index)? {
            CaptureRole::Name => name = Some(capture.node),
            CaptureRole::Definition(kind) => whole = Some((capture.node, kind)),
            CaptureRole::Reference | CaptureRole::Member | CaptureRole::Constant => return None,
        }
    }
    let (name, (node, kind)) = (name?, whole?);
    let node = if node.kind() == "function_declarator" { declaration_of(node)? } else { node };
    let line = |row: usize| u32::try_from(row + 1).unwrap_or(u32::MAX);
    let definition = Definition {
        kind,
        name: name_of(name, source)?.to_owned(),
        line: line(name.start_position().row),
        start: line(node.start_position().row),
        end: line(node.end_position().row),
    };
    // The name node of an `impl` is the type's name, which is a reference.
    let at = if kind == SymbolKind::Impl { node.start_byte() } else { name.start_byte() };
    Some((at, definition))
}

/// Returns the whole declaration of a C function, given its declarator. Returns `None` for a declaration inside a function, which
/// may be a variable.
fn declaration_of(declarator: Node<'_>) -> Option<Node<'_>> {
    let mut node = declarator;
    loop {
        let parent = node.parent()?;
        match parent.kind() {
            "pointer_declarator" | "reference_declarator" | "parenthesized_declarator" | "attributed_declarator" => {
                node = parent;
            }
            "function_definition" | "field_declaration" => return Some(parent),
            "declaration" => {
                let is_local = parent.parent().is_some_and(|outer| outer.kind() == "compound_statement");
                return (!is_local).then_some(parent);
            }
            // The declarator belongs to a parameter, or to the type of something else.
            _ => return None,
        }
    }
}
