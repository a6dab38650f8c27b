//! Rust sources as the rules need them: the list of files, and their code without comments, literals and tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns `code` with comments, strings and characters replaced by spaces. The line structure stays.
pub fn strip(code: &str) -> String {
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

/// Returns true if an `r` after `text` is the end of a name and not the start of a raw string.
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

/// Returns the end of the raw string that begins at `start`; `None` if none begins there.
fn end_of_raw_string(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: &usize| chars[*i] == '"' && chars[i + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some((open + 1..chars.len()).find(closes).map_or(chars.len(), |i| i + 1 + hashes))
}

/// Returns stripped code without the items under `#[cfg(test)]`. Their lines stay, but empty.
pub fn without_tests(stripped: &str) -> String {
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

/// Returns every Rust file under `folder`, sorted.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|fault| panic!("{}: {fault}", folder.display())) {
            let path = entry.expect("an entry of a folder that is there").path();
            // The corpus of a benchmark contains the sources of other projects.
            if path.is_dir() && !path.ends_with("target") && !path.ends_with("corpus") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Returns true for a file of test code, detected by its name or folder, or by a `#[cfg(test)] mod NAME;` in a neighbouring file.
pub fn is_test_file(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let folder = path.parent().unwrap_or(path);
    stem == "tests"
        || stem.ends_with("_tests")
        || path
            .strip_prefix(root())
            .unwrap_or(path)
            .components()
            .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "conformance")
        || rust_files(folder)
            .iter()
            .filter(|file| file.parent() == Some(folder))
            .any(|file| declares_test_module(&fs::read_to_string(file).expect("a file that was listed"), stem))
}

/// Returns true if `code` contains `#[cfg(test)] mod NAME;`.
pub fn declares_test_module(code: &str, name: &str) -> bool {
    let declared = |item: &str| item.split_once(';').is_some_and(|(head, _)| head.ends_with(&format!("mod {name}")));
    code.split("#[cfg(test)]").skip(1).any(declared)
}

/// Returns the production files under `folder`, with their code without comments, literals and tests.
pub fn production_code(folder: &str) -> Vec<(PathBuf, String)> {
    let files = rust_files(&root().join(folder)).into_iter().filter(|file| !is_test_file(file));
    files
        .map(|file| {
            let code = without_tests(&strip(&fs::read_to_string(&file).expect("a file that was listed")));
            (file, code)
        })
        .collect()
}

/// Returns the module path of a file below the crate root `folder`: `src/agent/turn.rs` is `agent`, `turn`.
pub fn module_path(file: &Path, folder: &str) -> Vec<String> {
    let below = file.strip_prefix(root().join(folder)).expect("a file of the crate").with_extension("");
    let mut parts: Vec<_> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|part| part == "mod") || parts == ["lib"] {
        parts.pop();
    }
    parts
}
