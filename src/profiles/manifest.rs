//! `skill.yaml`: the profile of an agent.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

use super::definition::AgentDefinition;
use crate::text::{one_line, truncate};
use crate::tools::{canonical_name, nearest_tool};

/// The name of the file.
pub const PROFILE_FILE: &str = "skill.yaml";

/// The maximum nesting depth, and the maximum number of events, of the YAML.
const MAX_DEPTH: usize = 32;
const MAX_EVENTS: usize = 20_000;
/// The maximum lengths of a name, a description, and an entry of a list, in characters.
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_024;
const MAX_ENTRY: usize = 200;
/// The maximum number of entries of a list.
const MAX_ENTRIES: usize = 200;
/// The fields of other systems that only people read.
const DESCRIPTIVE: [&str; 2] = ["inputs", "outputs"];
const KNOWN: [&str; 21] = [
    "agents", "branches", "workflow", "name", "version", "description", "orchestrator", "agent", "prompt", "llm",
    "tools", "permissions", "skills", "rounds", "memory", "max_iterations", "middleware", "hooks", "metadata",
    "inputs", "outputs",
];

/// The line in the file, if known, and the problem.
pub(super) type ProfileFileError = (Option<usize>, String);

/// The parsed content of a `skill.yaml`.
#[derive(Debug, Default)]
pub(super) struct ProfileManifest {
    pub name: String,
    pub version: String,
    /// The agent whose prompt the profile uses if it has no prompt of its own.
    pub agent: Option<String>,
    pub prompt: PromptSource,
    /// The file in the profile's folder that contains its steps.
    pub workflow: Option<String>,
    /// The other fields, which have the same meaning as in `[agents.NAME]`.
    pub settings: AgentDefinition,
    /// The fields that are not used.
    pub warnings: Vec<ProfileFileError>,
}

/// The source of a profile's prompt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum PromptSource {
    /// The prompt of the agent that the profile names, otherwise of the assistant.
    #[default]
    OfAgent,
    Inline(String),
    /// A file in the profile's folder.
    File(String),
}

impl ProfileManifest {
    /// Parses the file.
    ///
    /// # Errors
    /// The file is not valid YAML, a required field is missing, or a field requests something that daoyou does not support.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProfileFileError> {
        let text = std::str::from_utf8(bytes).map_err(|_| (None, "is not valid UTF-8; save it as UTF-8".to_owned()))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let map = parse_yaml(text, MAX_ENTRY).map_err(|(line, cause)| {
            (line.and_then(|line| usize::try_from(line).ok()), format!("is not valid YAML: {cause}"))
        })?;
        let fields = ProfileFields { text, map };
        let required = |key: &str| {
            let text = fields.text(key)?.filter(|text| !text.is_empty());
            text.ok_or_else(|| (fields.line(key), format!("has no {key}; add `{key}: …`")))
        };
        let name = required("name")?;
        if !is_name(&name) {
            let rule = format!("a name has 1 to {MAX_NAME} letters, digits, - and _");
            return Err((fields.line("name"), format!("the name {:?} is not valid: {rule}", truncate(&name, 80))));
        }
        fields.refuse(
            "hooks",
            "daoyou runs no hooks of profiles; say in the prompt what is to be done before and after, and remove them",
        )?;
        fields.refuse(
            "middleware",
            "middleware is set for all agents, by agent.middleware in config.toml; remove it here",
        )?;
        let LlmFields { model, temperature, max_tokens } = fields.field("llm")?.unwrap_or_default();
        let manifest = Self {
            version: required("version")?,
            settings: AgentDefinition {
                description: truncate(&one_line(&required("description")?), MAX_DESCRIPTION),
                orchestrator: fields.field("orchestrator")?,
                model: model.filter(|model| !model.trim().is_empty()).unwrap_or_default(),
                temperature,
                max_tokens,
                max_iterations: fields.field("max_iterations")?,
                tools: fields.list("tools")?,
                skills: fields.list("skills")?,
                agents: fields.list("agents")?,
                branches: fields.field("branches")?.unwrap_or_default(),
                permissions: fields.field("permissions")?,
                rounds: fields.field("rounds")?,
                memory: fields.field("memory")?,
                ..AgentDefinition::default()
            },
            name,
            agent: fields.text("agent")?.filter(|name| !name.is_empty()),
            prompt: fields.prompt()?,
            workflow: fields.text("workflow")?.filter(|file| !file.is_empty()),
            warnings: fields.warnings(),
        };
        let in_range = |key: &str, is_valid: bool, range: &str| match is_valid {
            true => Ok(()),
            false => Err((fields.line(key), format!("{key} is out of range; it is {range}"))),
        };
        let settings = &manifest.settings;
        in_range("llm", temperature.is_none_or(|t| (0.0..=2.0).contains(&t)), "a temperature from 0 to 2")?;
        in_range("llm", max_tokens != Some(0), "max_tokens of 1 or more")?;
        for (key, number) in [("rounds", settings.rounds), ("max_iterations", settings.max_iterations)] {
            in_range(key, number.is_none_or(|number| (1..=1_000).contains(&number)), "from 1 to 1000")?;
        }
        Ok(manifest)
    }
}

