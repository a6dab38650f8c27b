//! Filters a tool's result before the model sees it: removes the parts that the question of the turn does not ask for.
//!
//! The tool and the kind of its result select a filter. A filter keeps whole lines (or whole JSON values) and says what it left
//! out. If the question does not distinguish the parts of a result, the result stays as it is. This module reads no files and
//! asks no model, except through [`FileLines`], and the embedding model and the chat model of the configuration.

mod command_filter;
mod config;
mod dates;
mod filter;
mod intent;
mod json_filter;
mod lines;
mod listing_filter;
mod phrases;
mod processor;
mod question;
mod relevance;
mod search_filter;
mod section_filter;
mod sections;
mod semantic;
mod summary;
mod table_filter;

pub use config::{PostprocessConfig, PostprocessMode, PostprocessOrder, SummaryConfig, ToolFilterConfig};
pub use filter::RawResult;
pub use processor::{FilteredResult, Postprocessor};
pub use question::Question;
pub use search_filter::FileLines;
pub use semantic::SemanticFilter;
pub use summary::{ModelUse, OnModelUse, ResultSummarizer};
