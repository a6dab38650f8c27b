//! Chooses the filter for a result, and decides whether its output is better than the whole result.

use serde_json::{Map, Value, json};

use super::command_filter;
use super::config::{PostprocessConfig, PostprocessMode, PostprocessOrder};
use super::filter::{FilterOutput, FilterQuery, FilterSettings, RawResult};
use super::intent::{Intent, SURE_CONFIDENCE};
use super::json_filter;
use super::lines::{TextLines, omissions};
use super::listing_filter;
use super::question::Question;
use super::search_filter::{self, FileLines};
use super::section_filter;
use super::semantic::SemanticFilter;
use super::summary::{ModelUse, ResultSummarizer};
use super::table_filter;
use crate::text::pattern;

/// The shortest result that is filtered, in characters.
const MIN_CHARS: usize = 1_500;
/// The shortest output of a filter, in characters. With a shorter one, which could answer nothing, the result stays whole. A list is
/// filtered only if an entry matches, and one entry may be the answer.
const MIN_KEPT_CHARS: usize = 40;
/// The share of the whole result that the output of a filter may have at most.
const MAX_KEPT_SHARE: f64 = 0.9;
/// The shortest result that a model summarises, in characters.
const MIN_SUMMARY_CHARS: usize = 2_000;
/// The beginning of the line that says what was left out.
const NOTE: &str = "[filtered for the question: ";

/// The kinds of results that have a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultKind {
    File,
    Search,
    Hits,
    Page,
    Output,
    List,
    Map,
}

impl ResultKind {
    /// Returns the kind of a tool's results; `None` for a tool without a filter.
    fn of(tool: &str) -> Option<Self> {
        Some(match tool {
            "read_file" => Self::File,
            "grep" | "lsp_references" => Self::Search,
            "web_search" => Self::Hits,
            "web_fetch" => Self::Page,
            "exec" | "run_test" | "process" => Self::Output,
            "list_dir" | "glob" | "repo_structure" => Self::List,
            "repo_map" | "symbols" => Self::Map,
            // The tools of MCP servers are `SERVER__tool`.
            _ if tool.contains("__") || tool == "mcp_read" => Self::Page,
            _ => return None,
        })
    }
}

/// A filtered result.
#[derive(Clone, Debug, PartialEq)]
pub struct FilteredResult {
    output: FilterOutput,
    /// The mode that selected the parts.
    mode: PostprocessMode,
    intent: Intent,
    pub keywords: Vec<String>,
}

impl FilteredResult {
    /// Returns the text for the model, with a last line that says what was left out. `stored` says where the model can read the
    /// whole result.
    pub fn render(&self, stored: Option<&str>) -> String {
        let FilterOutput { text, unit, original, kept, remark } = &self.output;
        let what = if self.mode == PostprocessMode::Llm {
            format!("a summary of {original} {unit}")
        } else {
            format!("{kept} of {original} {unit}")
        };
        let remark = remark.as_ref().map(|remark| format!("; {remark}")).unwrap_or_default();
        let stored = stored.map(|stored| format!("; {stored}")).unwrap_or_default();
        format!("{}\n{NOTE}{what}{remark}{stored}]", text.trim_end_matches('\n'))
    }

