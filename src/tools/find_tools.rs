//! The tool `find_tools`. Rarely used tools are in no request until a model finds them with this tool.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::arguments::read_arguments;
use super::names::{FIND_TOOLS, ToolOffer, offer_of};
use super::tool::{
    CallRunner, ReplayPolicy, RowEffect, Tool, ToolAccess, ToolContext, ToolDefinition, ToolEffect, ToolOutcome,
};
use super::tool_result::ToolResult;
use crate::chat::ToolSpec;
use crate::store::session_tools;

/// The maximum number of tools that one query finds.
const MAX_FOUND: usize = 5;
/// The minimum length of a query word, in characters. Shorter words, such as "a" and "to", find nothing.
const MIN_WORD: usize = 3;

#[derive(Deserialize, JsonSchema)]
struct FindToolsArgs {
    /// A name, or what is to be done.
    query: String,
}

/// The tool `find_tools`. The specifications of the tools that it finds are in all later requests of the conversation.
pub struct FindTools {
    definition: ToolDefinition,
}

impl FindTools {
    pub fn new() -> Self {
        // The registry appends the names of the tools that are not offered to the description.
        let definition =
            ToolDefinition::changing::<FindToolsArgs>(FIND_TOOLS, "Get further tools", ReplayPolicy::Atomic);
        Self { definition: ToolDefinition { access: ToolAccess::Reads, ..definition } }
    }
}

#[async_trait]
impl Tool for FindTools {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Always true: finding a tool does not permit calling it.
    fn allows_untrusted(&self, _: &Value, _: &ToolContext) -> bool {
        true
    }

    async fn call(&self, _: Value, _: &ToolContext) -> ToolOutcome {
        ToolResult::failed("find_tools needs the tools of a turn").into()
    }

    async fn call_with_runner(&self, arguments: Value, context: &ToolContext, runner: &dyn CallRunner) -> ToolOutcome {
        let args: FindToolsArgs = match read_arguments(&arguments) {
            Ok(args) => args,
            Err(error) => return ToolResult::failed(error).into(),
        };
        let tools: Vec<&dyn Tool> = runner.tool_names().into_iter().filter_map(|name| runner.tool(name)).collect();
        let found = find(&args.query, &tools);
        if found.is_empty() {
            let hidden = tools.iter().filter(|tool| !tool.definition().is_offered);
            let lines: Vec<_> = hidden.map(|tool| line(tool.spec())).collect();
            let error =
                format!("no tool fits {:?}; ask for one of these by its name:\n{}", args.query, lines.join("\n"));
            return ToolResult::failed(error).into();
        }
        let lines: Vec<_> = found.iter().map(|tool| line(tool.spec())).collect();
        let mut result = ToolResult::ok(format!("From now on you can call:\n{}", lines.join("\n")));
        let names: BTreeSet<String> = found.iter().map(|tool| tool.spec().name.clone()).collect();
        result.found_tools.clone_from(&names);
        let session = context.session.to_string();
        // The found tools are stored for the rest of the conversation.
        let rows = RowEffect::new(move |connection| session_tools::add(connection, &session, &names), || ());
        ToolOutcome { result, effects: vec![ToolEffect::Rows(rows)] }
    }
}

/// Returns the best matches, best first: the tools that the query names, otherwise the tools whose name, aliases or description
/// share words with the query.
fn find<'a>(query: &str, tools: &[&'a dyn Tool]) -> Vec<&'a dyn Tool> {
    let query = query.to_lowercase();
    let words: BTreeSet<&str> =
        query.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    // The names of foreign tools may contain hyphens and capital letters.
    let names: BTreeSet<&str> = query.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').collect();
    let is_named = |tool: &&&dyn Tool| {
        let name = tool.spec().name.to_lowercase();
        words.contains(name.as_str()) || names.contains(name.as_str())
    };
    let named: Vec<_> = tools.iter().filter(is_named).copied().collect();
    if !named.is_empty() {
        return named;
    }
    let mut scored: Vec<_> =
        tools.iter().map(|tool| (score(&words, *tool), *tool)).filter(|(score, _)| *score > 0).collect();
    scored.sort_by_key(|(score, _)| Reverse(*score));
    scored.into_iter().take(MAX_FOUND).map(|(_, tool)| tool).collect()
}

