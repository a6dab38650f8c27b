//! The input and the output of a filter.

use std::path::Path;

use serde_json::Value;

use super::config::ToolFilterConfig;
use super::intent::Intent;
use super::lines::LineSelection;
use super::question::Keyword;
use super::relevance::Relevance;
use crate::text::stem;

/// A result that may be filtered.
#[derive(Clone, Copy, Debug)]
pub struct RawResult<'a> {
    /// The name of the tool.
    pub tool: &'a str,
    pub arguments: &'a Value,
    pub text: &'a str,
    /// The maximum number of characters of a result of this tool that the model gets.
    pub limit: usize,
}

impl<'a> RawResult<'a> {
    /// Returns the file extension of the path in the arguments, in lower case, without the dot: `html` for `page.html?x`.
    pub fn ending(&self) -> String {
        let path = self.arguments["path"].as_str().or_else(|| self.arguments["url"].as_str()).unwrap_or_default();
        let path = path.split(['?', '#']).next().unwrap_or_default();
        Path::new(path).extension().and_then(|end| end.to_str()).unwrap_or_default().to_lowercase()
    }

    /// Splits off the final lines that the tool itself added, such as `[lines 1-200 of 900; …]`.
    pub fn body_and_remarks(&self) -> (&'a str, Vec<&'a str>) {
        let (mut body, mut remarks) = (self.text, Vec::new());
        while let Some((before, last)) = body.trim_end().rsplit_once('\n')
            && last.starts_with('[')
            && last.ends_with(']')
            && remarks.len() < 4
        {
            remarks.insert(0, last);
            body = before;
        }
        (body, remarks)
    }
}

/// The question, as filters use it.
#[derive(Clone, Debug)]
pub struct FilterQuery {
    /// The question in the user's words.
    pub text: String,
    pub intent: Intent,
    /// The confidence in the intent, 0 to 1.
    pub confidence: f64,
    /// True if the question is about all of something, so that no part answers it.
    pub is_broad: bool,
    /// The candidates for keywords, the most distinctive first.
    pub keywords: Vec<Keyword>,
    /// The maximum number of candidates that count as keywords.
    pub max_keywords: usize,
    /// `relevance_threshold`.
    pub threshold: f64,
}

/// The share of a question that the best part must hold for a result to be filtered at all. A filter that keeps only few parts
/// needs more evidence.
pub const MIN_EVIDENCE: f64 = 0.3;
pub const MIN_EVIDENCE_OF_LISTS: f64 = 0.35;
pub const MIN_EVIDENCE_OF_SEARCHES: f64 = 0.5;

/// The stems of words in questions about failures.
const OF_FAILURES: &[&str] = &["fail", "failur", "error", "crash", "broken", "panic"];
/// The stems of words in questions about successes, and the Chinese words.
const OF_SUCCESS: &[&str] = &["pass", "ok", "succe", "success", "succeed", "green"];
const OF_CHINESE_SUCCESS: &[&str] = &["通过的", "通过了", "都通过", "已通过", "通过测试", "成功"];
/// Phrases for a missing success.
const OF_NO_SUCCESS: &[&str] =
    &["not pass", "n't pass", "not succeed", "n't succeed", "未通过", "没通过", "没有通过", "不通过", "不成功"];
/// The first words of questions with the answer yes or no, and words within such questions.
const OF_YES_OR_NO: &[&str] = &["did", "do", "does", "is", "are", "was", "were", "has", "have"];
const WITHIN_YES_OR_NO: &[&str] = &["whether", "是否", "是不是", "有没有"];

fn has_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

impl FilterQuery {
    /// Returns true if the question is about failures. A question whether tests pass is, one about how arguments are passed is
    /// not.
    pub fn is_about_failures(&self) -> bool {
        let has_word = |is_wanted: &dyn Fn(&str) -> bool| {
            self.keywords.iter().flat_map(|keyword| &keyword.words).any(|(word, _)| is_wanted(word))
        };
        self.intent == Intent::DebugError
            || has_word(&|word| OF_FAILURES.contains(&word))
            || has_any(&self.text.to_lowercase(), OF_NO_SUCCESS)
            || (!self.is_broad && has_word(&|word| word == "pass") && has_word(&|word| word == "test"))
    }

