//! The prompt of an agent: a fixed text, or a template over the message and its context.

use serde::Serialize;

use crate::text::{BoundedTemplate, TemplatePurpose};

/// The variables that a template may use.
const NAMES: [&str; 5] = ["user_input", "conversation_history", "user_preferences", "recent_tasks", "files"];

/// The prompt of an agent.
#[derive(Debug)]
pub struct AgentPrompt {
    /// The text of the prompt. Without a template, it is part of the system prompt, which model services cache.
    source: String,
    /// The template that is rendered for each message, and replaces the message.
    template: Option<BoundedTemplate>,
}

/// The values of the template's variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromptValues {
    pub user_input: String,
    pub conversation_history: Vec<PastMessage>,
    pub user_preferences: Vec<UserPreference>,
    pub recent_tasks: Vec<PastTask>,
    /// The paths of the files that came with the message.
    pub files: Vec<String>,
}

/// An earlier message of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastMessage {
    pub role: String,
    pub content: String,
}

/// A known preference of the person who writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UserPreference {
    pub key: String,
    pub value: String,
}

/// A task that was done earlier for the person who writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastTask {
    pub input: String,
    pub result: String,
    pub success: bool,
}

impl AgentPrompt {
    /// Compiles a prompt. Renders it with examples, so that a turn cannot fail because of a fault in it.
    ///
    /// # Errors
    /// States the fault, with the name of a missing key.
    pub fn new(source: &str) -> Result<Self, String> {
        let source = source.trim();
        if source.is_empty() {
            return Err("the prompt is empty".to_owned());
        }
        let template = BoundedTemplate::new(source, TemplatePurpose::Prompt, &NAMES)?;
        let example = template.render(PromptValues::example())?;
        if template.used().is_empty() {
            return Ok(Self { source: example.trim().to_owned(), template: None });
        }
        if !template.used().iter().any(|name| name == NAMES[0]) {
            return Err(
                "the prompt is a template without {{ user_input }}, so that it would not hold the message".to_owned()
            );
        }
        Ok(Self { source: source.to_owned(), template: Some(template) })
    }

    /// Returns the text of the prompt; for a template, its source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the part for the system prompt.
    pub fn fixed(&self) -> Option<&str> {
        self.template.is_none().then_some(self.source.as_str())
    }

    /// Returns the variables whose values the prompt needs for each message.
    pub fn needed(&self) -> &[String] {
        self.template.as_ref().map_or(&[], BoundedTemplate::used)
    }

    /// Returns the text that replaces the message. If the template cannot be rendered with these values, only the message is
    /// filled in, and the error is logged.
    pub fn render(&self, values: &PromptValues) -> Option<String> {
        let template = self.template.as_ref()?;
        Some(template.render(values).unwrap_or_else(|error| {
            tracing::error!(error, "an agent's prompt could not be rendered; only the message is filled in");
            ["{{user_input}}", "{{ user_input }}"]
                .into_iter()
                .fold(self.source.clone(), |text, name| text.replace(name, &values.user_input))
        }))
    }
}

impl PromptValues {
    fn example() -> Self {
        let text = || "example".to_owned();
        Self {
            user_input: text(),
            conversation_history: vec![PastMessage { role: "user".to_owned(), content: text() }],
            user_preferences: vec![UserPreference { key: text(), value: text() }],
            recent_tasks: vec![PastTask { input: text(), result: text(), success: true }],
            files: vec![text()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_checked_when_they_are_read() {
        for (source, expected) in [
            ("You are kind.", Ok("You are kind.")),
            ("  {% raw %}{{ x }}{% endraw %} ", Ok("{{ x }}")),
            ("", Err("the prompt is empty")),
            ("{{ weather }}", Err("no name \"weather\"; there are user_input, conversation_history,")),
            ("{% for m in conversation_history %}{{ m.text }}{% endfor %}", Err("template and is wrong (line 1)")),
            ("{% if %}", Err("template and is wrong (line 1)")),
            ("{{ user_input * 9 }}", Err("does not multiply")),
        ] {
            match (AgentPrompt::new(source), expected) {
                (Ok(prompt), Ok(expected)) => assert_eq!(prompt.fixed(), Some(expected), "{source}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{source}: {error}"),
                (other, _) => panic!("{source}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_template_that_fails_in_a_turn_still_holds_the_message() {
        let values = PromptValues { user_input: "hello {{ x }}".to_owned(), ..PromptValues::default() };
        for (source, expected) in [
            ("Q: {{ user_input }}", "Q: hello {{ x }}"),
            (
                "{% for t in recent_tasks %}{{ t.input }}{% else %}none{% endfor %}: {{ user_input }}",
                "none: hello {{ x }}",
            ),
            // The example contains a preference, but these values contain none.
            (
                "{{ user_preferences[0].value }} {{user_input}} {{ user_input }}",
                "{{ user_preferences[0].value }} hello {{ x }} hello {{ x }}",
            ),
        ] {
            let prompt = AgentPrompt::new(source).unwrap();
            assert_eq!((prompt.fixed(), prompt.render(&values).as_deref()), (None, Some(expected)), "{source}");
        }
        assert_eq!(AgentPrompt::new("fixed").unwrap().render(&values), None);
    }
}
