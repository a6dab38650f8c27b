//! `[tools.postprocess]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// How results are filtered by the question before the model sees them.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PostprocessConfig {
    /// Off: every result stays as the tool returned it, up to its limit.
    #[default = true]
    pub enabled: bool,
    /// What selects: words of the question, vectors of an embedding model, or a cheap chat model.
    pub mode: PostprocessMode,
    /// Whether a result is filtered before it is cut to its limit, or after.
    pub order: PostprocessOrder,
    pub basic: BasicConfig,
    pub semantic: SemanticConfig,
    pub llm: SummaryConfig,
    /// By tool: on or off, and the settings of its filter.
    pub tools: BTreeMap<String, ToolFilterConfig>,
}

/// What selects the parts of a result. Each falls back to the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PostprocessMode {
    #[default]
    Basic,
    Semantic,
    Llm,
}

/// Whether a result is filtered before it is cut to the limit of its tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PostprocessOrder {
    #[default]
    FilterFirst,
    TruncateFirst,
}

/// `[tools.postprocess.basic]`: filters by words, without a model.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BasicConfig {
    /// Off: the words of the question do not count, only its intent and the noise of the result.
    #[default = true]
    pub keyword_extraction: bool,
    /// The maximum number of keywords of a question.
    #[schemars(range(min = 1, max = 32))]
    #[default = 5]
    pub max_keywords: u32,
    /// A part stays if it has this share of the keywords of the best part.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[default = 0.3]
    pub relevance_threshold: f64,
}

/// `[tools.postprocess.semantic]`: filters by meaning.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SemanticConfig {
    /// `PROVIDER/MODEL` of the embedding model; empty: the one of `memory.embeddings`.
    pub model: String,
    /// A part stays if the cosine of its vector and that of the question is at least this.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[default = 0.5]
    pub threshold: f64,
    /// The maximum number of parts that stay.
    #[schemars(range(min = 1, max = 1_000))]
    #[default = 20]
    pub max_items: u32,
}

/// `[tools.postprocess.llm]`: a cheap model summarises the results of some tools.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SummaryConfig {
    /// `PROVIDER/MODEL`; empty: no model is asked.
    pub model: String,
    /// The longest summary in characters.
    #[schemars(range(min = 100, max = 100_000))]
    #[default = 2_000]
    pub max_summary_length: u32,
    /// The tools whose results it may read.
    pub tools: Vec<String>,
}

/// `[tools.postprocess.tools.NAME]`: the settings of one tool's filter. A setting that its filter does not have is without effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolFilterConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Files and directories: the words of the question select; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_by_keywords: Option<bool>,
    /// Maps and lists: the maximum number of files that stay; default 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_files: Option<u32>,
    /// Searches: equal matches are shown once; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deduplicate: Option<bool>,
    /// Searches: lines around each match that stays; default 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 20))]
    pub add_context_lines: Option<u32>,
    /// Searches: the maximum number of matches that stay; default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_results: Option<u32>,
    /// Files and pages: relevant sections are selected; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extract_relevant_sections: Option<bool>,
    /// Files, pages, outputs: the maximum number of lines that stay; default 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_lines: Option<u32>,
}
