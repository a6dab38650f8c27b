//! Tables: the header and the rows that fit the question, and how many rows there are.

use super::filter::{FilterOutput, FilterQuery, FilterSettings, LEAST_EVIDENCE, RawResult};
use super::lines::{LineSelection, TextLines};
use super::relevance::{KeywordMatcher, Relevance};

/// A table has at least so many rows, and this share of its lines has as many columns as the first.
const LEAST_ROWS: usize = 5;
const REGULAR: f64 = 0.9;

/// The most lines of comments that stay above a table.
const MOST_COMMENTS: usize = 40;

/// Words of questions about all rows, such as the largest one or their number.
const OF_ALL_ROWS: &[&str] = &[
    "most",
    "least",
    "highest",
    "lowest",
    "largest",
    "smallest",
    "biggest",
    "maximum",
    "minimum",
    "richest",
    "poorest",
    "oldest",
    "youngest",
    "longest",
    "shortest",
    "latest",
    "earliest",
    "average",
    "mean",
    "median",
    "total",
    "sum",
    "how many",
    "count",
    "rank",
    "top",
    "compare",
    "trend",
    "最",
    "平均",
    "总",
    "合计",
    "一共",
    "排名",
    "排行",
    "多少个",
    "几个",
    "趋势",
    "对比",
    "第一",
    "前三",
    "前五",
    "前十",
];

/// Returns true if a question asks about all rows, of which none may go.
fn asks_for_all_rows(question: &str) -> bool {
    let question = question.to_lowercase();
    let words: Vec<&str> = question.split(|c: char| !c.is_alphanumeric()).collect();
    OF_ALL_ROWS
        .iter()
        .any(|word| if word.is_ascii() && !word.contains(' ') { words.contains(word) } else { question.contains(word) })
}

/// Returns the sign between the columns if the lines are a table.
fn separator(raw: &RawResult<'_>, lines: &TextLines<'_>) -> Option<char> {
    let ending = raw.ending();
    let wanted: &[char] = match ending.as_str() {
        "csv" => &[',', ';'],
        "tsv" | "tab" => &['\t'],
        // Without an ending, only signs that prose does not have.
        "" => &['\t', '|'],
        _ => return None,
    };
    let columns = |line: &str, sign: char| line.matches(sign).count();
    wanted.iter().copied().find(|sign| {
        let rows = &lines.bodies[comments(lines)..];
        let first = rows.first().map_or(0, |line| columns(line, *sign));
        let regular = rows.iter().filter(|line| columns(line, *sign) >= first.max(1)).count();
        first > 0 && rows.len() > LEAST_ROWS && regular as f64 >= rows.len() as f64 * REGULAR
    })
}

/// Returns the number of lines above a table that explain it.
fn comments(lines: &TextLines<'_>) -> usize {
    lines.bodies.iter().take_while(|line| line.starts_with('#')).count()
}

/// Returns true if a result is a table.
pub fn is_table(raw: &RawResult<'_>) -> bool {
    separator(raw, &TextLines::of(raw.body_and_remarks().0)).is_some()
}

/// Filters a table. `None`: it is none, or the question does not tell its rows apart.
pub fn filter(raw: &RawResult<'_>, ask: &FilterQuery, settings: &FilterSettings) -> Option<FilterOutput> {
    let (body, remarks) = raw.body_and_remarks();
    let lines = TextLines::of(body);
    separator(raw, &lines)?;
    if asks_for_all_rows(&ask.text) {
        return None;
    }
    // The first line below comments names the columns, unless the comments do.
    let above = comments(&lines);
    let is_named_above = above > 0 && lines.bodies[above].contains(|c: char| c.is_ascii_digit());
    let head = if is_named_above { above } else { above + 1 };
    let (names, rows) = (lines.text(0..head), &lines.bodies[head..]);
    // What names a column does not tell rows apart.
    let (of_columns, of_rows) = (KeywordMatcher::new(&ask.keywords).find(&names), rows.join("\n"));
    let in_rows = KeywordMatcher::new(&ask.keywords).find(&of_rows);
    let keywords = ask.keywords.iter().zip(of_columns.iter().zip(&in_rows));
    let keywords: Vec<_> = keywords
        .filter(|(_, (column, row))| **column == 0.0 || **row > 0.0)
        .map(|(keyword, _)| keyword.clone())
        .collect();
    let ask = &FilterQuery { keywords, ..ask.clone() };
    let relevance = Relevance::of(&ask.keywords, ask.most, rows.iter().copied());
    if !ask.tells_apart(&relevance, LEAST_EVIDENCE) {
        return None;
    }
    let mut order: Vec<usize> = (0..rows.len())
        .filter(|row| relevance.scores[*row] > 0.0 && relevance.scores[*row] >= ask.threshold * relevance.best)
        .collect();
    order.sort_by(|a, b| relevance.scores[*b].total_cmp(&relevance.scores[*a]).then(a.cmp(b)));
    let mut selection = LineSelection::none(&lines);
    // The header, and the rule that may be under it.
    let has_rule = rows[0].chars().all(|c| "-+|=: ".contains(c));
    selection.keep(head.saturating_sub(MOST_COMMENTS)..head + usize::from(has_rule));
    order.truncate(settings.max_lines);
    let matching = order.len();
    order.into_iter().for_each(|row| selection.keep(row + head..row + head + 1));
    let mut filtered = FilterOutput::new(selection.render(&lines), "rows", rows.len(), matching).with_remarks(&remarks);
    filtered.remark = Some(format!("{matching} of {} rows fit", rows.len()));
    Some(filtered)
}
