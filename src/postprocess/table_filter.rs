//! Filters tables: keeps the header and the rows that fit the question, and counts the rows.

use std::sync::LazyLock;

use regex::Regex;

use super::filter::{FilterOutput, FilterQuery, FilterSettings, MIN_EVIDENCE, RawResult};
use super::lines::{LineSelection, TextLines};
use super::phrases::has_phrase;
use super::relevance::KeywordMatcher;
use crate::text::pattern;

/// The minimum number of rows of a table, and the share of its lines that must have as many columns as the first.
const MIN_ROWS: usize = 5;
const REGULAR_SHARE: f64 = 0.9;

/// The maximum number of lines of comments that stay above a table.
const MAX_COMMENTS: usize = 40;

/// Words of questions about all rows, such as their number or the largest one; with `|` between them.
const OF_ALL_ROWS: &str = "\
    most|least|highest|lowest|largest|smallest|biggest|maximum|minimum|richest|poorest|oldest|youngest|longest|\
    shortest|latest|earliest|average|mean|median|total|sum|how many|count|rank|top|compare|trend|最|平均|总|合计|一共|\
    排名|排行|多少个|几个|趋势|对比|第一|前三|前五|前十";
/// Words of questions about all rows within a range, or about a comparison.
const OF_RANGES: &str = "\
    between|since|before|after|until|till|during|through|over|under|above|below|within|beyond|exceed|exceeds|\
    exceeding|exceeded|fewer|greater|up to|no more|no less|at most|or more|or less|or later|or earlier|or higher|\
    or lower|onward|onwards|以来|以前|以后|以上|以下|以内|之后|之前|之间|之内|期间|超过|超出|大于|小于|多于|少于|高于|\
    低于|等于|早于|晚于|不到|不足|至少";

const MONTH: &str = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*";
const YEAR: &str = r"(1[5-9]|20)\d\d";

/// Ranges between two ends, comparisons, and parts by their order: `from … to …`, `2010-2015`, `>= 5`, `older than`, 从…到….
static RANGE: LazyLock<Regex> = LazyLock::new(|| {
    let end = format!(r"(\d[\d/.]*(st|nd|rd|th)?|{MONTH})");
    let range = format!(r"\b{end}( \d{{4}})?(\s*(to|till|until|thru|through|[–—~～])\s*|\s+-\s+){end}\b");
    let joined = format!(r"\b{YEAR}-{YEAR}\b|\b{MONTH}-{MONTH}\b");
    let comparison = r"\b(\w+er|more|less|worse) than\b|[<>≤≥＞＜]=?\s*-?\d";
    let chinese = r"从.+[到至]|自.+起|[\d年月日号]\s*[到至]\s*[\d一二三四五六七八九十]|(^|[^对])比[^赛例率如较利亚特喻方].*[大小高低多少贵宜早晚长短快慢]";
    let by_order = r"\b(first|last|next|previous) \d+";
    Regex::new(&format!(r"\bfrom\b.+\b(to|till|until)\b|{range}|{joined}|{comparison}|{chinese}|{by_order}"))
        .expect("a constant pattern is valid")
});
pattern!(
    /// A date in numbers, whose signs do not mean a range.
    ISO_DATE,
    r"(?-u:\b)\d{4}[-/](0?[1-9]|1[0-2])([-/]\d{1,2})?(?-u:\b)"
);
pattern!(
    /// A text that looks like a range or a comparison, and is none.
    NO_RANGE,
    r"(rather|other) than|多少"
);
pattern!(
    /// A cell that is a number or a date, so that its line is a row of data.
    VALUE,
    r"^[-+]?(\d+([.,]\d+)*([eE][-+]?\d+)?\s*%?|\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?([ T]\d{1,2}:\d{2}\S*)?)$"
);

/// Returns true if a question asks about all rows, so that all rows must stay.
fn asks_for_all_rows(question: &str) -> bool {
    let question = question.to_lowercase();
    let is_range = || {
        // The interval `2013-04-07/2013-04-09` becomes `1/1` here.
        let plain = ISO_DATE.replace_all(&question, "1");
        RANGE.is_match(&NO_RANGE.replace_all(&plain, " ").replace("1/1", "1 - 1"))
    };
    OF_ALL_ROWS.split('|').chain(OF_RANGES.split('|')).any(|words| has_phrase(&question, words)) || is_range()
}

/// Returns the sign between the columns if the lines are a table.
fn separator(raw: &RawResult<'_>, lines: &TextLines<'_>) -> Option<char> {
    let ending = raw.ending();
    let wanted: &[char] = match ending.as_str() {
        "csv" => &[',', ';'],
        "tsv" | "tab" => &['\t'],
        // Without a file extension, only signs count that do not occur in prose.
        "" => &['\t', '|'],
        _ => return None,
    };
    let columns = |line: &str, sign: char| line.matches(sign).count();
    wanted.iter().copied().find(|sign| {
        let rows = &lines.bodies[comments(lines)..];
        let first = rows.first().map_or(0, |line| columns(line, *sign));
        let regular = rows.iter().filter(|line| columns(line, *sign) >= first.max(1)).count();
        first > 0 && rows.len() > MIN_ROWS && regular as f64 >= rows.len() as f64 * REGULAR_SHARE
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

/// Filters a table. Returns `None` if the text is not a table, or the question does not distinguish its rows.
pub fn filter(raw: &RawResult<'_>, query: &FilterQuery, settings: &FilterSettings) -> Option<FilterOutput> {
    let (body, remarks) = raw.body_and_remarks();
    let lines = TextLines::of(body);
    let sign = separator(raw, &lines)?;
    if asks_for_all_rows(&query.text) {
        return None;
    }
    // The first line below comments names the columns, unless it has values. Then the comments name the columns.
    let above = comments(&lines);
    let has_values = |line: &str| line.split(sign).any(|cell| VALUE.is_match(cell.trim().trim_matches('"')));
    let head = if above > 0 && has_values(lines.bodies[above]) { above } else { above + 1 };
    let (names, rows) = (lines.text(0..head), &lines.bodies[head..]);
    // A keyword that names a column does not distinguish rows.
    let (of_columns, of_rows) = (KeywordMatcher::new(&query.keywords).find(&names), rows.join("\n"));
    let in_rows = KeywordMatcher::new(&query.keywords).find(&of_rows);
    let keywords = query.keywords.iter().zip(of_columns.iter().zip(&in_rows));
    let keywords: Vec<_> = keywords
        .filter(|(_, (column, row))| **column == 0.0 || **row > 0.0)
        .map(|(keyword, _)| keyword.clone())
        .collect();
    let query = &FilterQuery { keywords, ..query.clone() };
    let relevance = query.rate(rows);
    if !query.distinguishes(&relevance, MIN_EVIDENCE) {
        return None;
    }
    let mut order = relevance.relevant(query.threshold);
    let fitting = order.len();
    order.truncate(settings.max_lines);
    let kept = order.len();
    let mut selection = LineSelection::none(&lines);
    // The header stays, with the rule that may be under it. The first line stays even if it may be a row, since years can name
    // columns, too.
    let has_rule = rows[0].chars().all(|c| "-+|=: ".contains(c));
    selection.keep(head.saturating_sub(MAX_COMMENTS)..(above + 1).max(head + usize::from(has_rule)));
    order.into_iter().for_each(|row| selection.keep_line(row + head));
    let mut filtered = FilterOutput::new(selection.render(), "rows", rows.len(), kept).with_remarks(&remarks);
    filtered.remark = (fitting > kept).then(|| format!("{fitting} rows fit"));
    Some(filtered)
}
