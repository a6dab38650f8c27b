//! Measures MCP servers: what configured servers add to a start, what a call costs compared with a bare client, and the
//! memory of idle connections.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::skills::spread;
use super::support::gateway::http_client;
use super::support::processes::resident_bytes;
use super::support::{Gateway, Setup};
use super::{Bench, start_time};

const SERVER: &str = include_str!("../../tests/mcp/server.py");
const PYTHON: &str = "python3";
const SERVERS: usize = 10;
const STARTS: usize = 7;
const RUNS: usize = 3;
const CALLS: usize = 500;

/// Prints the rows of MCP servers.
#[expect(clippy::print_stdout, reason = "the bench's output")]
pub async fn mcp() {
    println!("\n| what | none | {SERVERS} servers |\n|---|---|---|");
    let mut benches =
        [Bench::stopped(Duration::ZERO, |setup| setup).await, Bench::stopped(Duration::ZERO, with_servers).await];
    let mut starts = [Vec::new(), Vec::new()];
    let mut residents = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (at, bench) in benches.iter_mut().enumerate() {
            starts[at].push(start_time(bench, STARTS).await.as_secs_f64() * 1e3);
            bench.gateway.up().await;
            if at > 0 {
                connect(&bench.gateway).await;
            }
            residents[at].push(resident_bytes(bench.gateway.pid()) as f64 / 1e6);
            bench.gateway.stop().await;
        }
    }
    let [none, many] = starts.each_mut().map(|times| spread(times));
    println!("| start to ready | {none} ms | {many} ms |");
    let [none, many] = residents.each_mut().map(|sizes| spread(sizes));
    println!("| resident, each server called once and idle | {none} MB | {many} MB |");
    println!("\n| what | a call, median of {CALLS} |\n|---|---|");
    benches[1].gateway.up().await;
    let gateway = &benches[1].gateway;
    let (mut bare, mut ours, mut built_in) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        bare.push(bare_call());
        ours.push(call_time(gateway, "notes0__echo", |at| json!({"text": format!("text {at}")})).await);
        built_in.push(call_time(gateway, "file_info", |_| json!({"path": "."})).await);
    }
    println!("| a bare client, the server not in a sandbox | {} ms |", spread(&mut bare));
    println!("| `POST /api/tools/notes0__echo/run` | {} ms |", spread(&mut ours));
    println!("| the same with a tool of the program, `file_info` | {} ms |", spread(&mut built_in));
}

fn with_servers(setup: Setup) -> Setup {
    let command: Vec<String> = [PYTHON, "-c", SERVER, "works"].map(str::to_owned).to_vec();
    (0..SERVERS).fold(setup, |setup, at| setup.set(&format!("mcp.notes{at}.command"), command.clone()))
}

/// Starts all servers and calls each once.
async fn connect(gateway: &Gateway) {
    for at in 0..SERVERS {
        let tested = gateway.run(&["mcp", "test", &format!("notes{at}")]).await;
        assert_eq!(tested.code, Some(0), "{tested:?}");
        let called = gateway.run(&["tools", "run", &format!("notes{at}__echo"), r#"{"text": "a"}"#]).await;
        assert_eq!(called.code, Some(0), "{called:?}");
    }
}

/// Returns the median time of a call over HTTP, in milliseconds.
async fn call_time(gateway: &Gateway, tool: &str, arguments: impl Fn(usize) -> serde_json::Value) -> f64 {
    let (client, token) = (http_client(), gateway.token());
    let url = gateway.url(&format!("/api/tools/{tool}/run"));
    let mut times = Vec::new();
    for at in 0..=CALLS {
        let body = json!({"arguments": arguments(at).to_string()}).to_string();
        let request = client.post(&url).bearer_auth(&token).body(body);
        let begun = Instant::now();
        let answer = request.send().await.expect("an answer of the gateway");
        let status = answer.status();
        let text = answer.text().await.expect("an answer of the gateway");
        let taken = begun.elapsed();
        assert!(status.is_success() && text.contains("\"success\":true"), "{status}: {text}");
        // The first call starts the server.
        if at > 0 {
            times.push(taken);
        }
    }
    median(&mut times)
}

/// Returns the median time of a call over a pipe, in milliseconds.
fn bare_call() -> f64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(PYTHON);
    command.args(["-c", SERVER, "works"]).current_dir(&folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.spawn().expect("python3");
    let (mut input, output) = (server.stdin.take().expect("a pipe"), server.stdout.take().expect("a pipe"));
    let mut lines = BufReader::new(output).lines();
    let mut ask = |method: &str, params: serde_json::Value, id: usize| {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{request}").expect("the server reads");
        let wanted = json!(id);
        loop {
            let line = lines.next().expect("an answer").expect("a line");
            let answer: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            if answer["id"] == wanted {
                return answer;
            }
        }
    };
    let client =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
    ask("initialize", client, 0);
    let mut times = Vec::new();
    for at in 1..=CALLS {
        let begun = Instant::now();
        let answer = ask("tools/call", json!({"name": "echo", "arguments": {"text": format!("text {at}")}}), at);
        times.push(begun.elapsed());
        assert!(answer["result"].is_object(), "{answer}");
    }
    server.kill().and_then(|()| server.wait()).expect("the server ends");
    median(&mut times)
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}
