//! The ReAct format in the prompt and in the conversation.

use serde_json::Value;

use crate::chat::{ToolCall, ToolSpec};
use crate::turn::orchestrators::text_form::TextForm;

/// The note after the last message if no more calls are allowed.
pub const FINAL_ANSWER_NOTE: &str =
    "(No more actions can be taken now. Write `Final Answer:` and answer with what you know.)";

const HOW: &str = "# Tools\n\n\
    You can use tools. There is no other way to call one than to write exactly this:\n\n\
    Thought: what you want to find out or do, and why\n\
    Action: the name of one tool\n\
    Action Input: its arguments, as one JSON object\n\n\
    Then stop. The tool runs, and you are told what came of it:\n\n\
    Observation: the result of the tool\n\n\
    Never write an Observation yourself. Go on with the next Thought and Action, as often as you need. When you know \
    enough, or need no tool at all, write\n\n\
    Thought: why you can answer now\n\
    Final Answer: what the user is told, in as many lines as it takes\n\n\
    These are the tools:";

/// Returns the system prompt with the format and the tools. The same tools yield the same bytes.
pub fn system_prompt(system: &str, tools: &[ToolSpec]) -> String {
    if tools.is_empty() {
        return system.to_owned();
    }
    let gap = if system.is_empty() { "" } else { "\n\n---\n\n" };
    let mut prompt = format!("{system}{gap}{HOW}");
    for tool in tools {
        prompt.push_str(&format!("\n\n## {}\n{}\n{}", tool.name, tool.description.trim(), arguments(tool)));
    }
    prompt
}

/// Describes the arguments of a tool, one line each.
fn arguments(tool: &ToolSpec) -> String {
    let Some(properties) = tool.parameters.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty())
    else {
        return "Arguments: none, write {}".to_owned();
    };
    let needed = needed(tool);
    let mut lines = "Arguments:".to_owned();
    for (name, schema) in properties {
        let kind = match schema.get("type").and_then(Value::as_str) {
            Some(kind @ ("string" | "integer" | "number" | "boolean")) => kind.to_owned(),
            // Lists, objects and alternatives are shown as their schema.
            _ => {
                let mut schema = schema.clone();
                if let Some(map) = schema.as_object_mut() {
                    map.remove("description");
                }
                schema.to_string()
            }
        };
        let need = if needed.contains(&name.as_str()) { "required" } else { "optional" };
        lines.push_str(&format!("\n- {name} ({kind}, {need})"));
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            let choices: Vec<_> = choices.iter().map(Value::to_string).collect();
            lines.push_str(&format!(", one of {}", choices.join(", ")));
        }
        if let Some(words) = schema.get("description").and_then(Value::as_str) {
            lines.push_str(&format!(": {words}"));
        }
    }
    lines
}

fn needed(tool: &ToolSpec) -> Vec<&str> {
    let required = tool.parameters.get("required").and_then(Value::as_array);
    required.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Writes earlier calls in the ReAct format, so that the model continues in that format.
pub struct ReactForm<'a> {
    pub tools: &'a [ToolSpec],
}

impl TextForm for ReactForm<'_> {
    fn assistant_text(&self, content: &str, calls: &[ToolCall]) -> String {
        let content = content.trim();
        if calls.is_empty() {
            return format!("Final Answer: {content}");
        }
        let mut lines = Vec::with_capacity(calls.len() + 1);
        if !content.is_empty() {
            lines.push(format!("Thought: {content}"));
        }
        for ToolCall { name, arguments, .. } in calls {
            lines.push(format!("Action: {name}\nAction Input: {arguments}"));
        }
        lines.join("\n")
    }

    fn result(&self, call: Option<&ToolCall>, name: &str, content: &str, count: usize) -> String {
        let whose = if count > 1 { format!("({name}) ") } else { String::new() };
        let mut text = format!("Observation: {whose}{content}");
        let is_object = |call: &ToolCall| serde_json::from_str::<Value>(&call.arguments).is_ok_and(|it| it.is_object());
        if !self.tools.is_empty() && call.is_some_and(|call| !is_object(call)) {
            text.push_str(&self.reminder(name));
        }
        text
    }
}

