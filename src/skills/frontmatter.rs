//! Parses `SKILL.md`: YAML front matter between two lines `---`, then instructions in Markdown.
//!
//! The fields are those of the Agent Skills specification (<https://agentskills.io/specification>), and those that files of
//! Claude Code, openclaw and nanobot contain. Unknown fields are ignored.

use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};

use super::requirements::{InstallHint, SkillRequirements};
use crate::text::{one_line, truncate};

/// The maximum number of warnings about one file.
const MAX_WARNINGS: usize = 10;
/// The maximum size of the front matter, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// The maximum length of a description that is kept, in characters.
const MAX_DESCRIPTION: usize = 2_000;
/// The maximum length of a name, in characters (Agent Skills).
const MAX_NAME: usize = 64;
/// The maximum number of entries of a list, and of characters of an entry.
const MAX_ENTRIES: usize = 50;
const MAX_ENTRY: usize = 200;
/// The maximum nesting depth, and the maximum number of parts, of front matter.
const MAX_DEPTH: usize = 32;
const MAX_EVENTS: usize = 20_000;
/// The maximum size of the instructions of a skill that is always in the prompt, in bytes.
const MAX_ALWAYS: usize = 32 << 10;
/// Letters that are invisible: the fillers of Hangul.
const BLANK_LETTERS: [char; 4] = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}'];

/// The content of a `SKILL.md`, without its instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillManifest {
    pub name: String,
    /// The description on one line, with at most 2,000 characters.
    pub description: String,
    /// The number of characters of the description as written.
    pub description_length: usize,
    pub version: Option<String>,
    pub license: Option<String>,
    pub compatibility: Option<String>,
    pub allowed_tools: Vec<String>,
    pub triggers: Vec<String>,
    /// The beginning of the instructions, if the skill is always in the prompt.
    pub always_text: Option<String>,
    pub is_always_text_cut: bool,
    /// True if there are no instructions.
    pub is_empty: bool,
    pub requirements: SkillRequirements,
    pub install_hints: Vec<InstallHint>,
    /// Faults that do not prevent the use of the skill.
    pub warnings: Vec<SkillManifestError>,
}

/// The reason why a `SKILL.md`, or a part of it, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillManifestError {
    /// The line number, starting from 1.
    pub line: Option<usize>,
    pub reason: String,
}

impl SkillManifestError {
    pub(super) fn new(line: impl Into<Option<usize>>, reason: impl Into<String>) -> Self {
        Self { line: line.into(), reason: reason.into() }
    }
}

/// The parts of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SkillText<'a> {
    /// The YAML. It begins in line 2, unless empty lines or comments precede it. `None` without front matter.
    pub head: Option<&'a str>,
    pub body: &'a str,
}

/// The fields as written. A field that may have several forms is kept as a raw value.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FrontMatter {
    name: Option<String>,
    description: Option<String>,
    version: Option<String>,
    license: Option<String>,
    compatibility: Option<String>,
    #[serde(rename = "allowed-tools", alias = "allowed_tools")]
    allowed_tools: Value,
    always: Value,
    triggers: Value,
    requires: Value,
    install: Value,
    metadata: Value,
}

impl FrontMatter {
    /// Reads fields of which at least one has an unexpected type. Such a field is left out with a warning.
    fn from_values(mut fields: Map<String, Value>, head: &str, warnings: &mut Vec<SkillManifestError>) -> Self {
        for key in ["name", "description", "version", "license", "compatibility"] {
            match fields.get_mut(key) {
                Some(scalar @ (Value::Bool(_) | Value::Number(_))) => *scalar = scalar.to_string().into(),
                Some(other @ (Value::Array(_) | Value::Object(_))) => {
                    *other = Value::Null;
                    let reason = format!("`{key}` is not read, since it is not text; write it as `{key}: TEXT`");
                    warnings.push(SkillManifestError::new(line_of(head, key), reason));
                }
                _ => {}
            }
        }
        // A file may have both spellings, which the conversion below refuses.
        let alias = fields.remove("allowed_tools").unwrap_or_default();
        let allowed_tools = fields.entry("allowed-tools").or_insert(Value::Null);
        if allowed_tools.is_null() {
            *allowed_tools = alias;
        }
        // Each field has a suitable type now, so this cannot fail.
        serde_json::from_value(Value::Object(fields)).unwrap_or_default()
    }
}

