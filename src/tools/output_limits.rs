//! The maximum length of results for the model: a limit and a strategy for each tool, which `[tools.output]` overrides, and one
//! limit for all tools (`tools.max_output`).

use std::collections::BTreeMap;

use daoyou_channels::settings::size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::names::canonical_name;
use super::tool::{OutputLimit, Tool, TruncationStrategy};
use super::truncation::{truncate_end, truncate_middle};

/// Metadata keys: whether something was cut, the number of characters of the whole output, and the number that is left.
const TRUNCATED_KEY: &str = "truncated";
pub(super) const ORIGINAL_KEY: &str = "original_length";
const LEFT_KEY: &str = "truncated_length";

/// `[tools.output.NAME]`: overrides the limit of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OutputConfig {
    /// The maximum length, in characters, of a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub chars: Option<u32>,
    /// The maximum number of lines of a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub lines: Option<u32>,
    /// What stays of a longer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<TruncationStrategy>,
}

/// The limits of all tools.
#[derive(Clone, Debug)]
pub struct OutputLimits {
    max_chars: usize,
    /// The settings by the tools' canonical names.
    by_tool: BTreeMap<String, OutputConfig>,
}

impl OutputLimits {
    /// Creates the limits. `max_output` is in characters; `by_tool` names tools, also by alias.
    pub fn new(max_output: u32, by_tool: &BTreeMap<String, OutputConfig>) -> Self {
        let canonical = |name: &String| canonical_name(name).map_or_else(|| name.clone(), str::to_owned);
        Self {
            max_chars: size(max_output),
            by_tool: by_tool.iter().map(|(name, config)| (canonical(name), config.clone())).collect(),
        }
    }

    /// Returns the limit of a tool's results; an unknown tool has the default limit.
    pub fn of(&self, tool: Option<&dyn Tool>) -> OutputRule {
        let definition = tool.map(Tool::definition);
        let own = definition.map(|tool| tool.output_limit).unwrap_or_default();
        let set = definition.and_then(|tool| self.by_tool.get(&tool.spec.name));
        let strategy =
            set.and_then(|set| set.strategy).or(definition.map(|tool| tool.output_strategy)).unwrap_or_default();
        let limit = match strategy {
            TruncationStrategy::None => OutputLimit { chars: usize::MAX, lines: usize::MAX },
            TruncationStrategy::HeadTail | TruncationStrategy::HeadOnly => OutputLimit {
                chars: set.and_then(|set| set.chars).map_or(own.chars, size),
                lines: set.and_then(|set| set.lines).map_or(own.lines, size),
            },
        };
        OutputRule { limit: OutputLimit { chars: limit.chars.min(self.max_chars), ..limit }, strategy }
    }
}

/// The limit of one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputRule {
    pub limit: OutputLimit,
    pub strategy: TruncationStrategy,
}

impl OutputRule {
    /// Returns `text`, cut to `limit`, which is at most that of the rule. The result is never longer than `text`. `stored`
    /// says where the model can read the rest.
    pub fn cut(self, text: &str, limit: OutputLimit, stored: Option<&str>) -> String {
        match self.strategy {
            TruncationStrategy::HeadOnly => truncate_end(text, limit, stored),
            TruncationStrategy::HeadTail | TruncationStrategy::None => truncate_middle(text, limit, stored),
        }
    }
}

/// Records in a result's metadata that it was cut from `original` characters.
pub fn note_cut(metadata: &mut Map<String, Value>, original: usize) {
    metadata.insert(TRUNCATED_KEY.to_owned(), true.into());
    // If the tool itself cut its output, the metadata already holds the length of the whole output.
    metadata.entry(ORIGINAL_KEY).or_insert_with(|| original.into());
}

/// Records how many characters are left in the metadata of a result that was cut.
pub fn note_left(metadata: &mut Map<String, Value>, left: usize) {
    if metadata.contains_key(TRUNCATED_KEY) {
        metadata.insert(LEFT_KEY.to_owned(), left.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::ToolsConfig;
    use crate::tools::testing::ToolFixture;

    #[test]
    fn a_tool_has_its_own_limit_what_is_set_and_never_more_than_all() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        let set = |chars, lines, strategy| OutputConfig { chars, lines, strategy };
        let by_tool = BTreeMap::from([
            ("bash".to_owned(), set(Some(500), None, Some(TruncationStrategy::HeadOnly))),
            ("list_dir".to_owned(), set(None, Some(9), None)),
            ("read_file".to_owned(), set(None, None, Some(TruncationStrategy::None))),
            ("write_file".to_owned(), set(Some(90_000), None, None)),
        ]);
        let limits = OutputLimits::new(12_000, &by_tool);
        for (name, chars, lines, strategy) in [
            ("exec", 500, 500, TruncationStrategy::HeadOnly),
            ("list_dir", 12_000, 9, TruncationStrategy::HeadTail),
            ("read_file", 12_000, usize::MAX, TruncationStrategy::None),
            ("write_file", 12_000, 500, TruncationStrategy::HeadTail),
            ("edit_file", 8_000, 500, TruncationStrategy::HeadTail),
            ("parallel", 12_000, 1_000, TruncationStrategy::HeadTail),
            ("no_such", 8_000, 500, TruncationStrategy::HeadTail),
        ] {
            let tool = fixture.executor.registry().get(name).map(AsRef::as_ref);
            let expected = OutputRule { limit: OutputLimit { chars, lines }, strategy };
            assert_eq!(limits.of(tool), expected, "{name}");
        }
    }
}
