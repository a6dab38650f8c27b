//! Renders the section of `docs/benchmarks.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::BenchArguments;
use super::cases::corpus;
use super::measure::{MeasuredCase, TierOutput};

/// Renders the section as Markdown.
pub fn render(measured: &[MeasuredCase], times: &[Duration], arguments: &BenchArguments) -> String {
    let own: Vec<&MeasuredCase> = measured.iter().filter(|one| !one.case.held_out).collect();
    let held_out: Vec<&MeasuredCase> = measured.iter().filter(|one| one.case.held_out).collect();
    let chinese = measured.iter().filter(|one| one.case.language == "zh").count();
    let mut text = format!(
        "{} questions about results of tools, {chinese} of them in Chinese, each with the lines that answer it \
         (`benches/results/corpus`). Tokens are those of `o200k_base`; they include the line that says how much was left out. \
         *Truncated* is what a model gets with `tools.postprocess.enabled = false`. *Saved* compares the sums with truncation alone; \
         the held out cases were written when the filters were ready, by a person who had seen neither the filters nor their results (`LABELLING-c.md`), and no filter was changed for them since. The aims are 40 % saved, 98 % of the answer lines and 5 ms for 100 KB.\n\n",
        measured.len()
    );
    let _ = writeln!(
        text,
        "| results of | cases | filtered | raw tokens, median (quartiles) | truncated | basic | saved | answer lines: truncated | basic |\n|---|---|---|---|---|---|---|---|---|"
    );
    let mut by_tool: BTreeMap<&str, Vec<&MeasuredCase>> = BTreeMap::new();
    for one in &own {
        by_tool.entry(&one.case.tool).or_default().push(one);
    }
    for (tool, cases) in &by_tool {
        row(&mut text, tool, cases);
    }
    for (language, name) in [("en", "asked in English"), ("zh", "asked in Chinese")] {
        let cases: Vec<&MeasuredCase> = own.iter().filter(|one| one.case.language == language).copied().collect();
        row(&mut text, name, &cases);
    }
    row(&mut text, "**all but held out**", &own);
    row(&mut text, "**held out**", &held_out);
    let answers: usize = measured.iter().map(|one| one.case.answer.len()).sum();
    let absent = answers - measured.iter().map(|one| one.raw.answers).sum::<usize>();
    let _ = writeln!(
        text,
        "\n{absent} of the {answers} answer lines are on a later page of the tool's result; no column counts them."
    );
    tiers(&mut text, measured, arguments);
    test_runs(&mut text, measured);
    let at = |share: f64| {
        times
            .get(((times.len().saturating_sub(1)) as f64 * share) as usize)
            .map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
    };
    let _ = writeln!(
        text,
        "\nTime of the basic tier for 100 KB: {:.1} ms (median), {:.1} ms (95th percentile), over {} results.",
        at(0.5),
        at(0.95),
        times.len()
    );
    text
}

fn row(text: &mut String, name: &str, cases: &[&MeasuredCase]) {
    if cases.is_empty() {
        return;
    }
    let sum = |pick: &dyn Fn(&MeasuredCase) -> usize| cases.iter().map(|one| pick(one)).sum::<usize>();
    let spread = |pick: &dyn Fn(&MeasuredCase) -> usize| {
        let mut all: Vec<usize> = cases.iter().map(|one| pick(one)).collect();
        all.sort_unstable();
        let at = |share: f64| all[((all.len() - 1) as f64 * share).round() as usize];
        format!("{} ({}–{})", at(0.5), at(0.25), at(0.75))
    };
    let lines = sum(&|one| one.raw.answers);
    let _ = writeln!(
        text,
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} |",
        cases.len(),
        sum(&|one| usize::from(one.basic.is_filtered)),
        spread(&|one| one.raw.tokens),
        spread(&|one| one.truncated.tokens),
        spread(&|one| one.basic.tokens),
        saved(sum(&|one| one.basic.tokens), sum(&|one| one.truncated.tokens)),
        share(sum(&|one| one.truncated.answers), lines),
        share(sum(&|one| one.basic.answers), lines),
    );
}

fn saved(now: usize, before: usize) -> String {
    format!("{:.0} %", 100.0 * (1.0 - now as f64 / before.max(1) as f64))
}

fn share(part: usize, whole: usize) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Adds the tiers that ask a model, if the command line names one.
fn tiers(text: &mut String, measured: &[MeasuredCase], arguments: &BenchArguments) {
    type TierRow<'a> = (&'static str, Option<&'a (String, String)>, fn(&MeasuredCase) -> Option<TierOutput>);
    let given: [TierRow<'_>; 2] = [
        ("semantic", arguments.embeddings.as_ref(), |one| one.semantic),
        ("llm", arguments.chat.as_ref(), |one| one.llm),
    ];
    for (name, service, pick) in given {
        let Some((_, model)) = service else {
            let _ = writeln!(text, "\nThe {name} tier was not measured: no model was given.");
            continue;
        };
        let sum = |pick: &dyn Fn(&MeasuredCase) -> usize| measured.iter().map(pick).sum::<usize>();
        let lines = sum(&|one| one.raw.answers);
        let of = |value: fn(TierOutput) -> usize| sum(&|one| pick(one).map_or(0, value));
        let (spent, truncated) = (of(|left| left.spent), sum(&|one| one.truncated.tokens));
        let net = match spent {
            0 => "without those of its embeddings".to_owned(),
            _ => format!("{} net of its own {spent} tokens", saved(of(|left| left.tokens) + spent, truncated)),
        };
        let _ = writeln!(
            text,
            "\nThe {name} tier with {model}, all cases: saved {} of the truncated tokens ({net}); answer lines {}.",
            saved(of(|left| left.tokens), truncated),
            share(of(|left| left.answers), lines),
        );
    }
}

/// The outputs of test runners, and what `run_test` returned for the same runs.
const TEST_RUNS: [(&str, &str); 4] = [
    ("b-rawsql.txt", "b-rt-sqlparse.txt"),
    ("b-rawtoml.txt", "b-rt-tomlkit.txt"),
    ("b-rawstrsim.txt", "b-rt-strsim.txt"),
    ("b-rawbraces.txt", "b-rt-braces.txt"),
];

/// Adds how much of the test runs is left.
fn test_runs(text: &mut String, measured: &[MeasuredCase]) {
    let size = |name: &str| std::fs::metadata(corpus().join("outputs").join(name)).map_or(0, |file| file.len());
    let raw: u64 = TEST_RUNS.iter().map(|(runner, _)| size(runner)).sum();
    let kept: u64 = TEST_RUNS.iter().map(|(_, tool)| size(tool)).sum();
    let runs: Vec<&MeasuredCase> = measured.iter().filter(|one| one.case.tool == "run_test").collect();
    let sum = |pick: &dyn Fn(&MeasuredCase) -> usize| runs.iter().map(|one| pick(one)).sum::<usize>();
    let _ = writeln!(
        text,
        "\nOf {} runs of test suites with failures, whose runners print {raw} bytes, `run_test` returned {kept} ({} fewer) when the corpus was captured. \
         Of the lines that answer the {} questions about results of `run_test`, {} are kept.",
        TEST_RUNS.len(),
        saved(usize::try_from(kept).unwrap_or(usize::MAX), usize::try_from(raw).unwrap_or(usize::MAX)),
        runs.len(),
        share(sum(&|one| one.basic.answers), sum(&|one| one.case.answer.len())),
    );
}
