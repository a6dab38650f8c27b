//! `workflow.yaml`: parsed and checked, so that a turn cannot fail because of a fault in it.

use std::collections::{BTreeMap, BTreeSet};

use daoyou_channels::text::hex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serde_saphyr::Spanned;
use sha2::{Digest, Sha256};

use crate::profiles::manifest::{canonical_tool_name, parse_yaml};
use crate::text::{BoundedTemplate, TemplatePurpose, one_line, truncate};

/// The file in the profile's folder that contains the workflow, if the profile names no other.
pub const WORKFLOW_FILE: &str = "workflow.yaml";
/// The maximum number of steps, and of inputs.
const MAX_STEPS: usize = 50;
const MAX_INPUTS: usize = 20;
/// The maximum number of retries of a failed step.
const MAX_RETRIES: u32 = 5;
/// The maximum lengths of the name of a step or input, and of a description, in characters.
const MAX_ID: usize = 40;
const MAX_DESCRIPTION: usize = 500;
/// The variables that templates may use.
const NAMES: [&str; 3] = ["input", "inputs", "steps"];
const FIELDS: [&str; 3] = ["output", "status", "error"];
/// The tool that delegates a task to an agent.
pub const SPAWN: &str = "spawn";

/// The parsed workflow of an agent.
#[derive(Debug)]
pub struct Workflow {
    /// SHA-256 of the file. A turn continues only with the workflow that it began with.
    pub hash: String,
    pub inputs: BTreeMap<String, InputFields>,
    /// The stages run one after the other. The steps of a stage run concurrently.
    pub(super) stages: Vec<Vec<WorkflowStep>>,
    /// The template of the output; `None` for the outputs of the last stage.
    pub(super) output: Option<BoundedTemplate>,
}

/// A step of a workflow.
#[derive(Debug)]
pub(super) struct WorkflowStep {
    pub id: String,
    pub line: u64,
    pub action: StepAction,
    pub when: Option<BoundedTemplate>,
    pub retries: u32,
    pub on_error: StepFailurePolicy,
}

/// The action of a step.
#[derive(Debug)]
pub(super) enum StepAction {
    Agent { agent: String, model: Option<String>, prompt: Box<BoundedTemplate> },
    Tool { tool: String, arguments: Vec<(String, ArgumentTemplate)> },
}

/// An argument of a tool. Each text in it is a template.
#[derive(Debug)]
pub(super) enum ArgumentTemplate {
    Literal(Value),
    Text(Box<BoundedTemplate>),
    List(Vec<ArgumentTemplate>),
    Map(Vec<(String, ArgumentTemplate)>),
}

/// What the workflow does when a step has failed in all attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StepFailurePolicy {
    #[default]
    Stop,
    Continue,
}

/// An input in addition to the message itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct InputFields {
    pub description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    pub required: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkflowFields {
    #[serde(default)]
    inputs: BTreeMap<String, Option<InputFields>>,
    steps: Vec<Spanned<StepFields>>,
    output: Option<String>,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StepFields {
    id: String,
    agent: Option<String>,
    model: Option<String>,
    prompt: Option<String>,
    tool: Option<String>,
    arguments: Option<Map<String, Value>>,
    when: Option<String>,
    retries: Option<u32>,
    on_error: Option<StepFailurePolicy>,
    parallel: Option<Vec<Spanned<StepFields>>>,
}

/// The state of a step, for templates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct StepState {
    pub output: String,
    /// `done`, `failed` or `skipped`.
    pub status: &'static str,
    /// The reason of the failure; empty otherwise.
    pub error: String,
}

/// The values of the template's variables.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct WorkflowValues {
    /// The message.
    pub input: String,
    pub inputs: BTreeMap<String, Value>,
    pub steps: BTreeMap<String, StepState>,
}

/// The line, if known, and what is wrong.
type WorkflowFileError = (Option<u64>, String);

