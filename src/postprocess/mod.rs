//! What is removed from a tool's result before the model sees it: what the question of the turn does not ask for.
//!
//! A filter is chosen by the tool and by what its result is. It keeps whole lines (or whole values of JSON) and says what it left out. If the question does not
//! tell the parts of a result apart, the result stays as it is. Nothing here reads files or asks a model, except through
//! [`FileLines`], the embedding model and the chat model of the configuration.

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
pub use processor::{FilteredResult, Postprocessor, has_filter};
pub use question::Question;
pub use search_filter::FileLines;
pub use semantic::SemanticFilter;
pub use summary::{ModelUse, OnModelUse, ResultSummarizer};