    /// Returns true if the question asks for what succeeded.
    pub fn names_success(&self) -> bool {
        let text = self.text.to_lowercase();
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.any(|word| OF_SUCCESS.contains(&stem(word).as_str())) || has_any(&text, OF_CHINESE_SUCCESS)
    }

    /// Returns true if the answer is yes or no, so that the user wants no full list.
    pub fn is_yes_or_no(&self) -> bool {
        let text = self.text.trim().to_lowercase();
        let first = text.split_whitespace().next().unwrap_or_default();
        let last = text.trim_end_matches(|c: char| !c.is_alphanumeric()).chars().next_back();
        OF_YES_OR_NO.contains(&first) || last == Some('吗') || has_any(&text, WITHIN_YES_OR_NO)
    }

    /// Rates the parts of a text by the keywords of the question.
    pub fn rate(&self, parts: impl IntoIterator<Item = impl AsRef<str>>) -> Relevance {
        Relevance::of(&self.keywords, self.max_keywords, parts)
    }

    /// Returns true if the question distinguishes the parts of a result, with at least this evidence.
    pub fn distinguishes(&self, relevance: &Relevance, least: f64) -> bool {
        let has_name = self
            .keywords
            .iter()
            .zip(&relevance.distinctive)
            .any(|(keyword, is_distinctive)| keyword.is_identifier && *is_distinctive);
        relevance.is_distinctive() && (relevance.best >= least || has_name)
    }
}

/// The settings of one tool's filter, with their defaults.
#[derive(Clone, Copy, Debug)]
pub struct FilterSettings {
    pub filter_by_keywords: bool,
    pub max_files: usize,
    pub deduplicate: bool,
    pub add_context_lines: usize,
    pub max_results: usize,
    pub extract_relevant_sections: bool,
    pub max_lines: usize,
}

impl FilterSettings {
    pub fn of(config: Option<&ToolFilterConfig>) -> Self {
        let number = |value: Option<u32>, usual: usize| value.map_or(usual, |value| value as usize);
        let default = ToolFilterConfig::default();
        let config = config.unwrap_or(&default);
        Self {
            filter_by_keywords: config.filter_by_keywords.unwrap_or(true),
            max_files: number(config.max_files, 20),
            deduplicate: config.deduplicate.unwrap_or(true),
            add_context_lines: number(config.add_context_lines, 2),
            max_results: number(config.max_results, 10),
            extract_relevant_sections: config.extract_relevant_sections.unwrap_or(true),
            max_lines: number(config.max_lines, 200),
        }
    }
}

/// A filtered result.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterOutput {
    pub text: String,
    /// The counted unit: `lines`, `matches`, `files`, `rows`, `values`.
    pub unit: &'static str,
    pub original: usize,
    pub kept: usize,
    /// A further note about the parts that were left out.
    pub remark: Option<String>,
}

impl FilterOutput {
    pub fn new(text: String, unit: &'static str, original: usize, kept: usize) -> Self {
        Self { text, unit, original, kept, remark: None }
    }

    /// Creates the output of the selected lines, counted in `unit`, and of the tool's own remarks.
    pub fn of_lines(selection: &LineSelection<'_>, unit: &'static str, remarks: &[&str]) -> Self {
        Self::new(selection.render(), unit, selection.lines.len(), selection.count()).with_remarks(remarks)
    }

    /// Adds the tool's own lines at the end.
    pub fn with_remarks(mut self, remarks: &[&str]) -> Self {
        for remark in remarks {
            self.text.push('\n');
            self.text.push_str(remark);
        }
        self
    }
}