impl Workflow {
    /// Parses a workflow.
    ///
    /// # Errors
    /// States the fault, with its line if known, as `line 7: step "a": …`.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|(line, wrong)| match line {
            Some(line) => format!("line {line}: {wrong}"),
            None => wrong,
        })
    }

    fn read(text: &str) -> Result<Self, WorkflowFileError> {
        let source = text.strip_prefix('\u{feff}').unwrap_or(text);
        let fields: WorkflowFields = parse_yaml(source, MAX_DESCRIPTION)?;
        let inputs = inputs_of(fields.inputs).map_err(|wrong| (None, wrong))?;
        let mut reader = StepReader { known: WorkflowValues::example(&inputs), ids: BTreeSet::new() };
        let mut stages = Vec::new();
        for Spanned { value, referenced, .. } in fields.steps {
            stages.push(reader.stage(value, referenced.line())?);
        }
        if reader.ids.is_empty() || reader.ids.len() > MAX_STEPS {
            return Err((None, format!("has {} steps; a workflow has 1 to {MAX_STEPS}", reader.ids.len())));
        }
        let output = fields.output.map(|source| template(&source, &reader.known)).transpose();
        let output = output.map_err(|wrong| (None, format!("output: {wrong}")))?;
        Ok(Self { hash: hex(&Sha256::digest(text.as_bytes())), inputs, stages, output })
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &WorkflowStep> {
        self.stages.iter().flatten()
    }

    /// Returns the agents of the steps.
    pub fn agents(&self) -> BTreeSet<&str> {
        self.steps().filter_map(|step| step.agent()).collect()
    }

    /// Returns each step that runs a tool: its line, its id, and the tool's canonical name.
    pub fn tools(&self) -> impl Iterator<Item = (u64, &str, &str)> {
        self.steps().filter_map(|step| match &step.action {
            StepAction::Tool { tool, .. } => Some((step.line, step.id.as_str(), tool.as_str())),
            StepAction::Agent { .. } => None,
        })
    }

    /// Returns the line and the id of the first step that runs this agent.
    pub fn step_of(&self, agent: &str) -> Option<(u64, &str)> {
        let step = self.steps().find(|step| step.agent() == Some(agent))?;
        Some((step.line, &step.id))
    }

    /// Returns the workflow as JSON, for people and programs.
    pub fn to_json(&self) -> Value {
        let step = |step: &WorkflowStep| match &step.action {
            StepAction::Agent { agent, .. } => json!({"id": step.id, "agent": agent}),
            StepAction::Tool { tool, .. } => json!({"id": step.id, "tool": tool}),
        };
        json!({"inputs": self.inputs, "steps": self.steps().map(step).collect::<Vec<_>>()})
    }
}

impl WorkflowStep {
    fn agent(&self) -> Option<&str> {
        match &self.action {
            StepAction::Agent { agent, .. } => Some(agent),
            StepAction::Tool { .. } => None,
        }
    }
}

impl WorkflowValues {
    fn example(inputs: &BTreeMap<String, InputFields>) -> Self {
        let value = |input: &InputFields| input.default.clone().unwrap_or_else(|| "example".into());
        let inputs = inputs.iter().map(|(name, input)| (name.clone(), value(input))).collect();
        Self { input: "example".to_owned(), inputs, steps: BTreeMap::new() }
    }
}

fn inputs_of(fields: BTreeMap<String, Option<InputFields>>) -> Result<BTreeMap<String, InputFields>, String> {
    if fields.len() > MAX_INPUTS {
        return Err(format!("has {} inputs; there are {MAX_INPUTS} at most", fields.len()));
    }
    let mut inputs = BTreeMap::new();
    for (name, input) in fields {
        let input = input.unwrap_or_default();
        check_id(&name).map_err(|wrong| format!("inputs: {wrong}"))?;
        if name == "input" {
            return Err("inputs: input is the message, and always there; give it another name".to_owned());
        }
        if input.required && input.default.is_some() {
            return Err(format!("inputs.{name} has a default, so it is not required"));
        }
        if input.description.chars().count() > MAX_DESCRIPTION {
            return Err(format!("inputs.{name}: the description is longer than {MAX_DESCRIPTION} characters"));
        }
        inputs.insert(name, input);
    }
    Ok(inputs)
}

/// Checks a name that templates use unchanged.
fn check_id(id: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = id.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && id.len() <= MAX_ID && id.chars().all(is_plain) {
        return Ok(());
    }
    let shown = truncate(&one_line(id), 2 * MAX_ID);
    Err(format!("{shown:?} is not a name; one has 1 to {MAX_ID} of a-z, 0-9 and _, and begins with a letter"))
}

/// A parser that reads steps in order.
struct StepReader {
    /// Example values of everything that the next step may use.
    known: WorkflowValues,
    ids: BTreeSet<String>,
}

impl StepReader {
    fn stage(&mut self, fields: StepFields, line: u64) -> Result<Vec<WorkflowStep>, WorkflowFileError> {
        let StepFields { parallel: Some(group), .. } = fields else {
            let step = self.step(fields, line)?;
            self.end_stage([&step]);
            return Ok(vec![step]);
        };
        if (StepFields { parallel: None, ..fields }) != StepFields::default() {
            return Err((Some(line), "no other keys may stand next to parallel; put them on its steps".to_owned()));
        }
        if group.is_empty() {
            return Err((Some(line), "parallel has no steps".to_owned()));
        }
        let mut steps = Vec::new();
        for Spanned { value, referenced, .. } in group {
            if value.parallel.is_some() {
                return Err((Some(referenced.line()), "parallel stands in no other parallel".to_owned()));
            }
            steps.push(self.step(value, referenced.line())?);
        }
        self.end_stage(&steps);
        Ok(steps)
    }

