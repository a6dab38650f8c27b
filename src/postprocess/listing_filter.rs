//! Filters lists of files, trees of folders, and maps of code: keeps the entries that fit the question, and counts the others.

use std::collections::BTreeMap;

use super::filter::{FilterOutput, FilterQuery, FilterSettings, MIN_EVIDENCE_OF_LISTS, RawResult};
use super::intent::Intent;
use super::lines::{LineSelection, TextLines};
use super::sections::indent;

/// The longest list that stays whole.
const SHORT_LIST: usize = 20;
/// The unit in which lists are counted.
pub const ENTRIES: &str = "entries";
/// The maximum number of file extensions for which left out files are counted.
const MAX_ENDINGS: usize = 4;

/// Filters a list of files or a tree. Returns `None` if it is short, or the question does not distinguish its entries.
pub fn filter(raw: &RawResult<'_>, query: &FilterQuery, settings: &FilterSettings) -> Option<FilterOutput> {
    let (body, remarks) = raw.body_and_remarks();
    let lines = TextLines::of(body);
    if lines.len() <= SHORT_LIST || !settings.filter_by_keywords {
        return None;
    }
    let relevance = query.rate(&lines.bodies);
    if !query.distinguishes(&relevance, MIN_EVIDENCE_OF_LISTS) {
        return None;
    }
    let mut order = relevance.relevant(query.threshold);
    order.truncate(settings.max_files);
    let mut selection = LineSelection::none(&lines);
    for at in order {
        selection.keep_line(at);
        folders_above(&lines, at).into_iter().for_each(|folder| selection.keep_line(folder));
    }
    // The folders of the first level stay, to show what else there is.
    for (at, line) in lines.bodies.iter().enumerate() {
        if indent(line) == Some(0) && line.trim_end().ends_with('/') {
            selection.keep_line(at);
        }
    }
    let mut filtered = FilterOutput::of_lines(&selection, ENTRIES, &remarks);
    filtered.remark = left_out(&selection);
    Some(filtered)
}

/// Returns the lines of the folders that hold an entry of a tree.
fn folders_above(lines: &TextLines<'_>, entry: usize) -> Vec<usize> {
    let mut depth = depth(lines.bodies[entry]);
    let mut found = Vec::new();
    for at in (0..entry).rev() {
        let other = self::depth(lines.bodies[at]);
        if other < depth {
            found.push(at);
            depth = other;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Returns the column at which a name begins, after spaces and the lines of a tree.
fn depth(line: &str) -> usize {
    line.chars().take_while(|c| matches!(c, ' ' | '\t' | '│' | '├' | '└' | '─' | '|' | '-' | '`' | '+')).count()
}

/// Counts, by file extension, the entries that were left out.
fn left_out(selection: &LineSelection<'_>) -> Option<String> {
    let mut endings: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, line) in selection.lines.bodies.iter().enumerate().filter(|(at, _)| !selection.keeps(*at)) {
        let name = line.split(" (").next().unwrap_or(line).trim_end();
        let ending = match name.rsplit_once('.') {
            Some((_, ending)) if ending.len() <= 6 && !ending.contains('/') => ending,
            _ if name.ends_with('/') => "/",
            _ => "",
        };
        *endings.entry(ending).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = endings.into_iter().filter(|(ending, _)| !ending.is_empty()).collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    counts.truncate(MAX_ENDINGS);
    let shown = counts.iter().map(|(ending, count)| match *ending {
        "/" => format!("{count} folders"),
        ending => format!("{count} .{ending}"),
    });
    let shown: Vec<String> = shown.collect();
    (!shown.is_empty()).then(|| format!("left out: {}", shown.join(", ")))
}

/// The kinds of definitions that show the structure of a file.
const TYPES: &[&str] =
    &["class", "struct", "enum", "trait", "interface", "module", "type", "impl", "namespace", "union"];

/// Filters a map of code: files with indented definitions.
pub fn filter_map(raw: &RawResult<'_>, query: &FilterQuery, settings: &FilterSettings) -> Option<FilterOutput> {
    let (body, remarks) = raw.body_and_remarks();
    let lines = TextLines::of(body);
    let is_file = |at: usize| indent(lines.bodies[at]) == Some(0) && lines.bodies[at].trim_end().ends_with(':');
    let begins: Vec<usize> = (0..lines.len()).filter(|at| is_file(*at)).collect();
    let files: Vec<std::ops::Range<usize>> = begins
        .iter()
        .enumerate()
        .map(|(at, begin)| *begin..begins.get(at + 1).copied().unwrap_or(lines.len()))
        .collect();
    if files.is_empty() || !settings.filter_by_keywords {
        return None;
    }
    let texts: Vec<String> = files.iter().map(|file| lines.text(file.clone())).collect();
    let relevance = query.rate(&texts);
    let of_lines = query.rate(&lines.bodies);
    let is_structure = query.intent == Intent::UnderstandStructure;
    if !query.distinguishes(&relevance, MIN_EVIDENCE_OF_LISTS) && !is_structure {
        return None;
    }
    let mut order = if is_structure { relevance.ranked() } else { relevance.relevant(query.threshold) };
    order.truncate(settings.max_files);
    let mut selection = LineSelection::none(&lines);
    selection.keep(0..files[0].start);
    let kept = order.len();
    for at in order {
        let file = files[at].clone();
        selection.keep_line(file.start);
        let has_match = file.clone().any(|line| of_lines.scores[line] > 0.0 && line != file.start);
        for line in file.start + 1..file.end {
            let word = lines.bodies[line].trim_start().split(' ').next().unwrap_or_default();
            let stays = if is_structure { TYPES.contains(&word) } else { !has_match || of_lines.scores[line] > 0.0 };
            if stays || of_lines.scores[line] > 0.0 {
                selection.keep_line(line);
            }
        }
    }
    Some(FilterOutput::new(selection.render(), "files", files.len(), kept).with_remarks(&remarks))
}