/// Returns the text of a file, without a byte order mark.
///
/// # Errors
/// The file is not UTF-8.
pub(super) fn decode(bytes: &[u8]) -> Result<&str, SkillManifestError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(SkillManifestError::new(1, "is UTF-16; save it as UTF-8"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        SkillManifestError::new(line, "is not valid UTF-8; save it as UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Splits a text into front matter and instructions.
///
/// # Errors
/// The front matter has no end, or is too long.
pub(super) fn split(text: &str) -> Result<SkillText<'_>, SkillManifestError> {
    // In existing skills, empty lines and comments may precede the front matter.
    let blank = lines_above(text).map(str::len).sum::<usize>();
    let mut lines = text[blank..].split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != "---" {
        return Ok(SkillText { head: None, body: text });
    }
    let start = blank + first.len();
    let mut end = start;
    for line in lines {
        if matches!(line.trim_end(), "---" | "...") {
            if end - start > MAX_HEAD {
                return Err(SkillManifestError::new(1, format!("the front matter is longer than {MAX_HEAD} bytes")));
            }
            return Ok(SkillText { head: Some(&text[start..end]), body: &text[end + line.len()..] });
        }
        end += line.len();
    }
    Err(SkillManifestError::new(1, "the front matter has no end; write a line `---` after its last field"))
}

/// Returns the leading empty lines and HTML comments of a text. Each comment must be on one line.
fn lines_above(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').take_while(|line| {
        let line = line.trim();
        line.is_empty() || line.strip_prefix("<!--").is_some_and(|rest| rest.ends_with("-->"))
    })
}

/// Parses the text of a `SKILL.md`. A file without a name gets the name of its folder.
///
/// # Errors
/// The name or the description is missing, or the name is not valid.
pub fn parse_manifest(bytes: &[u8], folder: &str) -> Result<SkillManifest, SkillManifestError> {
    let text = decode(bytes)?;
    let above = lines_above(text).count();
    let in_file = |fault: SkillManifestError| SkillManifestError { line: fault.line.map(|line| line + above), ..fault };
    let mut manifest = parse_text(text, folder).map_err(in_file)?;
    manifest.warnings = manifest.warnings.into_iter().map(in_file).collect();
    Ok(manifest)
}