/// Returns true for a name that is valid in commands and file names.
pub(super) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    (1..=MAX_NAME).contains(&name.chars().count()) && name.chars().all(is_plain)
}

/// Returns a tool's canonical name. The tools of an MCP server are known only when it runs, so their names are accepted unchecked.
///
/// # Errors
/// The end of a sentence that begins with the name.
pub(super) fn canonical_tool_name(name: &str) -> Result<String, String> {
    canonical_name(name).or(Some(name).filter(|name| name.contains("__"))).map(str::to_owned).ok_or_else(|| {
        let near = nearest_tool(name).map_or_else(String::new, |near| format!("; the nearest is {near:?}"));
        format!("is not a tool{near}")
    })
}

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LlmFields {
    model: Option<String>,
    temperature: Option<f64>,
    max_tokens: Option<u32>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PromptFields {
    file: Option<String>,
    inline: Option<String>,
    use_agent_default: bool,
}

/// Parses YAML within limits. An error contains its line, if known, and its cause in at most `max_chars` characters.
pub(super) fn parse_yaml<T: DeserializeOwned>(text: &str, max_chars: usize) -> Result<T, (Option<u64>, String)> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, max_events: MAX_EVENTS },
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map(|location| location.line());
        (line, truncate(&one_line(&error.without_snippet().to_string()), max_chars))
    })
}

/// The fields of a file.
struct ProfileFields<'a> {
    text: &'a str,
    map: Map<String, Value>,
}

