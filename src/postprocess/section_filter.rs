//! Filters files and pages: keeps the sections that fit the question, with the headings or definitions above them.

use std::ops::Range;

use super::filter::{FilterOutput, FilterQuery, FilterSettings, MIN_EVIDENCE, RawResult};
use super::intent::Intent;
use super::lines::{LineBudget, LineSelection, TextLines};
use super::relevance::Relevance;
use super::sections::{TextKind, TextSection, heading_level, is_definition, sections};

/// Extensions of code files, and of prose files. Other texts are recognized by their lines.
const CODE_ENDINGS: &[&str] = &[
    "rs", "py", "pyi", "js", "jsx", "mjs", "cjs", "ts", "tsx", "go", "java", "c", "h", "cc", "cpp", "cxx", "hpp", "cs",
    "rb", "php", "kt", "kts", "swift", "scala", "sh", "bash", "lua", "pl", "sql", "vue", "svelte", "zig", "dart", "ex",
    "exs", "hs", "ml", "r",
];
const PROSE_ENDINGS: &[&str] = &["md", "markdown", "rst", "adoc", "html", "htm", "tex", "org"];

/// The evidence from which the best section surely answers the question.
const STRONG_EVIDENCE: f64 = 0.75;
/// The share of the model's limit that is filled with the next best sections. The weaker the evidence, the larger the share.
const FILL_STRONG: f64 = 0.25;
/// The share of the limit for sections that hold nothing of the question.
const FILL_UNRELATED: f64 = 0.05;
const FILL_WEAK: f64 = 0.6;
/// The share of the limit that relevant sections may fill.
const MOST_RELEVANT: f64 = 0.9;
/// The factor for a section that defines what the question asks for.
const OF_DEFINITION: f64 = 1.6;
/// The maximum number of lines of a section that is kept only as a whole. A longer one may be kept in part.
const SHORT_SECTION: usize = 3;
/// The longest first line of a section that stays as its heading, in characters.
const LONGEST_HEADING: usize = 400;
/// The maximum number of lines of a section that stay because the section before it announces them.
const LONGEST_FOLLOWER: usize = 20;
/// The share of a neighbour's relevance that is added to a section's own.
const OF_NEIGHBOUR: f64 = 0.25;

/// Returns the kind of text of a file or page.
pub fn kind_of(raw: &RawResult<'_>, lines: &TextLines<'_>) -> TextKind {
    let ending = raw.ending();
    if CODE_ENDINGS.contains(&ending.as_str()) {
        return TextKind::Code;
    }
    if PROSE_ENDINGS.contains(&ending.as_str()) || raw.tool == "web_fetch" {
        return TextKind::Prose;
    }
    let share = |test: &dyn Fn(&str) -> bool| {
        let filled = lines.bodies.iter().filter(|line| !line.trim().is_empty());
        let (all, fitting) =
            filled.fold((0_usize, 0_usize), |(all, fitting), line| (all + 1, fitting + usize::from(test(line))));
        fitting as f64 / all.max(1) as f64
    };
    let headings = (0..lines.len()).filter(|at| heading_level(&lines.bodies, *at).is_some()).count();
    if share(&|line| is_definition(line)) > 0.08 {
        TextKind::Code
    } else if headings > 1 || lines.bodies.iter().filter(|line| line.trim().is_empty()).count() * 12 > lines.len() {
        TextKind::Prose
    } else {
        TextKind::Lines
    }
}

