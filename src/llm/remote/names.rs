//! Converts names of tools to names that services accept.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use crate::chat::ToolSpec;

/// The longest tool name that all services accept.
const NAME_LIMIT: usize = 64;

/// The names of tools at services, which accept only `[a-zA-Z0-9_-]{1,64}`.
#[derive(Debug, Default)]
pub struct ToolNames {
    /// The tools whose name had to change: the name here, and the name at the service.
    changed: Vec<(String, String)>,
}

impl ToolNames {
    pub fn of(tools: &[ToolSpec]) -> Self {
        let mut names = Self::default();
        for tool in tools.iter().filter(|tool| !is_clean(&tool.name)) {
            let clean = cleaned(&tool.name);
            let is_taken = |name: &str| {
                tools.iter().any(|other| other.name == name) || names.changed.iter().any(|(_, taken)| taken == name)
            };
            let mut name = clean.clone();
            for number in 2.. {
                if !is_taken(&name) {
                    break;
                }
                let suffix = format!("_{number}");
                name = clean[..clean.len().min(NAME_LIMIT - suffix.len())].to_owned() + &suffix;
            }
            names.changed.push((tool.name.clone(), name));
        }
        names
    }

    /// Returns the service's name of a tool.
    pub fn service_name<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        match self.changed.iter().find(|(here, _)| here == name) {
            Some((_, there)) => Cow::Borrowed(there),
            None if is_clean(name) => Cow::Borrowed(name),
            // The model invented this tool, or the tool is no longer offered.
            None => Cow::Owned(cleaned(name)),
        }
    }

    /// Returns the name here of the tool that the service calls `name`.
    pub fn original_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.changed.iter().find(|(_, there)| there == name).map_or(name, |(here, _)| here)
    }
}

/// Returns the id that a service `sent` for a call. If it sent none or one that is taken, returns a new id with a number from
/// `first` on.
pub fn unique_call_id(sent: &str, first: usize, is_taken: impl Fn(&str) -> bool) -> String {
    if !sent.is_empty() && !is_taken(sent) {
        return sent.to_owned();
    }
    (first..).map(|number| format!("call_{number}")).find(|id| !is_taken(id)).unwrap_or_default()
}

/// Returns `wanted`, or the first of `wanted_2`, `wanted_3` and so on that is not taken. `is_taken` gets each name once, and may
/// reserve the name for which it returns false: that one is returned.
pub fn numbered_name(wanted: &str, mut is_taken: impl FnMut(&str) -> bool) -> String {
    let (mut name, mut number) = (wanted.to_owned(), 1_u64);
    while is_taken(&name) {
        number += 1;
        name = format!("{wanted}_{number}");
    }
    name
}

/// Returns true if a text is one whole JSON object, as the arguments of a call must be.
pub fn is_json_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn is_clean_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-')
}

fn is_clean(name: &str) -> bool {
    (1..=NAME_LIMIT).contains(&name.len()) && name.chars().all(is_clean_char)
}

fn cleaned(name: &str) -> String {
    let name: String = name.chars().map(|char| if is_clean_char(char) { char } else { '_' }).take(NAME_LIMIT).collect();
    if name.is_empty() { "tool".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.to_owned(), description: "Does it.".to_owned(), parameters: json!({"type": "object"}) }
    }

    #[test]
    fn tool_names_are_cleaned_made_unique_and_mapped_back() {
        let long = "l".repeat(70);
        let tools = [tool("ok-1"), tool("a.b"), tool("a b"), tool("a_b"), tool("时间"), tool(""), tool(&long)];
        let names = ToolNames::of(&tools);
        let there: Vec<_> = tools.iter().map(|tool| names.service_name(&tool.name).into_owned()).collect();
        assert_eq!(there[..6], ["ok-1", "a_b_2", "a_b_3", "a_b", "__", "tool"]);
        assert_eq!(there[6].len(), NAME_LIMIT);
        for (tool, there) in tools.iter().zip(&there) {
            assert!(is_clean(there), "{there}");
            assert_eq!(names.original_name(there), tool.name);
        }
        assert_eq!(names.original_name("made_up"), "made_up");
    }

    #[test]
    fn arguments_must_be_one_whole_object() {
        for (text, is_object) in [
            ("{}", true),
            (" {\"a\": [1]} ", true),
            ("", false),
            ("[]", false),
            ("\"x\"", false),
            ("{\"a\":", false),
            ("{} {}", false),
        ] {
            assert_eq!(is_json_object(text), is_object, "{text}");
        }
    }
}