    /// Adds the outputs of steps to the values that later steps may use.
    fn end_stage<'a>(&mut self, steps: impl IntoIterator<Item = &'a WorkflowStep>) {
        let example = StepState { output: "example".to_owned(), status: "done", error: String::new() };
        self.known.steps.extend(steps.into_iter().map(|step| (step.id.clone(), example.clone())));
    }

    fn step(&mut self, fields: StepFields, line: u64) -> Result<WorkflowStep, WorkflowFileError> {
        let at = |wrong: String| (Some(line), wrong);
        check_id(&fields.id).map_err(|wrong| at(format!("a step has an id: {wrong}")))?;
        let id = fields.id.clone();
        if !self.ids.insert(id.clone()) {
            return Err(at(format!("two steps have the id {id:?}")));
        }
        self.checked(fields, line).map_err(|wrong| at(format!("step {id:?}: {wrong}")))
    }

    fn checked(&self, fields: StepFields, line: u64) -> Result<WorkflowStep, String> {
        let StepFields { id, agent, model, prompt, tool, arguments, when, retries, on_error, parallel: _ } = fields;
        let action = match (agent, tool) {
            (Some(agent), None) => {
                if arguments.is_some() {
                    return Err("arguments are for a tool; an agent has a prompt".to_owned());
                }
                let prompt = prompt.ok_or("has no prompt; say what the agent is to do")?;
                let prompt = template(&prompt, &self.known).map_err(|wrong| format!("prompt: {wrong}"))?;
                StepAction::Agent { agent, model, prompt: Box::new(prompt) }
            }
            (None, Some(tool)) => {
                if prompt.is_some() || model.is_some() {
                    return Err("prompt and model are for an agent; a tool has arguments".to_owned());
                }
                let arguments = arguments.unwrap_or_default().into_iter().map(|(name, value)| {
                    let argument = ArgumentTemplate::new(value, &self.known);
                    argument.map(|value| (name.clone(), value)).map_err(|wrong| format!("arguments.{name}: {wrong}"))
                });
                StepAction::Tool { tool: tool_of(&tool)?, arguments: arguments.collect::<Result<_, _>>()? }
            }
            _ => return Err("has one of agent and tool".to_owned()),
        };
        let condition = |when: String| check(BoundedTemplate::condition(&when, &NAMES)?, &self.known);
        let when = when.map(condition).transpose().map_err(|wrong| format!("when: {wrong}"))?;
        let retries = retries.unwrap_or_default();
        if retries > MAX_RETRIES {
            return Err(format!("retries = {retries} is too many; it is {MAX_RETRIES} at most"));
        }
        Ok(WorkflowStep { id, line, action, when, retries, on_error: on_error.unwrap_or_default() })
    }
}

/// Returns the canonical name of a step's tool.
fn tool_of(name: &str) -> Result<String, String> {
    let own = canonical_tool_name(name).map_err(|wrong| format!("{:?} {wrong}", truncate(&one_line(name), 80)))?;
    if own == SPAWN {
        return Err("spawn is what a step with an agent does: write agent and prompt".to_owned());
    }
    Ok(own)
}

impl ArgumentTemplate {
    fn new(value: Value, known: &WorkflowValues) -> Result<Self, String> {
        Ok(match value {
            Value::String(source) => Self::Text(Box::new(template(&source, known)?)),
            Value::Array(list) => {
                Self::List(list.into_iter().map(|value| Self::new(value, known)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let fields = map.into_iter().map(|(name, value)| Ok((name, Self::new(value, known)?)));
                Self::Map(fields.collect::<Result<_, String>>()?)
            }
            literal => Self::Literal(literal),
        })
    }

    /// Renders the argument with these values.
    ///
    /// # Errors
    /// A template cannot be rendered with these values.
    pub fn render(&self, values: &WorkflowValues) -> Result<Value, String> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(values)?),
            Self::List(list) => Value::Array(list.iter().map(|one| one.render(values)).collect::<Result<_, _>>()?),
            Self::Map(map) => {
                let fields = map.iter().map(|(name, one)| Ok((name.clone(), one.render(values)?)));
                Value::Object(fields.collect::<Result<_, String>>()?)
            }
        })
    }
}

/// Compiles a template that uses the values that are known at its place.
fn template(source: &str, known: &WorkflowValues) -> Result<BoundedTemplate, String> {
    check(BoundedTemplate::new(source, TemplatePurpose::Text, &NAMES)?, known)
}