/// Counts the words of the query that are prefixes of words in the tool's texts. Matches in names count more.
fn score(words: &BTreeSet<&str>, tool: &dyn Tool) -> usize {
    let spec = tool.spec();
    let hint = match offer_of(&spec.name) {
        ToolOffer::SearchWithHint(hint) => hint,
        ToolOffer::Always | ToolOffer::Search => "",
    };
    let names = [spec.name.as_str(), hint]
        .into_iter()
        .chain(tool.definition().aliases.iter().copied())
        .collect::<Vec<_>>()
        .join(" ");
    let matches = |text: &str, word: &str| {
        let text = text.to_lowercase();
        // "reminders" finds "reminder", "scheduling" finds "schedule".
        let stem = &word[..word.floor_char_boundary(word.len().saturating_sub(3).max(4))];
        text.split(|c: char| !c.is_alphanumeric()).any(|own| own.starts_with(stem))
    };
    // The description names a group of tools by their common prefix, such as `git_*`.
    let words = words.iter().map(|word| word.trim_matches('_')).filter(|word| word.chars().count() >= MIN_WORD);
    words.map(|word| 3 * usize::from(matches(&names, word)) + usize::from(matches(&spec.description, word))).sum()
}

fn line(spec: &ToolSpec) -> String {
    format!("- {}: {}", spec.name, spec.description)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tools::testing::ToolFixture;
    use crate::tools::{Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult, ToolsConfig};

    struct NamedTool(ToolDefinition);

    #[async_trait::async_trait]
    impl Tool for NamedTool {
        fn definition(&self) -> &ToolDefinition {
            &self.0
        }

        async fn call(&self, _: serde_json::Value, _: &ToolContext) -> ToolOutcome {
            ToolResult::ok("").into()
        }
    }

    #[test]
    fn the_names_of_foreign_tools_are_found() {
        let tools = ["other__get-Issue", "other__get"]
            .map(|name| NamedTool(ToolDefinition::reading::<super::FindToolsArgs>(name, "Unrelated.")));
        let tools: Vec<&dyn Tool> = tools.iter().map(|tool| tool as &dyn Tool).collect();
        for (query, expected) in [
            ("other__get-Issue", &["other__get-Issue", "other__get"][..]),
            ("Use other__get-issue, please", &["other__get-Issue", "other__get"]),
            ("other__GET", &["other__get"]),
        ] {
            let found: Vec<_> = super::find(query, &tools).iter().map(|tool| tool.spec().name.clone()).collect();
            assert_eq!(found, expected, "{query}");
        }
    }

    #[tokio::test]
    async fn a_tool_is_found_by_its_name_or_by_what_it_does() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        for (query, first) in [
            ("process", "- process: "),
            ("see background commands", "- process: "),
            ("run several calls at the same time", "- parallel: "),
            ("send a message to somebody else", "- message: "),
            ("MESSAGE parallel", "- message: "),
            ("git_*", "- git_status: "),
            ("run the tests", "- run_test: "),
        ] {
            let rendered = fixture.rendered("find_tools", json!({ "query": query })).await;
            assert!(rendered.lines().nth(1).is_some_and(|line| line.starts_with(first)), "{query}: {rendered}");
        }
        let rendered = fixture.rendered("find_tools", json!({ "query": "提醒" })).await;
        assert!(
            rendered.starts_with("Error: no tool fits \"提醒\"") && rendered.contains("\n- process: "),
            "{rendered}"
        );
        assert!(!rendered.contains("- read_file"), "{rendered}");
    }
}
