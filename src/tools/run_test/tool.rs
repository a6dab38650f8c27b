//! The tool `run_test`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::project::{MISSING, TestFramework, TestProject};
use super::report::{TestReport, clean};
use super::{cargo, go, maven, node, pytest};
use crate::tools::exec::{CollectedOutput, CommandRunner, END_MARGIN, ShellCommand, foreign_visibility};
use crate::tools::files::WorkspaceJail;
use crate::tools::truncation::suffix;
use crate::tools::{
    OutputLimit, ReplayPolicy, SpillStore, StoredOutput, StoredPart, Tool, ToolContext, ToolDefinition, ToolOutcome,
    ToolResult, with_arguments,
};

/// The exit code of the script if the runner is missing, and the exit code of pytest if it finds no tests.
const NOT_FOUND: i32 = 127;
const NO_TESTS: i32 = 5;
/// The size limit of the output's end, which is shown if the output names no failures.
const TAIL: OutputLimit = OutputLimit { chars: 3_000, lines: 40 };

#[derive(Deserialize, JsonSchema)]
struct RunTestArgs {
    /// A project, or a test file or folder in it.
    path: Option<String>,
    /// cargo, pytest, npm, go, maven or make.
    framework: Option<String>,
    /// Seconds.
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
}

/// The tool `run_test`, which runs the tests of a project and reports the failures.
pub struct RunTest {
    definition: ToolDefinition,
    runner: Arc<CommandRunner>,
    files: WorkspaceJail,
    spill: Arc<SpillStore>,
}

impl RunTest {
    pub fn new(runner: Arc<CommandRunner>, files: WorkspaceJail, spill: Arc<SpillStore>) -> Self {
        let definition = ToolDefinition {
            timeout: Some(runner.config.timeout.0.saturating_add(END_MARGIN)),
            // Text from a file or page must not determine which code runs.
            literal_arguments: &["path", "framework", "cwd"],
            ..ToolDefinition::changing::<RunTestArgs>("run_test", "Run the tests of a project.", ReplayPolicy::Once)
        };
        Self { definition, runner, files, spill }
    }

    async fn run(&self, args: RunTestArgs, context: &ToolContext) -> Result<ToolResult, String> {
        let wanted = args.framework.as_deref().map(TestFramework::named).transpose()?;
        let (jail, path) = (self.files.for_turn(context), args.path);
        let found = tokio::task::spawn_blocking(move || TestProject::find(&jail, path.as_deref(), wanted)).await;
        let project = found.map_err(|error| error.to_string())??;
        let longest = self.runner.config.timeout.0;
        let limit = args.timeout.map_or(longest, |secs| Duration::from_secs(secs).min(longest));
        let command = project.script(self.runner.config.network);
        let begun = Instant::now();
        // In a turn that has read foreign content, the tests see the folders with such content.
        let (further, sources) = (foreign_visibility("", context), self.runner.output_sources("", context));
        let command = ShellCommand { command, environment: self.runner.environment(), limit, further };
        let output = self.runner.collect(command, context).await?;
        let text = clean(&String::from_utf8_lossy(&output.bytes));
        if output.outcome.exit_code(limit) == Ok(NOT_FOUND) && text.trim() == MISSING {
            let (program, source) = project.framework.program();
            return Err(format!(
                "{program} is not installed where commands can use it; the owner can install it ({source}), or add its \
                 folder to tools.exec.read_paths"
            ));
        }
        // The output may be long and is untrusted, so the parsers do not run on a thread of the runtime.
        let read = move || (read_report(&project, &text), project, text);
        let read = tokio::task::spawn_blocking(read).await;
        let (mut report, project, text) = read.map_err(|error| error.to_string())?;
        for file in report.failures.iter_mut().filter_map(|failure| failure.file.as_mut()) {
            *file = shown_file(&self.runner.workspace, &project.root, file);
        }
        let run = TestRun { project, report, text, limit, took: begun.elapsed() };
        let mut spill = match run.text.trim() {
            "" => None,
            _ => self.spill.save_output(run.text.clone(), !sources.is_empty(), context).await,
        };
        if let Some(StoredOutput { part: part @ StoredPart::Whole, .. }) = &mut spill
            && !output.is_whole
        {
            *part = StoredPart::Ends;
        }
        let mut result = run.result(&output);
        result.spill = spill;
        result.add_sources(sources);
        Ok(result)
    }
}