impl ProfileFields<'_> {
    /// Returns the line on which a field begins.
    fn line(&self, key: &str) -> Option<usize> {
        let is_key = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'));
        self.text.lines().position(is_key).map(|at| at + 1)
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn field<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ProfileFileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        serde_json::from_value(value.clone()).map(Some).map_err(|error| {
            (
                self.line(key),
                format!("{key} is not valid: {}", truncate(&one_line(&error.to_string()), MAX_DESCRIPTION)),
            )
        })
    }

    /// Returns a text on one line. A number is accepted as a text.
    fn text(&self, key: &str) -> Result<Option<String>, ProfileFileError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim().to_owned())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err((self.line(key), format!("{key} is not text"))),
        }
    }

    fn list(&self, key: &str) -> Result<Option<Vec<String>>, ProfileFileError> {
        let Some(list) = self.field::<Vec<String>>(key)? else { return Ok(None) };
        if list.len() > MAX_ENTRIES || list.iter().any(|entry| entry.chars().count() > MAX_ENTRY) {
            let reason = format!("{key} has at most {MAX_ENTRIES} entries of {MAX_ENTRY} characters");
            return Err((self.line(key), reason));
        }
        Ok(Some(list.iter().map(|entry| entry.trim().to_owned()).collect()))
    }

    fn prompt(&self) -> Result<PromptSource, ProfileFileError> {
        if let Some(Value::String(text)) = self.get("prompt") {
            return Ok(PromptSource::Inline(text.clone()));
        }
        let PromptFields { file, inline, use_agent_default } = self.field("prompt")?.unwrap_or_default();
        match (file, inline, use_agent_default) {
            (Some(file), None, false) => Ok(PromptSource::File(file)),
            (None, Some(text), false) => Ok(PromptSource::Inline(text)),
            (None, None, _) => Ok(PromptSource::OfAgent),
            _ => {
                let reason = "prompt: give one of file, inline and use_agent_default".to_owned();
                Err((self.line("prompt"), reason))
            }
        }
    }

    /// Refuses a field that is not empty.
    fn refuse(&self, key: &str, reason: &str) -> Result<(), ProfileFileError> {
        let is_empty = |value: &Value| match value {
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        match self.get(key).filter(|value| !is_empty(value)) {
            Some(_) => Err((self.line(key), format!("{key}: {reason}"))),
            None => Ok(()),
        }
    }

    /// Returns a warning for each field that is not used.
    fn warnings(&self) -> Vec<ProfileFileError> {
        let unknown = self.map.keys().filter(|key| !KNOWN.contains(&key.as_str())).take(MAX_ENTRIES);
        let unknown = unknown.map(|key| {
            (self.line(key), format!("{:?} is not a field of a profile; it is not used", truncate(&one_line(key), 80)))
        });
        let of_people = DESCRIPTIVE.iter().filter(|key| self.get(key).is_some());
        let of_people = of_people.map(|key| (self.line(key), format!("{key} is not used; say it in the prompt")));
        unknown.chain(of_people).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::definition::AgentOrchestrator;

    const HEAD: &str = "name: a\nversion: 1.0\ndescription: d\n";

    #[test]
    fn files_are_read_or_rejected_with_a_reason() {
        for (text, expected) in [
            ("version: 1\ndescription: d", "has no name; add `name: …`"),
            ("name: a\ndescription: d", "has no version"),
            ("name: a\nversion: 1\n", "has no description"),
            ("name: a b\nversion: 1\ndescription: d", "\"a b\" is not valid"),
            ("name: [a]\nversion: 1\ndescription: d", "name is not text"),
            ("a: [", "is not valid YAML"),
            ("- a", "is not valid YAML"),
            (&format!("{HEAD}hooks: [x]"), "runs no hooks"),
            (&format!("{HEAD}middleware: [x]"), "agent.middleware"),
            (&format!("{HEAD}orchestrator: magic"), "orchestrator is not valid: unknown variant `magic`"),
            (&format!("{HEAD}tools: x"), "tools is not valid"),
            (&format!("{HEAD}llm: {{temperature: 3}}"), "from 0 to 2"),
            (&format!("{HEAD}llm: {{temprature: 1}}"), "unknown field `temprature`"),
            (&format!("{HEAD}rounds: 0"), "rounds is out of range"),
            (&format!("{HEAD}memory: mine"), "memory is not valid"),
            (&format!("{HEAD}prompt: {{file: a, inline: b}}"), "give one of"),
            (&format!("{HEAD}permissions: {{read: [{{pattern: a, permission: maybe}}]}}"), "unknown variant `maybe`"),
        ] {
            let (_, reason) = ProfileManifest::parse(text.as_bytes()).unwrap_err();
            assert!(reason.contains(expected), "{text}: {reason}");
        }
        let (line, _) = ProfileManifest::parse(format!("{HEAD}hooks: [x]").as_bytes()).unwrap_err();
        assert_eq!(line, Some(4));
    }

    #[test]
    fn the_example_of_the_design_is_read() {
        let text = "name: chat_assistant\nversion: 1.0.0\ndescription: Chats\norchestrator: react\nagent: MainAgent\n\
                    prompt:\n  use_agent_default: true\nllm:\n  model: qwen-max\n  temperature: 0.7\n  max_tokens: 4000\n\
                    middleware: []\ntools:\n  - repo_map\n  - list_files\npermissions:\n  read:\n    - pattern: '*'\n      \
                    permission: allow\nhooks: []\ninputs:\n  - name: x\nmetadata:\n  category: chat\nlicence: mine\n";
        let read = ProfileManifest::parse(text.as_bytes()).unwrap();
        assert_eq!((read.name.as_str(), read.version.as_str()), ("chat_assistant", "1.0.0"));
        let settings = read.settings;
        assert_eq!((settings.orchestrator, read.agent.as_deref()), (Some(AgentOrchestrator::React), Some("MainAgent")));
        assert_eq!(
            (settings.model.as_str(), settings.temperature, settings.max_tokens),
            ("qwen-max", Some(0.7), Some(4000))
        );
        assert_eq!((read.prompt, settings.tools.map(|tools| tools.len())), (PromptSource::OfAgent, Some(2)));
        let warnings: Vec<_> = read.warnings.iter().map(|(line, _)| *line).collect();
        assert_eq!(warnings, [Some(25), Some(21)], "{:?}", read.warnings);
    }
}