/// Checks a template by rendering it with examples of the values that are known at its place.
fn check(template: BoundedTemplate, known: &WorkflowValues) -> Result<BoundedTemplate, String> {
    // This also covers branches of the template that the examples do not take.
    for path in template.paths() {
        let mut parts = path.split('.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("steps"), Some(step), field) => {
                if !known.steps.contains_key(step) {
                    let steps = known.steps.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                    let steps = if steps.is_empty() { "none".to_owned() } else { steps };
                    return Err(format!("{path:?}: no step {step:?} has ended here; those before are {steps}"));
                }
                if let Some(field) = field.filter(|field| !FIELDS.contains(field)) {
                    return Err(format!("{path:?}: a step has no {field:?}; it has {}", FIELDS.join(", ")));
                }
            }
            (Some("inputs"), Some(name), _) if !known.inputs.contains_key(name) => {
                return Err(format!("{path:?}: there is no input {name:?}; add it to inputs"));
            }
            _ => {}
        }
    }
    template.render(known)?;
    Ok(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_is_read_or_refused_with_line_and_reason() {
        let step = |more: &str| format!("steps:\n  - id: a\n    tool: exec\n  - id: b\n{more}");
        let agent = |more: &str| step(&format!("    agent: coder\n    prompt: p\n{more}"));
        for (text, expected) in [
            ("a: [".to_owned(), "line "),
            ("output: x".to_owned(), "missing field `steps`"),
            ("steps: []".to_owned(), "has 0 steps; a workflow has 1 to 50"),
            ("steps:\n  - id: a\n    tool: exec\n    retry: 1".to_owned(), "line 4: "),
            ("steps:\n  - id: a\n    tool: exec\nsteeps: 1".to_owned(), "line 4: "),
            (step("    tool: exek"), "line 4: step \"b\": \"exek\" is not a tool; the nearest is \"exec\""),
            (step("    tool: spawn"), "line 4: step \"b\": spawn is what a step with an agent does"),
            (step(""), "line 4: step \"b\": has one of agent and tool"),
            (step("    agent: coder"), "line 4: step \"b\": has no prompt"),
            (step("    agent: coder\n    tool: exec"), "has one of agent and tool"),
            (step("    agent: coder\n    prompt: x\n    arguments: {}"), "arguments are for a tool"),
            (step("    tool: exec\n    prompt: x"), "prompt and model are for an agent"),
            (agent("  - id: a\n    tool: exec"), "line 7: two steps have the id \"a\""),
            (agent("  - id: a b\n    tool: exec"), "line 7: a step has an id: \"a b\" is not a name"),
            (agent("    retries: 6"), "retries = 6 is too many; it is 5 at most"),
            (agent("    on_error: ignore"), "unknown variant `ignore`"),
            (
                agent("    when: steps.c.output"),
                "when: \"steps.c.output\": no step \"c\" has ended here; those before are a",
            ),
            (agent("    when: steps.b.output"), "no step \"b\" has ended here"),
            (agent("    when: steps.a.outptu"), "a step has no \"outptu\"; it has output, status, error"),
            (agent("    when: false and inputs.x"), "there is no input \"x\""),
            (agent("    when: weather"), "no name \"weather\"; there are input, inputs, steps"),
            (agent("output: '{{ steps.z.output }}'"), "output: \"steps.z.output\": no step \"z\""),
            (agent("inputs:\n  input: {}"), "input is the message"),
            (agent("inputs:\n  x: {required: true, default: 1}"), "inputs.x has a default"),
            (agent("inputs:\n  x: {type: text}"), "unknown field `type`"),
            (
                "steps:\n  - parallel:\n      - id: a\n        tool: exec\n      - id: b\n        tool: exec\n        \
                 arguments: {command: '{{ steps.a.output }}'}"
                    .to_owned(),
                "line 5: step \"b\": arguments.command: \"steps.a.output\": no step \"a\" has ended here; those before are none",
            ),
            ("steps:\n  - parallel: []".to_owned(), "line 2: parallel has no steps"),
            (
                "steps:\n  - id: x\n    parallel: [{id: a, tool: exec}]".to_owned(),
                "line 2: no other keys may stand next to parallel",
            ),
        ] {
            let wrong = Workflow::parse(&text).map(|_| ()).unwrap_err();
            assert!(wrong.contains(expected), "{text}\n{wrong}");
        }
        let many: String = (0..=MAX_STEPS).map(|at| format!("  - {{id: s{at}, tool: exec}}\n")).collect();
        assert!(Workflow::parse(&format!("steps:\n{many}")).map(|_| ()).unwrap_err().contains("has 51 steps"));
    }
}
