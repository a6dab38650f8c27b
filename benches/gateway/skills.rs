//! Measures skills: their tokens in each request, and what 300 of them add to a start and to a turn.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::load::Offer;
use super::support::{Gateway, Model, Setup};
use super::{Bench, arguments, start_time};

const SKILLS: usize = 300;
const STARTS: usize = 7;
const RUNS: usize = 3;
const TURNS: usize = 3_000;
const SESSIONS: usize = 100;

/// Prints a section of Markdown.
#[expect(clippy::print_stdout, reason = "the bench's output")]
pub async fn skills() {
    println!("{}", level_one().await);
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_skills(folder.path());
    let path = folder.path().display().to_string();
    let none = |setup: Setup| setup.set("skills.built_in", false);
    println!("| what | none | {SKILLS} skills |\n|---|---|---|");
    let mut benches = [Bench::stopped(Duration::ZERO, none).await, Bench::stopped(Duration::ZERO, none).await];
    // Installed skills cost more than others, since each turn checks that they have not changed.
    let installed = benches[1].gateway.run(&["skills", "install", &path, "--all", "--yes"]).await;
    assert_eq!(installed.code, Some(0), "{}", installed.stderr);
    let mut starts = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (bench, starts) in benches.iter_mut().zip(&mut starts) {
            starts.push(start_time(bench, STARTS).await.as_secs_f64() * 1e3);
        }
    }
    println!("| start to ready | {} ms | {} ms |", spread(&mut starts[0]), spread(&mut starts[1]));
    let prompts = benches.each_ref().map(|bench| SystemPrompts::watch(&bench.model));
    for bench in &mut benches {
        bench.gateway.up().await;
    }
    print_turn_costs(&benches).await;
    let [none, many] = prompts.map(|prompts| prompts.summary());
    println!("| bytes of the system prompt, which the cache of a service keeps | {none} | {many} |");
}

/// Prints the cost of a turn in two gateways, which are measured alternately.
#[expect(clippy::print_stdout, reason = "the bench's output")]
pub async fn print_turn_costs(benches: &[Bench; 2]) {
    for bench in benches {
        bench.run(TURNS / 10, SESSIONS, Offer::InFlight(20)).await;
    }
    let mut figures = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for _ in 0..RUNS {
        for (bench, [cpu, middle]) in benches.iter().zip(&mut figures) {
            let measured = bench.run(TURNS, SESSIONS, Offer::InFlight(20)).await;
            cpu.push(measured.cpu_ms_a_turn());
            middle.push(measured.percentile(50).as_secs_f64() * 1e3);
        }
    }
    let [[cpu, middle], [other_cpu, other_middle]] = &mut figures;
    println!("| CPU a turn, 20 in flight over {SESSIONS} sessions | {} ms | {} ms |", spread(cpu), spread(other_cpu));
    println!("| overhead, median | {} ms | {} ms |", spread(middle), spread(other_middle));
}

/// The system prompts in the model's requests, each with its number of requests.
struct SystemPrompts(Arc<Mutex<BTreeMap<String, usize>>>);

impl SystemPrompts {
    fn watch(model: &Model) -> Self {
        let counts = Arc::new(Mutex::new(BTreeMap::new()));
        let seen = counts.clone();
        model.script(move |request| {
            let prompt = request.body["messages"][0]["content"].as_str().unwrap_or_default();
            let mut seen = seen.lock();
            match seen.get_mut(prompt) {
                Some(count) => *count += 1,
                None => drop(seen.insert(prompt.to_owned(), 1)),
            }
            None
        });
        Self(counts)
    }

    fn summary(&self) -> String {
        let counts = self.0.lock();
        let requests: usize = counts.values().sum();
        let longest = counts.keys().map(String::len).max().unwrap_or_default();
        format!("{longest}, {} texts in {requests} requests", counts.len())
    }
}

/// Returns a table with the tokens of skills in a request: the built-in skills, and those in the folder given by `--folder`.
async fn level_one() -> String {
    let mut table = "| skills | number | tokens in each request | a skill |\n|---|---|---|---|\n".to_owned();
    let built_in = Gateway::start(Setup::new()).await;
    add_row(&mut table, "of the program", &built_in).await;
    for folder in arguments("--folder") {
        let settings = Setup::new().set("skills.built_in", false).set("skills.prompt_tokens", 100_000);
        let gateway = Gateway::start(settings.set("skills.paths", vec![folder.clone()])).await;
        let name = Path::new(&folder).file_name().unwrap_or_default().to_string_lossy().into_owned();
        add_row(&mut table, &name, &gateway).await;
    }
    table
}

async fn add_row(table: &mut String, what: &str, gateway: &Gateway) {
    let listed = gateway.json(&["skills", "list"]).await;
    let available = listed.as_array().into_iter().flatten().filter(|skill| skill["available"] == true).count();
    let prompt = gateway.json(&["prompt"]).await;
    let is_list = |part: &&Value| part["name"] == "skills";
    let part = prompt["parts"].as_array().into_iter().flatten().find(is_list).cloned().unwrap_or_default();
    let tokens = part["tokens"].as_u64().unwrap_or_default();
    let each = tokens as f64 / available.max(1) as f64;
    writeln!(table, "| {what} | {available} | {tokens} | {each:.1} |").expect("a text");
}

fn write_skills(folder: &Path) {
    for at in 0..SKILLS {
        let skill = folder.join(format!("skill-{at:03}"));
        fs::create_dir(&skill).expect("a folder of a skill");
        let text = format!(
            "---\nname: skill-{at:03}\ndescription: Makes the report number {at} from the sheets of the week. Use it for reports and hours.\n---\n\
             # Report {at}\n\nRead the sheets, add them up, answer with a table.\n"
        );
        fs::write(skill.join("SKILL.md"), text).expect("a skill");
    }
}

/// Returns the median with the minimum and the maximum.
pub fn spread(figures: &mut [f64]) -> String {
    figures.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or_default();
    format!("{:.2} ({:.2}–{:.2})", at(figures.len() / 2), at(0), at(figures.len().saturating_sub(1)))
}