/// A finished run.
struct TestRun {
    project: TestProject,
    report: TestReport,
    /// The collected output.
    text: String,
    limit: Duration,
    took: Duration,
}

impl TestRun {
    fn result(&self, output: &CollectedOutput) -> ToolResult {
        let (framework, report) = (self.project.framework, &self.report);
        let code = output.outcome.exit_code(self.limit);
        let what = if report.is_empty() {
            match (&code, framework) {
                (Ok(0), _) => "succeeded, but its output names no tests".to_owned(),
                (Ok(NO_TESTS), TestFramework::Pytest) => "no tests found".to_owned(),
                (Ok(code), _) => format!("failed with exit code {code} before any test"),
                (Err(error), _) => error.clone(),
            }
        } else {
            let counts = report.counts();
            // A run may fail for another reason than its tests, such as a second command in a script.
            let is_explained = report.failed > 0 || report.is_build_error;
            match &code {
                Ok(code) if *code != 0 && !is_explained => format!("{counts}, but exit code {code}"),
                Ok(_) => counts,
                Err(error) => format!("{error}; so far {counts}"),
            }
        };
        let summary = format!("{what} in {:.1} s ({framework})", self.took.as_secs_f64());
        let details = if report.failures.is_empty() && (code != Ok(0) || report.is_empty()) {
            suffix(self.text.trim(), TAIL.chars, TAIL.lines).to_owned()
        } else {
            report.render_failures()
        };
        let mut result = if code == Ok(0) && report.failed == 0 {
            ToolResult::ok(format!("{summary}\n{details}").trim_end())
        } else {
            ToolResult { content: details, ..ToolResult::failed(summary) }
        };
        let failures = serde_json::to_value(&report.failures).unwrap_or_default();
        let numbers = [("passed", report.passed), ("failed", report.failed), ("skipped", report.skipped)];
        result.metadata.extend(numbers.map(|(name, number)| (name.to_owned(), Value::from(number))));
        result.metadata.insert("failures".to_owned(), failures);
        result.metadata.insert("framework".to_owned(), Value::from(framework.to_string()));
        if let Ok(code) = code {
            result.metadata.insert("exit_code".to_owned(), Value::from(code));
        }
        result
    }
}

fn read_report(project: &TestProject, text: &str) -> TestReport {
    let go = |text: &str| go::parse(text, &project.module);
    match project.framework {
        TestFramework::Cargo => cargo::parse(text),
        TestFramework::Go => go(text),
        TestFramework::Maven => maven::parse(text),
        TestFramework::Pytest => pytest::parse(text),
        // These runners may start any other runner.
        TestFramework::Npm => first_report(text, &[&node::parse, &pytest::parse, &cargo::parse]),
        TestFramework::Make => first_report(text, &[&cargo::parse, &pytest::parse, &maven::parse, &node::parse, &go]),
    }
}

fn first_report(text: &str, parsers: &[&dyn Fn(&str) -> TestReport]) -> TestReport {
    parsers.iter().map(|parse| parse(text)).find(|report| !report.is_empty()).unwrap_or_default()
}

/// Converts a file name that a runner reports to a path relative to the workspace.
fn shown_file(workspace: &Path, root: &Path, file: &str) -> String {
    let path = root.join(file.strip_prefix("./").unwrap_or(file));
    path.strip_prefix(workspace).unwrap_or(&path).display().to_string()
}

#[async_trait]
impl Tool for RunTest {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn may_taint(&self, _: &Value, context: &ToolContext) -> bool {
        !self.runner.output_sources("", context).is_empty()
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        with_arguments(arguments, |args| self.run(args, context)).await
    }
}