/// Filters a file or page. Returns `None` if the question does not distinguish its parts.
pub fn filter(raw: &RawResult<'_>, query: &FilterQuery, settings: &FilterSettings) -> Option<FilterOutput> {
    if !settings.extract_relevant_sections {
        return None;
    }
    let (body, remarks) = raw.body_and_remarks();
    let lines = TextLines::of(body);
    let kind = kind_of(raw, &lines);
    let parts = sections(&lines, kind);
    let mut selection = LineSelection::none(&lines);
    let relevance = rate(&lines, &parts, query);
    if query.intent == Intent::UnderstandStructure && kind != TextKind::Lines {
        outline(&parts, kind, &mut selection);
    } else if !query.distinguishes(&relevance, MIN_EVIDENCE) {
        return None;
    }
    let budget = LineBudget { chars: body.chars().count().min(raw.limit), lines: settings.max_lines };
    let has_best = select(&parts, &relevance, query, budget, &mut selection);
    // The outline alone is an answer if no section fits the other words of the question.
    let is_outline = query.intent == Intent::UnderstandStructure && relevance.best <= 0.0;
    if !has_best && !is_outline {
        return None;
    }
    Some(FilterOutput::of_lines(&selection, "lines", &remarks))
}

/// Rates sections by the question. A definition with a fitting name counts more, and so does a section of the kind that the
/// intent asks for.
fn rate(lines: &TextLines<'_>, parts: &[TextSection], query: &FilterQuery) -> Relevance {
    let mut relevance = query.rate(parts.iter().map(|part| with_above(lines, part)));
    let of_names = query.rate(parts.iter().map(|part| part.definition.map_or("", |at| lines.bodies[at])));
    for (at, part) in parts.iter().enumerate() {
        if part.definition.is_some() && of_names.scores[at] > 0.0 {
            relevance.scores[at] *=
                1.0 + (OF_DEFINITION - 1.0) * (of_names.scores[at] / of_names.best.max(0.01)).min(1.0);
        }
        if wanted_by_intent(query.intent, lines, part) {
            relevance.scores[at] *= 1.3;
        }
    }
    relevance
}

/// Returns the text of a section, with the headings or definitions above it.
fn with_above(lines: &TextLines<'_>, part: &TextSection) -> String {
    let above = part.above.iter().map(|at| lines.bodies[*at]);
    above.chain([lines.text(part.lines.clone()).as_str()]).collect::<Vec<_>>().join("\n")
}

/// Returns true for a section of the kind that the intent asks for.
fn wanted_by_intent(intent: Intent, lines: &TextLines<'_>, part: &TextSection) -> bool {
    let has = |words: &[&str]| {
        let mut bodies = lines.bodies[part.lines.clone()].iter();
        bodies.any(|line| words.iter().any(|word| line.to_lowercase().contains(word)))
    };
    match intent {
        Intent::FindDefinition => part.definition.is_some(),
        Intent::FindUsage => has(&["example", "usage", "```", ">>> ", "$ ", "示例", "用法", "例如"]),
        Intent::DebugError => has(&["error", "panic", "raise ", "throw ", "except", "err(", "fail", "错误", "异常"]),
        Intent::UnderstandStructure | Intent::General => false,
    }
}

/// Keeps the definitions and headings.
fn outline(parts: &[TextSection], kind: TextKind, selection: &mut LineSelection<'_>) {
    let lines = selection.lines;
    match kind {
        TextKind::Code => parts.iter().filter_map(|part| part.definition).for_each(|at| selection.keep_line(at)),
        _ => {
            let headings = (0..lines.len()).filter(|at| heading_level(&lines.bodies, *at).is_some());
            headings.for_each(|at| selection.keep_line(at));
        }
    }
}