impl ReactForm<'_> {
    /// Returns a reminder of the format for a call that was malformed.
    fn reminder(&self, name: &str) -> String {
        let tool = self.tools.iter().find(|tool| tool.name == name);
        let arguments: Vec<_> = tool.map(needed).unwrap_or_default().iter().map(|it| format!("\"{it}\": …")).collect();
        format!(
            "\n\n[Write it as\nAction: {name}\nAction Input: {{{}}}\nwith the arguments as one whole JSON object.]",
            arguments.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::ChatMessage;
    use crate::turn::orchestrators::text_form::as_text;

    fn tools() -> Vec<ToolSpec> {
        vec![
            ToolSpec {
                name: "read_file".to_owned(),
                description: "Reads a file.".to_owned(),
                parameters: json!({"type": "object", "required": ["path"], "properties": {
                    "path": {"type": "string", "description": "where it is"},
                    "mode": {"type": "string", "enum": ["a", "b"]},
                    "lines": {"type": "array", "items": {"type": "integer"}, "description": "which"}}}),
            },
            ToolSpec { name: "now".to_owned(), description: "The time.\n".to_owned(), parameters: json!({}) },
        ]
    }

    #[test]
    fn the_system_prompt_describes_the_tools() {
        let prompt = system_prompt("Be kind.", &tools());
        let (start, tools) = prompt.split_once("These are the tools:").unwrap();
        assert!(start.starts_with("Be kind.\n\n---\n\n# Tools"));
        assert_eq!(
            tools,
            "\n\n## read_file\nReads a file.\nArguments:\n\
             - lines ({\"items\":{\"type\":\"integer\"},\"type\":\"array\"}, optional): which\n\
             - mode (string, optional), one of \"a\", \"b\"\n\
             - path (string, required): where it is\n\n\
             ## now\nThe time.\nArguments: none, write {}"
        );
        assert_eq!(system_prompt("Be kind.", &[]), "Be kind.");
    }

    #[test]
    fn calls_and_results_alternate_as_text() {
        let call = |id: &str, name: &str, arguments: &str| ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        let calls = |content: &str, tool_calls| ChatMessage::Assistant {
            content: content.to_owned(),
            reasoning: None,
            tool_calls,
        };
        let result = |id: &str, name: &str, content: &str| ChatMessage::Tool {
            call_id: id.to_owned(),
            name: name.to_owned(),
            content: content.to_owned(),
            images: Vec::new(),
        };
        let messages = [
            ChatMessage::user("first"),
            ChatMessage::user("second"),
            calls("I look.", vec![call("1", "now", "{}"), call("2", "read_file", "notes")]),
            result("1", "now", "12:00"),
            result("2", "read_file", "Error: not JSON"),
            calls("", vec![call("3", "now", "{}")]),
            result("3", "now", "12:01"),
            ChatMessage::assistant("It is noon."),
            ChatMessage::user("thanks"),
        ];
        let converted = as_text(messages.iter(), &ReactForm { tools: &tools() });
        let lines: Vec<_> = converted
            .iter()
            .map(|message| match message {
                ChatMessage::User { content, .. } => format!("U {content}"),
                ChatMessage::Assistant { content, tool_calls, .. } if tool_calls.is_empty() => format!("A {content}"),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            lines,
            [
                "U first\n\nsecond",
                "A Thought: I look.\nAction: now\nAction Input: {}\nAction: read_file\nAction Input: notes",
                "U Observation: (now) 12:00\n\nObservation: (read_file) Error: not JSON\n\n\
                 [Write it as\nAction: read_file\nAction Input: {\"path\": …}\nwith the arguments as one whole JSON object.]",
                "A Action: now\nAction Input: {}",
                "U Observation: 12:01",
                "A Final Answer: It is noon.",
                "U thanks",
            ]
        );
        assert_eq!(crate::llm::check_messages(&converted), Ok(()));
    }
}
