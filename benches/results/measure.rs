//! Runs a case through the tiers of post-processing.

use std::time::{Duration, Instant};

use anyhow::Result;
use daoyou::postprocess::{FilteredResult, Postprocessor, Question, RawResult};
use daoyou::tools::OutputRule;

use super::cases::Case;
use super::workspace::{BenchWorkspace, context};

/// A path as long as the paths of spill files.
const SPILL: &str =
    "the whole output: .daoyou/conversations/0123456789abcdef/spill/0123456789abcdef0123456789abcdef-call_1.txt";
/// The size of the results for the measurement of speed, in bytes.
const SPEED_BYTES: usize = 100_000;

/// What a tier kept of a result.
#[derive(Clone, Copy, Debug, Default)]
pub struct TierOutput {
    pub tokens: usize,
    /// The tokens that the tier itself used.
    pub spent: usize,
    /// The number of answer lines that are still present.
    pub answers: usize,
    pub is_filtered: bool,
}

/// A case with the output of each tier.
pub struct MeasuredCase {
    pub case: Case,
    pub text: String,
    pub raw: TierOutput,
    pub truncated: TierOutput,
    pub basic: TierOutput,
    pub semantic: Option<TierOutput>,
    pub llm: Option<TierOutput>,
    /// The answer lines that the basic tier lost.
    pub lost: Vec<String>,
    pub keywords: Vec<String>,
}

/// Counts tokens with the vocabulary `o200k_base`.
pub fn tokens(text: &str) -> usize {
    bpe_openai::o200k_base().count(text)
}

/// Returns the text without white space, because a filter may change the indentation of JSON.
fn normalized(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn tier_output(text: &str, case: &Case, spent: usize, is_filtered: bool) -> TierOutput {
    let shown = normalized(text);
    let answers = case.answer.iter().filter(|answer| shown.contains(&normalized(answer))).count();
    TierOutput { tokens: tokens(text), spent, answers, is_filtered }
}

pub async fn measure(workspace: &BenchWorkspace, case: Case) -> Result<MeasuredCase> {
    let text = workspace.result(&case).await?;
    let Some(tool) = workspace.executor.registry().get(&case.tool) else {
        anyhow::bail!("{}: no tool {}", case.id, case.tool)
    };
    let rule = workspace.executor.output_rule(tool.as_ref());
    let raw = tier_output(&text, &case, 0, false);
    let cut = rule.cut(&text, rule.limit, Some(SPILL));
    let truncated = tier_output(&cut, &case, 0, false);
    let (basic, done) = run_tier(workspace, &workspace.basic, &case, &text, rule).await;
    let shown = normalized(&rendered(done.as_ref(), &text, rule));
    let lost = case.answer.iter().filter(|answer| !shown.contains(&normalized(answer))).cloned().collect();
    let semantic = match &workspace.semantic {
        Some(tier) => Some(run_tier(workspace, tier, &case, &text, rule).await.0),
        None => None,
    };
    let llm = match &workspace.llm {
        Some(tier) => Some(run_tier(workspace, tier, &case, &text, rule).await.0),
        None => None,
    };
    let keywords = done.map(|done| done.keywords).unwrap_or_default();
    Ok(MeasuredCase { case, text, raw, truncated, basic, semantic, llm, lost, keywords })
}

async fn run_tier(
    workspace: &BenchWorkspace,
    tier: &Postprocessor,
    case: &Case,
    text: &str,
    rule: OutputRule,
) -> (TierOutput, Option<FilteredResult>) {
    let raw = RawResult { tool: &case.tool, arguments: &case.arguments, text, limit: rule.limit.chars };
    let context = context();
    let files = workspace.executor.registry().get(&case.tool).and_then(|tool| tool.file_lines(&context));
    let mut uses = Vec::new();
    let done = tier.process(&raw, &Question::new(case.question.as_str()), files.as_deref(), &mut uses).await;
    let used: u64 = uses.iter().map(|one| one.usage.input_tokens + one.usage.output_tokens).sum();
    let shown = rendered(done.as_ref(), text, rule);
    (tier_output(&shown, case, usize::try_from(used).unwrap_or(usize::MAX), done.is_some()), done)
}

fn rendered(done: Option<&FilteredResult>, text: &str, rule: OutputRule) -> String {
    let shown = done.map_or_else(|| text.to_owned(), |done| done.render(Some(SPILL)));
    rule.cut(&shown, rule.limit, Some(SPILL))
}

/// Returns how long the basic tier takes for each result of at least 100 KB. Shorter results are repeated up to that size.
pub async fn speed(workspace: &BenchWorkspace, measured: &[MeasuredCase]) -> Vec<Duration> {
    let mut times = Vec::new();
    for one in measured.iter().filter(|one| one.text.len() > 4_000) {
        let mut text = String::with_capacity(SPEED_BYTES + one.text.len());
        while text.len() < SPEED_BYTES {
            text.push_str(&one.text);
            text.push('\n');
        }
        let raw = RawResult { tool: &one.case.tool, arguments: &one.case.arguments, text: &text, limit: 12_000 };
        let question = Question::new(one.case.question.as_str());
        let begun = Instant::now();
        let _ = workspace.basic.process(&raw, &question, None, &mut Vec::new()).await;
        times.push(begun.elapsed().mul_f64(SPEED_BYTES as f64 / text.len() as f64));
    }
    times.sort();
    times
}