/// Keeps the relevant sections, and the next best until the budget is used up. Returns false if no line of the best section
/// fits.
fn select(
    parts: &[TextSection],
    relevance: &Relevance,
    query: &FilterQuery,
    budget: LineBudget,
    selection: &mut LineSelection<'_>,
) -> bool {
    let lines = selection.lines;
    let highest = relevance.scores.iter().copied().fold(0.0, f64::max);
    let fill = if relevance.best >= STRONG_EVIDENCE && relevance.best_keywords > 1 { FILL_STRONG } else { FILL_WEAK };
    let fill = if query.intent == Intent::UnderstandStructure { FILL_STRONG } else { fill };
    let chars = |share: f64| (budget.chars as f64 * share) as usize;
    let mut rated: Vec<(f64, usize)> = (0..parts.len()).map(|at| (with_neighbours(relevance, at), at)).collect();
    rated.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let best = rated.first().map(|(_, at)| *at);
    let mut used = (selection.chars(), selection.count());
    for (score, at) in rated {
        let part = &parts[at];
        let is_relevant = highest > 0.0 && relevance.scores[at] >= query.threshold * highest;
        let share = if is_relevant { MOST_RELEVANT } else { fill };
        let (size, count) = (lines.chars(part.lines.clone()), part.lines.len());
        let fits = used.0 + size <= chars(share) && used.1 + count <= budget.lines;
        if used.0 >= chars(share) || (score <= 0.0 && highest > 0.0 && used.0 >= chars(FILL_UNRELATED)) {
            continue;
        }
        if fits {
            keep_section(part, part.lines.clone(), selection);
            if let Some(next) = parts.get(at + 1).filter(|next| is_relevant && belongs_to(lines, next, part)) {
                selection.keep(next.lines.start..next.lines.end.min(next.lines.start + LONGEST_FOLLOWER));
            }
        } else if is_relevant && (part.lines.len() > SHORT_SECTION || best == Some(at)) {
            // Of a long section, or of the best one, the lines around its keywords stay.
            let left =
                LineBudget { chars: chars(share).saturating_sub(used.0), lines: budget.lines.saturating_sub(used.1) };
            keep_best_lines(part, query, left, selection);
        } else {
            continue;
        }
        used = (selection.chars(), selection.count());
    }
    best.is_some_and(|best| parts[best].lines.clone().any(|line| selection.keeps(line)))
}

/// Returns true if a section is the example or the list that the section before it announces.
fn belongs_to(lines: &TextLines<'_>, next: &TextSection, part: &TextSection) -> bool {
    let first = lines.bodies[next.lines.clone()].iter().find(|line| !line.trim().is_empty());
    let last = lines.bodies[part.lines.clone()].iter().rev().find(|line| !line.trim().is_empty());
    let is_block =
        first.is_some_and(|line| line.starts_with("```") || line.starts_with("    ") || line.starts_with("| "));
    is_block || last.is_some_and(|line| line.trim_end().ends_with([':', '：']))
}

/// Returns the relevance of a section, with a share of its best neighbour's relevance.
fn with_neighbours(relevance: &Relevance, at: usize) -> f64 {
    let around = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
    let best = around.filter_map(|at| relevance.scores.get(at)).copied().fold(0.0, f64::max);
    relevance.scores[at] + best * OF_NEIGHBOUR
}

fn keep_section(part: &TextSection, range: Range<usize>, selection: &mut LineSelection<'_>) {
    let lines = selection.lines;
    selection.keep(range);
    for at in &part.above {
        selection.keep_line(*at);
        // The rule under a heading stays with it.
        if lines.bodies.get(at + 1).is_some_and(|line| line.len() > 2 && line.chars().all(|c| "=-~".contains(c))) {
            selection.keep(*at..at + 2);
        }
    }
}

/// Keeps the lines of a long section that hold keywords, and those around them, within the budget.
fn keep_best_lines(part: &TextSection, query: &FilterQuery, budget: LineBudget, selection: &mut LineSelection<'_>) {
    let lines = selection.lines;
    let rated = query.rate(&lines.bodies[part.lines.clone()]);
    let (mut chars, mut count) = (0, 0);
    for at in rated.relevant(0.0) {
        let line = part.lines.start + at;
        let range =
            |around: usize| line.saturating_sub(around).max(part.lines.start)..(line + around + 1).min(part.lines.end);
        let fits = |range: &Range<usize>| {
            chars + lines.chars(range.clone()) <= budget.chars && count + range.len() <= budget.lines
        };
        let Some(range) = [range(2), range(0)].into_iter().find(fits) else { continue };
        (chars, count) = (chars + lines.chars(range.clone()), count + range.len());
        // The first line stays as the heading or the definition, unless it is a long paragraph.
        if lines.chars(part.lines.start..part.lines.start + 1) <= LONGEST_HEADING {
            selection.keep_line(part.lines.start);
        }
        keep_section(part, range, selection);
    }
}