/// Parses a text like [`parse_manifest`], but counts lines from the first one that is neither empty nor a comment.
fn parse_text(text: &str, folder: &str) -> Result<SkillManifest, SkillManifestError> {
    let SkillText { head, body } = split(text)?;
    let mut manifest = SkillManifest::default();
    if let Some(fault) = head.and_then(repeated_field) {
        return Err(fault);
    }
    let fields = match head {
        Some(head) => read_fields(head, &mut manifest.warnings)?,
        None if !body.lines().any(is_heading) => {
            let reason = "has no front matter; begin it with `---`, `name: …`, `description: …`, `---`";
            return Err(SkillManifestError::new(1, reason));
        }
        None => FrontMatter::default(),
    };
    let written = fields.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    manifest.name = valid_name(written, folder, head.unwrap_or_default(), &mut manifest.warnings)?;
    let description = fields.description.as_deref().map(one_line).filter(|text| !text.is_empty());
    let description = description.or_else(|| first_paragraph(body)).ok_or_else(|| {
        let line = line_of(head.unwrap_or_default(), "description").unwrap_or(1);
        SkillManifestError::new(line, "has no description; add `description: what the skill does, and when to use it`")
    })?;
    manifest.description_length = fields.description.as_deref().map_or(0, |text| text.trim().chars().count());
    manifest.description = truncate(&description, MAX_DESCRIPTION);
    let short = |text: &Option<String>| text.as_deref().map(|text| truncate(&one_line(text), MAX_ENTRY));
    manifest.version = short(&fields.version);
    manifest.license = short(&fields.license);
    manifest.compatibility = short(&fields.compatibility);
    manifest.allowed_tools = strings(&fields.allowed_tools, |c| c == ',' || c.is_whitespace());
    let is_blank = match &fields.allowed_tools {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    if manifest.allowed_tools.is_empty() && !is_blank {
        let line = line_of(head.unwrap_or_default(), "allowed-tools").unwrap_or(1);
        return Err(SkillManifestError::new(
            line,
            "`allowed-tools` is not understood; write it as `allowed-tools: Read Grep`",
        ));
    }
    manifest.triggers = strings(&fields.triggers, |c| matches!(c, ',' | '，' | '\n'));
    let is_always = add_metadata(&fields, head.unwrap_or_default(), &mut manifest);
    manifest.is_empty = body.trim().is_empty();
    if is_always {
        let body = body.trim();
        let start = &body[..body.floor_char_boundary(MAX_ALWAYS)];
        manifest.is_always_text_cut = start.len() < body.len();
        manifest.always_text = Some(start.to_owned());
    }
    manifest.warnings.truncate(MAX_WARNINGS);
    Ok(manifest)
}

/// Adds the values that may be fields of the file, of its metadata, or of a program's own part of the metadata. Returns true if
/// one of them requests that the skill is always in the prompt.
fn add_metadata(fields: &FrontMatter, head: &str, manifest: &mut SkillManifest) -> bool {
    let (metadata, fault) = parse_metadata(&fields.metadata);
    if let Some(reason) = fault {
        manifest.warnings.push(SkillManifestError::new(line_of(head, "metadata"), reason));
    }
    let places: Vec<&Map<String, Value>> =
        std::iter::once(&metadata).chain(metadata.values().filter_map(Value::as_object)).collect();
    let in_metadata = |key: &'static str| places.iter().filter_map(move |place| place.get(key));
    for requires in std::iter::once(&fields.requires).chain(in_metadata("requires")) {
        add_requirements(requires, &mut manifest.requirements);
        if requires.is_array() || requires.is_string() {
            let reason = "`requires` is not read; write it as `requires: {bins: [git], env: [TOKEN]}`";
            manifest.warnings.push(SkillManifestError::new(line_of(head, "requires"), reason));
        }
    }
    for os in in_metadata("os") {
        extend(&mut manifest.requirements.os, os);
    }
    let install = std::iter::once(&fields.install).chain(in_metadata("install"));
    manifest.install_hints = install.flat_map(install_hints).take(MAX_ENTRIES).collect();
    is_true(&fields.always) || in_metadata("always").any(is_true)
}

/// Parses the YAML. Invalid YAML, often because of an unquoted colon in a description, is parsed again with quotes added. If that
/// fails as well, the name and the description are read line by line.
fn read_fields(head: &str, warnings: &mut Vec<SkillManifestError>) -> Result<FrontMatter, SkillManifestError> {
    if head.trim().is_empty() {
        return Ok(FrontMatter::default());
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, max_events: MAX_EVENTS },
        duplicate_keys: DuplicateKeyPolicy::FirstWins,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    // The YAML begins in line 2 of the file, so an empty line keeps the line numbers right.
    let numbered = format!("\n{head}");
    let error = match serde_saphyr::from_str_with_options(&numbered, options.clone()) {
        Ok(fields) => return Ok(fields),
        Err(error) => error,
    };
    if let Ok(fields) = serde_saphyr::from_str_with_options(&numbered, options.clone()) {
        return Ok(FrontMatter::from_values(fields, head, warnings));
    }
    let line = error.location().and_then(|location| usize::try_from(location.line()).ok()).unwrap_or(1);
    let cause = truncate(&one_line(&error.without_snippet().to_string()), MAX_ENTRY);
    if let Ok(fields) = serde_saphyr::from_str_with_options::<FrontMatter>(&format!("\n{}", quoted(head)), options) {
        let reason =
            format!("the front matter is not valid YAML, so its texts are read as they stand; quote them: {cause}");
        warnings.push(SkillManifestError::new(line, reason));
        return Ok(fields);
    }
    let fields = FrontMatter {
        name: plain_field(head, "name"),
        description: plain_field(head, "description"),
        allowed_tools: plain_field(head, "allowed-tools").or_else(|| plain_field(head, "allowed_tools")).into(),
        ..FrontMatter::default()
    };
    if fields.description.is_none() {
        return Err(SkillManifestError::new(line, format!("the front matter is not valid YAML: {cause}")));
    }
    let reason = format!(
        "the front matter is not valid YAML, so only name, description and allowed-tools are read; quote the text: {cause}"
    );
    warnings.push(SkillManifestError::new(line, reason));
    Ok(fields)
}

/// Returns front matter with quotes added around one-line texts that have none: an unquoted colon is common.
fn quoted(head: &str) -> String {
    let lines: Vec<&str> = head.lines().collect();
    let quote = |at: usize, line: &str| {
        let (key, value) = line.split_once(": ")?;
        let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
        let goes_on = lines.get(at + 1).is_some_and(|next| next.starts_with([' ', '\t']));
        let value = value.trim();
        let is_plain = !value.is_empty() && !value.starts_with(['"', '\'', '[', '{', '|', '>', '#']);
        (is_key && is_plain && !goes_on).then(|| format!("{key}: '{}'", value.replace('\'', "''")))
    };
    let quoted = lines.iter().enumerate().map(|(at, line)| quote(at, line).unwrap_or_else(|| (*line).to_owned()));
    quoted.collect::<Vec<_>>().join("\n")
}

/// Returns the text of a field that begins a line and continues in indented lines.
fn plain_field(head: &str, key: &str) -> Option<String> {
    let mut lines = head.lines().skip_while(|line| after_key(line, key).is_none());
    let first = after_key(lines.next()?, key)?.trim();
    let is_block = matches!(first.trim_end_matches(['-', '+']), ">" | "|");
    let more = lines.take_while(|line| line.trim().is_empty() || line.starts_with([' ', '\t'])).map(str::trim);
    let parts: Vec<_> =
        std::iter::once(first).filter(|_| !is_block).chain(more).filter(|part| !part.is_empty()).collect();
    let text = parts.join(" ");
    let unquoted = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    let text = unquoted.unwrap_or(&text).trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn after_key<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix(':').filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']))
}

/// Returns the fault of a field that decides what the skill is, and that is written twice: programs differ in which one they read.
fn repeated_field(head: &str) -> Option<SkillManifestError> {
    ["name", "description", "allowed-tools"].into_iter().find_map(|key| {
        let mut lines = head.lines().enumerate().filter(|(_, line)| after_key(line, key).is_some());
        let (at, _) = lines.nth(1)?;
        Some(SkillManifestError::new(at + 2, format!("has a second `{key}`; keep one of them")))
    })
}

/// Returns the line of the file on which a field begins.
fn line_of(head: &str, key: &str) -> Option<usize> {
    head.lines().position(|line| after_key(line, key).is_some()).map(|at| at + 2)
}

/// Returns the name, or the folder's name if the file has none. An invalid name is reduced to its letters and digits, joined by
/// hyphens, with a warning.
fn valid_name(
    name: Option<&str>,
    folder: &str,
    head: &str,
    warnings: &mut Vec<SkillManifestError>,
) -> Result<String, SkillManifestError> {
    let written = name.unwrap_or(folder);
    let is_allowed = |c: char| c.is_alphanumeric() && !BLANK_LETTERS.contains(&c) || matches!(c, '-' | '_');
    if (1..=MAX_NAME).contains(&written.chars().count()) && written.chars().all(is_allowed) {
        return Ok(written.to_owned());
    }
    let words: Vec<&str> = written.split(|c: char| !is_allowed(c)).filter(|word| !word.is_empty()).collect();
    let slug = words.join("-").to_lowercase();
    let shown = truncate(&one_line(written), 80);
    let rule = format!("a name has 1 to {MAX_NAME} letters, digits, - and _");
    let owner = if name.is_some() { "the name" } else { "without a name in the file, the folder's name" };
    let line = line_of(head, "name").unwrap_or(1);
    if !(1..=MAX_NAME).contains(&slug.chars().count()) {
        let right = if slug.is_empty() { "my-skill" } else { slug.get(..20).unwrap_or("my-skill") };
        return Err(SkillManifestError::new(line, format!("{owner} {shown:?} is not valid: {rule}, such as {right}")));
    }
    warnings.push(SkillManifestError::new(line, format!("{owner} {shown:?} is read as {slug}: {rule}")));
    Ok(slug)
}

fn is_heading(line: &str) -> bool {
    let rest = line.trim_start_matches('#');
    rest.len() < line.len() && rest.starts_with(' ') && !rest.trim().is_empty()
}

/// Returns the first paragraph that is not a heading, on one line.
fn first_paragraph(body: &str) -> Option<String> {
    let is_text = |line: &&str| !line.trim().is_empty() && !is_heading(line);
    let lines = body.lines().skip_while(|line| !is_text(line)).take_while(is_text);
    let text = one_line(&lines.collect::<Vec<_>>().join(" "));
    (!text.is_empty()).then_some(text)
}

/// Returns the metadata, which may be JSON in a text, and its fault.
fn parse_metadata(metadata: &Value) -> (Map<String, Value>, Option<String>) {
    match metadata {
        Value::Object(map) => (map.clone(), None),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(map) => (map, None),
            Err(error) => (Map::new(), Some(format!("`metadata` is a text and not JSON, so it is not read: {error}"))),
        },
        _ => (Map::new(), None),
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        Value::String(text) => matches!(text.trim(), "true" | "True" | "yes" | "on"),
        _ => false,
    }
}