    /// Returns the metadata of the result.
    pub fn metadata(&self) -> Map<String, Value> {
        let facts = [
            ("post_processed", json!(true)),
            ("tier", json!(self.mode)),
            ("intent", json!(self.intent)),
            ("keywords", json!(self.keywords)),
            ("original_count", json!(self.output.original)),
            ("kept_count", json!(self.output.kept)),
            ("counted", json!(self.output.unit)),
        ];
        facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Filters results by the configuration.
#[derive(Default)]
pub struct Postprocessor {
    config: PostprocessConfig,
    semantic: Option<SemanticFilter>,
    summary: Option<ResultSummarizer>,
}

impl Postprocessor {
    /// Creates a postprocessor with the embedding model of the `semantic` mode and the chat model of the `llm` mode, if there are
    /// such models.
    pub fn new(config: PostprocessConfig, semantic: Option<SemanticFilter>, summary: Option<ResultSummarizer>) -> Self {
        Self { config, semantic, summary }
    }

    pub fn order(&self) -> PostprocessOrder {
        self.config.order
    }

    /// Returns true if results of this tool may be filtered for this question.
    pub fn applies_to(&self, raw: &RawResult<'_>, question: &Question) -> bool {
        let tool = self.config.tools.get(raw.tool);
        let is_on = self.config.enabled && tool.and_then(|tool| tool.enabled).unwrap_or(true);
        let has_filter = ResultKind::of(raw.tool).is_some();
        is_on && !question.is_empty() && has_filter && !asks_for_exact_part(raw) && is_filterable(raw.text)
    }

    /// Filters a result. Returns `None` if it stays as it is. `files` are read for the lines around the matches of a search. If
    /// a model was asked, its tokens are added to `used`, even if its answer is unusable.
    pub async fn process(
        &self,
        raw: &RawResult<'_>,
        question: &Question,
        files: Option<&dyn FileLines>,
        used: &mut Vec<ModelUse>,
    ) -> Option<FilteredResult> {
        if !self.applies_to(raw, question) {
            return None;
        }
        let kind = ResultKind::of(raw.tool)?;
        let query = self.query(question);
        let (mode, output) = if query.is_broad {
            (PostprocessMode::Basic, self.without_noise(raw, kind, &query)?)
        } else {
            self.select(raw, question, &query, files, used).await?
        };
        let keywords = query.keywords.into_iter().take(query.max_keywords).map(|keyword| keyword.text).collect();
        let result = FilteredResult { output: with_omissions(raw, output), mode, intent: query.intent, keywords };
        is_better(raw, &result).then_some(result)
    }

    fn settings(&self, raw: &RawResult<'_>) -> FilterSettings {
        FilterSettings::of(self.config.tools.get(raw.tool))
    }

    fn query(&self, question: &Question) -> FilterQuery {
        let (intent, confidence) = Intent::of(&question.text);
        let max_keywords =
            if self.config.basic.keyword_extraction { self.config.basic.max_keywords as usize } else { 0 };
        let keywords = if max_keywords > 0 { question.candidates() } else { Vec::new() };
        let threshold = self.config.basic.relevance_threshold;
        let (text, is_broad) = (question.text.clone(), question.is_broad());
        FilterQuery { text, intent, confidence, is_broad, keywords, max_keywords, threshold }
    }

    /// Filters a result for a question about all of something, which selects no parts: an output loses its noise, and any other
    /// result stays.
    fn without_noise(&self, raw: &RawResult<'_>, kind: ResultKind, query: &FilterQuery) -> Option<FilterOutput> {
        if kind != ResultKind::Output || table_filter::is_table(raw) || json_filter::is_json(raw) {
            return None;
        }
        command_filter::filter(raw, query, &self.settings(raw))
    }

    /// Filters a result by the configured mode. If that gives no output, tries the cheaper modes.
    async fn select(
        &self,
        raw: &RawResult<'_>,
        question: &Question,
        query: &FilterQuery,
        files: Option<&dyn FileLines>,
        used: &mut Vec<ModelUse>,
    ) -> Option<(PostprocessMode, FilterOutput)> {
        let mode = self.config.mode;
        let may_be_summarised =
            raw.text.chars().count() >= MIN_SUMMARY_CHARS && self.config.llm.tools.iter().any(|tool| tool == raw.tool);
        if let Some(model) = self.summary.as_ref().filter(|_| mode == PostprocessMode::Llm && may_be_summarised) {
            let most = self.config.llm.max_summary_length as usize;
            match model.summarise(raw, question, most, used).await {
                Ok(summary) => {
                    let kept = summary.lines().count();
                    let filtered = FilterOutput::new(summary, "lines", raw.text.lines().count(), kept);
                    return Some((PostprocessMode::Llm, filtered));
                }
                Err(error) => tracing::warn!(tool = raw.tool, %error, "no model summarised a result"),
            }
        }
        if let Some(semantic) =
            self.semantic.as_ref().filter(|_| mode >= PostprocessMode::Semantic && query.confidence < SURE_CONFIDENCE)
        {
            match semantic.filter(raw, question, &self.config.semantic).await {
                Ok(Some(filtered)) => return Some((PostprocessMode::Semantic, filtered)),
                Ok(None) => {}
                Err(error) => tracing::warn!(tool = raw.tool, %error, "a result could not be compared by meaning"),
            }
        }
        Some((PostprocessMode::Basic, self.filter_by_words(raw, query, files).await?))
    }

    async fn filter_by_words(
        &self,
        raw: &RawResult<'_>,
        query: &FilterQuery,
        files: Option<&dyn FileLines>,
    ) -> Option<FilterOutput> {
        let settings = self.settings(raw);
        let kind = ResultKind::of(raw.tool)?;
        if query.keywords.is_empty() && query.intent == Intent::General && kind != ResultKind::Output {
            return None;
        }
        match kind {
            ResultKind::Search => search_filter::filter(raw, query, &settings, files).await,
            ResultKind::Hits => search_filter::filter_hits(raw, query, &settings),
            ResultKind::List => listing_filter::filter(raw, query, &settings),
            ResultKind::Map => listing_filter::filter_map(raw, query, &settings),
            ResultKind::Output | ResultKind::File | ResultKind::Page => {
                if table_filter::is_table(raw) {
                    return table_filter::filter(raw, query, &settings);
                }
                json_filter::filter(raw, query).or_else(|| {
                    let is_output = kind == ResultKind::Output || command_filter::is_log(&TextLines::of(raw.text));
                    let filter = if is_output { command_filter::filter } else { section_filter::filter };
                    filter(raw, query, &settings)
                })
            }
        }
    }
}

/// Adds the omissions that a result reports to its count. If the filter left a report out, repeats it in the remark.
fn with_omissions(raw: &RawResult<'_>, mut output: FilterOutput) -> FilterOutput {
    let omissions = omissions(raw.text);
    if matches!(output.unit, "lines" | "rows" | "matches" | listing_filter::ENTRIES) {
        // The reports are themselves counted as lines, except in the unit `matches`.
        let markers = omissions.iter().filter(|omission| !omission.is_last && output.unit != "matches").count();
        let missing: usize = omissions.iter().map(|omission| omission.lines).sum();
        output.original = output.original.saturating_sub(markers).max(output.kept) + missing;
    }
    let hidden = omissions.iter().filter(|omission| !output.text.contains(omission.text)).map(|omission| omission.text);
    let remarks: Vec<&str> = output.remark.as_deref().into_iter().chain(hidden).collect();
    let remark = remarks.join("; ");
    output.remark = (!remark.is_empty()).then_some(remark);
    output
}

/// Returns true if the call reads on from a certain place, or reads a result that was stored whole.
fn asks_for_exact_part(raw: &RawResult<'_>) -> bool {
    let has = |name: &str| raw.arguments.get(name).is_some_and(|value| !value.is_null());
    let path = raw.arguments["path"].as_str().unwrap_or_default();
    let is_kept_result = path.split('/').any(|part| part == ".daoyou");
    matches!(raw.tool, "read_file" | "web_fetch") && (has("offset") || has("column") || is_kept_result)
}

/// Returns true for a text that is long enough, is not a diff, and was not filtered before.
fn is_filterable(text: &str) -> bool {
    text.len() >= MIN_CHARS
        && text.chars().nth(MIN_CHARS - 1).is_some()
        && !is_filtered(text)
        && !is_diff(&TextLines::of(text).bodies)
}

fn is_filtered(text: &str) -> bool {
    text.trim_end().lines().next_back().is_some_and(|last| last.starts_with(NOTE))
}

pattern!(
    /// The head of a hunk: of a unified diff, of a merge (`@@@`), or of a context diff.
    HUNK,
    r"^(@@+ (-\d+(,\d+)? )+\+\d+(,\d+)? @@|\*{15}$)"
);
pattern!(
    /// The head of a hunk of a plain diff, such as `1,2c3,4`.
    PLAIN_HUNK,
    r"^\d+(,\d+)?[acd]\d+(,\d+)?$"
);

/// Returns true for lines of a diff or a patch, which must stay complete.
fn is_diff(lines: &[&str]) -> bool {
    let begins_diff = |line: &&str| {
        ["diff --git ", "diff --cc ", "diff --combined ", "*** Begin Patch"].iter().any(|head| line.starts_with(head))
            || HUNK.is_match(line)
    };
    let is_pair = |lines: &[&str]| {
        let (first, next) = (lines[0], lines[1]);
        let is_plain_hunk = next.starts_with("< ") || next.starts_with("> ");
        (first.starts_with("--- ") && next.starts_with("+++ ")) || (is_plain_hunk && PLAIN_HUNK.is_match(first))
    };
    lines.iter().any(begins_diff) || lines.windows(2).any(is_pair)
}

/// Returns true if the output of the filter is long enough to be useful, and enough shorter than the whole result.
fn is_better(raw: &RawResult<'_>, result: &FilteredResult) -> bool {
    let left = result.output.text.trim().chars().count();
    let whole = raw.text.chars().count();
    // The length that is assumed for the path of the whole result, which is not known yet. The path is shorter.
    const PATH_CHARS: usize = 160;
    let with_note = result.render(None).chars().count() + PATH_CHARS;
    (left >= MIN_KEPT_CHARS || result.output.unit == listing_filter::ENTRIES || result.mode == PostprocessMode::Llm)
        && with_note as f64 <= whole as f64 * MAX_KEPT_SHARE
        && result.output.kept > 0
}

#[cfg(test)]
#[path = "processor_output_tests.rs"]
mod output_tests;
#[cfg(test)]
#[path = "processor_table_tests.rs"]
mod table_tests;
#[cfg(test)]
#[path = "processor_tests.rs"]
mod tests;
