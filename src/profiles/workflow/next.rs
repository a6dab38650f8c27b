//! Decides the next step of a workflow: a pure function of the message and the results so far.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::file::{SPAWN, StepAction, StepFailurePolicy, StepState, Workflow, WorkflowStep, WorkflowValues};
use crate::text::{one_line, truncate};

/// The maximum length of the reason of a failed step, in characters.
const MAX_REASON: usize = 1_000;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    Done,
    Failed,
    /// The call failed and is not repeated: it was refused, or may have taken effect.
    FailedForGood,
}

/// The result of a call of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallResult<'a> {
    pub end: CallEnd,
    /// The tool's output, or the reason of the failure.
    pub text: &'a str,
}

/// A call that a step makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCall {
    pub step: String,
    /// The number of the attempt, starting from 1.
    pub attempt: u32,
    pub tool: String,
    /// The arguments as JSON.
    pub arguments: String,
}

/// The next action of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkflowNext {
    Calls(Vec<StepCall>),
    Answer(String),
}

/// The reason why a workflow cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowStop {
    #[error("{0}")]
    Input(String),
    #[error("{0}")]
    Step(String),
}

/// Returns the next action after `results`, which are the results of all calls so far, in the order of the requests. The same
/// arguments always give the same action.
///
/// # Errors
/// The message lacks an input, a step has failed, or a template cannot be rendered with these values.
pub fn next_step(workflow: &Workflow, message: &str, results: &[CallResult<'_>]) -> Result<WorkflowNext, WorkflowStop> {
    let mut values = values_of(workflow, message).map_err(WorkflowStop::Input)?;
    let mut left = results.iter();
    for stage in &workflow.stages {
        let mut ended = BTreeMap::new();
        let mut pending = Vec::new();
        for step in stage {
            match step.fits(&values) {
                Ok(true) => pending.push(step),
                Ok(false) => drop(ended.insert(&step.id, StepState { status: "skipped", ..StepState::default() })),
                Err(wrong) => drop(ended.insert(&step.id, step.failed(&wrong, 0)?)),
            }
        }
        let mut attempt = 0;
        while !pending.is_empty() {
            attempt += 1;
            let mut calls = Vec::new();
            let mut calling = Vec::new();
            for step in pending {
                match step.call(&values, attempt) {
                    Ok(call) => {
                        calls.push(call);
                        calling.push(step);
                    }
                    Err(wrong) => drop(ended.insert(&step.id, step.failed(&wrong, 0)?)),
                }
            }
            if calls.is_empty() {
                break;
            }
            let Some(answers) = left.as_slice().get(..calls.len()) else { return Ok(WorkflowNext::Calls(calls)) };
            left.nth(calls.len() - 1);
            pending = Vec::new();
            for (step, CallResult { end, text }) in calling.into_iter().zip(answers) {
                match end {
                    CallEnd::Done => {
                        let state = StepState { output: (*text).to_owned(), status: "done", error: String::new() };
                        ended.insert(&step.id, state);
                    }
                    CallEnd::Failed if attempt <= step.retries => pending.push(step),
                    CallEnd::Failed | CallEnd::FailedForGood => {
                        ended.insert(&step.id, step.failed(text, attempt)?);
                    }
                }
            }
        }
        values.steps.extend(ended.into_iter().map(|(id, state)| (id.clone(), state)));
    }
    answer(workflow, &values).map(WorkflowNext::Answer).map_err(WorkflowStop::Step)
}

fn answer(workflow: &Workflow, values: &WorkflowValues) -> Result<String, String> {
    match &workflow.output {
        Some(output) => output.render(values).map_err(|wrong| format!("output: {wrong}")),
        None => {
            let last = workflow.stages.last().into_iter().flatten();
            let outputs = last.filter_map(|step| values.steps.get(&step.id)).map(|step| step.output.trim());
            Ok(outputs.filter(|output| !output.is_empty()).collect::<Vec<_>>().join("\n\n"))
        }
    }
}

impl WorkflowStep {
    fn fits(&self, values: &WorkflowValues) -> Result<bool, String> {
        match &self.when {
            None => Ok(true),
            Some(when) => when.render(values).map(|text| !text.is_empty()).map_err(|wrong| format!("when: {wrong}")),
        }
    }

    fn call(&self, values: &WorkflowValues, attempt: u32) -> Result<StepCall, String> {
        let (tool, arguments) = match &self.action {
            StepAction::Agent { agent, model, prompt } => {
                let task = prompt.render(values).map_err(|wrong| format!("prompt: {wrong}"))?;
                let mut arguments = json!({"task": task, "label": self.id, "agent": agent, "wait": true});
                if let Some(model) = model {
                    arguments["model"] = json!(model);
                }
                (SPAWN, arguments)
            }
            StepAction::Tool { tool, arguments } => {
                let argument = |(name, template): &(String, super::file::ArgumentTemplate)| {
                    let value = template.render(values).map_err(|wrong| format!("arguments.{name}: {wrong}"))?;
                    Ok((name.clone(), value))
                };
                let rendered = arguments.iter().map(argument).collect::<Result<Map<_, _>, String>>()?;
                (tool.as_str(), Value::Object(rendered))
            }
        };
        let (step, tool) = (self.id.clone(), tool.to_owned());
        Ok(StepCall { step, attempt, tool, arguments: arguments.to_string() })
    }

    /// Returns the state of the step after it has failed for good.
    ///
    /// # Errors
    /// The workflow stops because of the failure.
    fn failed(&self, reason: &str, attempts: u32) -> Result<StepState, WorkflowStop> {
        let error = truncate(&one_line(reason.strip_prefix("Error: ").unwrap_or(reason)), MAX_REASON);
        match self.on_error {
            StepFailurePolicy::Continue => Ok(StepState { output: String::new(), status: "failed", error }),
            StepFailurePolicy::Stop if attempts > 1 => {
                Err(WorkflowStop::Step(format!("step {} failed {attempts} times: {error}", self.id)))
            }
            StepFailurePolicy::Stop => Err(WorkflowStop::Step(format!("step {} failed: {error}", self.id))),
        }
    }
}

/// Returns the inputs in a message. If the workflow has inputs and the message is a JSON object, the fields are the inputs. Any
/// other text is the message itself, and also the value of the required input if there is exactly one.
fn values_of(workflow: &Workflow, message: &str) -> Result<WorkflowValues, String> {
    let message = message.trim();
    let mut inputs: BTreeMap<String, Value> = workflow
        .inputs
        .iter()
        .map(|(name, input)| (name.clone(), input.default.clone().unwrap_or_else(|| "".into())))
        .collect();
    let mut required: Vec<&str> =
        workflow.inputs.iter().filter(|(_, input)| input.required).map(|(name, _)| name.as_str()).collect();
    let given = match serde_json::from_str::<Map<String, Value>>(message) {
        Ok(fields) if !workflow.inputs.is_empty() => fields,
        _ => match required.as_slice() {
            [one] if !message.is_empty() => Map::from_iter([((*one).to_owned(), message.into())]),
            _ => Map::new(),
        },
    };
    let mut input = message.to_owned();
    for (name, value) in given {
        required.retain(|wanted| *wanted != name);
        match (inputs.get_mut(&name), value) {
            (Some(place), value) => *place = value,
            (None, Value::String(text)) if name == "input" => input = text,
            (None, _) => {
                let names = workflow.inputs.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(format!(
                    "there is no input {:?}; there are input, {names}",
                    truncate(&one_line(&name), 80)
                ));
            }
        }
    }
    if required.is_empty() {
        return Ok(WorkflowValues { input, inputs, steps: BTreeMap::new() });
    }
    let described = required.iter().map(|name| match workflow.inputs[*name].description.as_str() {
        "" => (*name).to_owned(),
        description => format!("{name} ({})", one_line(description)),
    });
    let described = described.collect::<Vec<_>>().join(", ");
    let example: Map<String, Value> = required.iter().map(|name| ((*name).to_owned(), "…".into())).collect();
    Err(format!("missing: {described}. Send them as {}", Value::Object(example)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FLOW: &str = "
inputs:
  topic: {description: What about, required: true}
  tone: {default: kind}
steps:
  - id: find
    tool: web_search
    arguments: {query: '{{ inputs.topic }}', count: 3}
    retries: 2
  - parallel:
      - id: good
        agent: coder
        prompt: 'Good of {{ steps.find.output }}, {{ inputs.tone }}'
        when: \"'x' not in steps.find.output\"
        retries: 1
        on_error: continue
      - id: bad
        agent: tester
        prompt: 'Bad of {{ input }}'
  - id: save
    tool: write_file
    arguments: {path: a.md, content: '{{ steps.good.status }} {{ steps.bad.output }}'}
    when: steps.good.status == 'done'
output: '{{ steps.good.output }}|{{ steps.good.error }}|{{ steps.bad.output }}|{{ steps.save.status }}'
";

    fn ok(text: &str) -> CallResult<'_> {
        CallResult { end: CallEnd::Done, text }
    }

    fn no(text: &str) -> CallResult<'_> {
        CallResult { end: CallEnd::Failed, text }
    }

    fn never(text: &str) -> CallResult<'_> {
        CallResult { end: CallEnd::FailedForGood, text }
    }

    fn shown(next: Result<WorkflowNext, WorkflowStop>) -> String {
        match next {
            Ok(WorkflowNext::Answer(text)) => format!("= {text}"),
            Ok(WorkflowNext::Calls(calls)) => {
                let one = |call: StepCall| format!("{}.{} {}", call.step, call.attempt, call.tool);
                calls.into_iter().map(one).collect::<Vec<_>>().join(", ")
            }
            Err(stop) => format!("! {stop}"),
        }
    }

    #[test]
    fn the_results_decide_what_is_next() {
        let flow = Workflow::parse(FLOW).unwrap();
        for (results, expected) in [
            (vec![], "find.1 web_search"),
            (vec![no("Error: down")], "find.2 web_search"),
            (vec![no("a"), no("b")], "find.3 web_search"),
            (vec![no("a"), no("b"), no("Error: c\nd")], "! step find failed 3 times: c d"),
            (vec![never("denied")], "! step find failed: denied"),
            (vec![no("a"), ok("found")], "good.1 spawn, bad.1 spawn"),
            (vec![ok("x")], "bad.1 spawn"),
            (vec![ok("x"), ok("B")], "= ||B|skipped"),
            (vec![ok("found"), ok("G"), ok("B")], "save.1 write_file"),
            (vec![ok("found"), no("a"), ok("B")], "good.2 spawn"),
            (vec![ok("found"), no("a"), ok("B"), ok("G")], "save.1 write_file"),
            (vec![ok("found"), no("a"), ok("B"), no("b")], "= |b|B|skipped"),
            (vec![ok("found"), ok("G"), no("b")], "! step bad failed: b"),
            (vec![ok("found"), ok("G"), ok("B"), ok("saved")], "= G||B|done"),
        ] {
            assert_eq!(shown(next_step(&flow, "the sea", &results)), expected, "{results:?}");
        }
        let Ok(WorkflowNext::Calls(calls)) = next_step(&flow, "the sea", &[ok("F")]) else { panic!("calls") };
        let arguments: Value = serde_json::from_str(&calls[0].arguments).unwrap();
        assert_eq!(arguments, json!({"task": "Good of F, kind", "label": "good", "agent": "coder", "wait": true}));
        let Ok(WorkflowNext::Calls(calls)) = next_step(&flow, "{{ x }}", &[]) else { panic!("calls") };
        let arguments: Value = serde_json::from_str(&calls[0].arguments).unwrap();
        assert_eq!(arguments, json!({"query": "{{ x }}", "count": 3}), "a message is not a template");
    }

    #[test]
    fn inputs_come_from_the_message() {
        let flow = |inputs: &str| {
            Workflow::parse(&format!(
                "inputs: {inputs}\nsteps: [{{id: a, tool: exec, when: false}}]\noutput: '{{{{ input }}}}|{{% for name in inputs %}}{{{{ \
                 inputs[name] }}}},{{% endfor %}}'"
            ))
            .unwrap()
        };
        let two = "{a: {required: true, description: The first}, b: {required: true}}";
        for (inputs, message, expected) in [
            ("{}", "hi", "= hi|"),
            ("{}", r#"{"a": 1}"#, r#"= {"a": 1}|"#),
            ("{a: {required: true}}", " hi ", "= hi|hi,"),
            ("{a: {required: true}}", r#"{"a": 1}"#, r#"= {"a": 1}|1,"#),
            ("{a: {required: true}, b: {default: 2}}", r#"{"a": 1, "input": "i"}"#, "= i|1,2,"),
            ("{a: {}}", "hi", "= hi|,"),
            ("{a: {}}", r#"{"c": 1}"#, "! there is no input \"c\"; there are input, a"),
            (two, "hi", "! missing: a (The first), b. Send them as {\"a\":\"…\",\"b\":\"…\"}"),
            (two, r#"{"b": 1}"#, "! missing: a (The first). Send them as {\"a\":\"…\"}"),
            ("{a: {required: true}}", "", "! missing: a. Send them as {\"a\":\"…\"}"),
        ] {
            assert_eq!(shown(next_step(&flow(inputs), message, &[])), expected, "{inputs} {message}");
        }
    }

    proptest! {
        /// Whatever the results are, the workflow ends within its limit, and each call comes once and in order.
        #[test]
        fn each_workflow_ends(ends in prop::collection::vec(0..3_u8, 20), texts in prop::collection::vec("[a-z]{0,3}", 20)) {
            let flow = Workflow::parse(FLOW).unwrap();
            let (mut results, mut seen) = (Vec::new(), std::collections::BTreeSet::new());
            while let Ok(WorkflowNext::Calls(calls)) = next_step(&flow, "m", &results) {
                for call in calls {
                    prop_assert!(call.attempt == 1 || seen.contains(&(call.step.clone(), call.attempt - 1)));
                    prop_assert!(seen.insert((call.step, call.attempt)));
                    let at = results.len();
                    prop_assert!(at < 7, "3 + 2 + 1 + 1 calls at most");
                    let end = [CallEnd::Done, CallEnd::Failed, CallEnd::FailedForGood][usize::from(ends[at])];
                    results.push(CallResult { end, text: &texts[at] });
                }
            }
            prop_assert_eq!(shown(next_step(&flow, "m", &results)), shown(next_step(&flow, "m", &results)));
        }
    }
}