fn add_requirements(requires: &Value, needs: &mut SkillRequirements) {
    let Value::Object(requires) = requires else { return };
    for (key, value) in requires {
        match key.as_str() {
            "bins" => extend(&mut needs.bins, value),
            "any_bins" | "anyBins" | "any-bins" => extend(&mut needs.any_bins, value),
            "env" => extend(&mut needs.env, value),
            "os" => extend(&mut needs.os, value),
            _ => {}
        }
    }
}

fn extend(list: &mut Vec<String>, value: &Value) {
    for text in strings(value, |c| c == ',' || c.is_whitespace()) {
        if list.len() < MAX_ENTRIES && !list.contains(&text) {
            list.push(text);
        }
    }
}

/// Returns the texts of a list. For a text, returns its parts between separators that are not in parentheses.
fn strings(value: &Value, is_separator: fn(char) -> bool) -> Vec<String> {
    let parts: Vec<String> = match value {
        Value::Array(values) => values
            .iter()
            .filter_map(|value| match value {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            })
            .collect(),
        Value::String(text) => {
            let mut depth = 0_usize;
            let separates = |c: char| {
                match c {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth == 0 && is_separator(c)
            };
            text.split(separates).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    let parts = parts.iter().map(|part| truncate(&one_line(part), MAX_ENTRY)).filter(|part| !part.is_empty());
    parts.take(MAX_ENTRIES).collect()
}

/// Returns the commands that install the programs that a skill needs, from the forms of openclaw: `{kind: brew, formula: gh,
/// bins: [gh]}`.
fn install_hints(install: &Value) -> Vec<InstallHint> {
    let Value::Array(entries) = install else {
        return strings(install, |c| c == '\n')
            .into_iter()
            .map(|command| InstallHint { bins: Vec::new(), command })
            .collect();
    };
    entries.iter().filter_map(install_hint).collect()
}

fn install_hint(entry: &Value) -> Option<InstallHint> {
    let clean = |text: &str| truncate(&one_line(text), MAX_ENTRY);
    let Value::Object(entry) = entry else {
        return entry.as_str().map(|text| InstallHint { bins: Vec::new(), command: clean(text) });
    };
    let text = |keys: &[&str]| keys.iter().find_map(|key| entry.get(*key)?.as_str());
    let package = text(&["formula", "package", "module", "cask", "crate", "name"]);
    let command = match (text(&["kind", "type", "id"]), package) {
        (Some("brew"), Some(package)) => format!("brew install {package}"),
        (Some("apt"), Some(package)) => format!("apt install {package}"),
        (Some("dnf"), Some(package)) => format!("dnf install {package}"),
        (Some("node" | "npm"), Some(package)) => format!("npm install -g {package}"),
        (Some("go"), Some(package)) => format!("go install {package}"),
        (Some("uv"), Some(package)) => format!("uv tool install {package}"),
        (Some("pip" | "pipx"), Some(package)) => format!("pipx install {package}"),
        (Some("cargo"), Some(package)) => format!("cargo install {package}"),
        _ => text(&["command", "label", "url"])?.to_owned(),
    };
    let bins = entry.get("bins").map(|bins| strings(bins, |c| c == ',' || c.is_whitespace())).unwrap_or_default();
    Some(InstallHint { bins, command: clean(&command) })
}
