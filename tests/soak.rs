//! Random messages, random crashes, and a model service that sometimes fails. The run is short here and long with `cargo
//! xtask soak`. A failure names the seed that repeats it: the same messages, the same crashes in the same order, and the
//! same faults at the same requests. Only the interleaving of threads depends on the machine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use crate::support::invariants::{Witness, check};
use crate::support::{Gate, Gateway, Hook, Model, POLL, Reply, Setup, Sink};

const POINTS: &[&str] = &[
    "accept_before_commit", "accept_committed", "turn_started", "response_committed", "tool_started", "tool_finished",
    "tool_result_committed", "final_response_received", "end_committed", "sending_committed", "sent_unmarked",
];
const CHATS: usize = 6;
const MESSAGES: usize = 20;

/// SplitMix64, a small generator that gives the same numbers on every machine.
struct Random(u64);

impl Random {
    /// Returns a number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bound = u64::try_from(bound).expect("a small bound");
        usize::try_from((mixed ^ (mixed >> 31)) % bound).expect("below a small bound")
    }
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// One run of the gateway and the way it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Life {
    /// The fail point that ends the run, if the run reaches it often enough.
    point: Option<String>,
    /// Otherwise the gateway is killed after this many requests to the model.
    requests: usize,
}

/// The actions of a round, all derived from its seed.
struct Plan {
    seed: u64,
}

impl Plan {
    /// Returns a generator for `what`, so that results do not depend on the order of the calls.
    fn random(&self, what: &str) -> Random {
        let hash = Sha256::digest(format!("{} {what}", self.seed));
        Random(hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn life(&self, number: usize) -> Life {
        let mut random = self.random(&format!("life {number}"));
        let point = format!("{}:{}", POINTS[random.below(POINTS.len())], 1 + random.below(12));
        Life { point: (random.below(4) > 0).then_some(point), requests: 1 + random.below(8) }
    }

    /// Returns which messages of a chat run a command.
    fn commands(&self, chat: usize) -> Vec<bool> {
        let mut random = self.random(&format!("chat {chat}"));
        (0..MESSAGES).map(|_| random.below(3) == 0).collect()
    }

    /// Returns the fault of the `time`-th attempt of a request about `text`, if it has one.
    fn fault(&self, text: &str, step: usize, time: usize) -> Option<usize> {
        let mut random = self.random(&format!("request {text} {step} {time}"));
        (random.below(8) == 0).then(|| random.below(5))
    }
}

#[test]
fn a_seed_determines_a_whole_soak_round() {
    let lives = |seed| (0..50).map(|number| Plan { seed }.life(number)).collect::<Vec<_>>();
    let commands = |seed| (0..CHATS).map(|chat| Plan { seed }.commands(chat)).collect::<Vec<_>>();
    let faults = |seed| (0..200).map(|n| Plan { seed }.fault(&format!("say w-{n}"), 0, 1)).collect::<Vec<_>>();
    assert_eq!((lives(7), commands(7), faults(7)), (lives(7), commands(7), faults(7)));
    assert_ne!(lives(7), lives(8));
    assert_ne!(commands(7), commands(8));
    assert_ne!(faults(7), faults(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn soak() {
    let first = env_number("DAOYOU_SOAK_SEED")
        .unwrap_or_else(|| u64::try_from(jiff::Timestamp::now().as_millisecond()).expect("a time after 1970"));
    let minutes = env_number("DAOYOU_SOAK_MINUTES").unwrap_or(0);
    let wanted = usize::try_from(env_number("DAOYOU_SOAK_KILLS").unwrap_or(0)).expect("a small number");
    let begun = Instant::now();
    let mut kills = 0;
    for round in 0.. {
        let seed = first.wrapping_add(round);
        println!("soak: seed {seed}; repeat with `cargo xtask soak --minutes 0 --seed {seed}`");
        kills += one_round(Plan { seed }).await;
        println!("soak: killed {kills} times, nothing lost, nothing twice");
        if begun.elapsed() >= Duration::from_secs(minutes * 60) && kills >= wanted {
            break;
        }
    }
}

/// Returns the answer of a service that sometimes fails. The second attempt usually succeeds. Otherwise the turn ends with
/// an error, and all other invariants hold.
fn fault(kind: usize, never: &Gate, answer: Reply) -> Reply {
    match kind {
        0 => Reply::status(429).retry_after("0"),
        1 => Reply::status(500),
        2 => Reply::hang(),
        3 => answer.chunk_chars(4).stalls_after(3, never),
        _ => answer.chunk_chars(4).drops_after(3),
    }
}

/// Runs senders that send until their messages are accepted, a service that fails, and a gateway that is killed repeatedly.
/// Then checks everything. Returns the number of kills.
async fn one_round(plan: Plan) -> usize {
    let (model, never) = (Model::start().await, Gate::new());
    let (of_requests, tries) = (Plan { seed: plan.seed }, Mutex::new(BTreeMap::<(String, usize), usize>::new()));
    model.script(move |asked| {
        let answer = match asked.user.strip_prefix("run ") {
            Some(word) if asked.step == 0 => {
                let command = json!({"command": format!("echo {word} >> effects.txt")});
                Reply::tool("exec", &command)
            }
            Some(word) => Reply::text(format!("ran {word}")),
            None => Reply::text(format!("echo: {}", asked.user)),
        };
        let mut tries = tries.lock().expect("no script panicked");
        let time = tries.entry((asked.user.clone(), asked.step)).or_default();
        *time += 1;
        Some(match of_requests.fault(&asked.user, asked.step, *time) {
            Some(kind) => fault(kind, &never, answer),
            None => answer,
        })
    });
    let sink = Sink::signed().await;
    let hook = Hook::bearer("in").callback(&sink).set("retry", vec!["50ms"; 200]);
    let setup = Setup::new().model(&model).set("providers.scripted.idle_timeout", "300ms").hook(hook);
    let mut gateway = Gateway::new(setup);
    let accepted = Arc::new(Mutex::new(Vec::new()));
    let mut senders = JoinSet::new();
    for chat in 0..CHATS {
        let tools = plan.commands(chat);
        let sender = sender(gateway.client.clone(), gateway.url("/webhook/in"), chat, tools, Arc::clone(&accepted));
        senders.spawn(sender);
    }
    let begun = Instant::now();
    let mut deaths = 0;
    while !senders.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(180), "the gateway makes no headway between its deaths");
        let Life { point, requests } = plan.life(deaths);
        if let Some(point) = &point {
            gateway.crash_at(point);
        }
        gateway.spawn();
        let kill_at = model.count() + requests;
        let deadline = Instant::now() + Duration::from_secs(5);
        while gateway.try_exit().is_none() {
            while let Some(sender) = senders.try_join_next() {
                sender.expect("a sender");
            }
            if senders.is_empty() || model.count() >= kill_at || Instant::now() > deadline {
                gateway.kill9().await;
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        deaths += 1;
    }
    assert!(deaths >= 2, "the gateway died only {deaths} times: this was not a soak");
    gateway.recover().await;
    let accepted = accepted.lock().expect("no sender panicked").clone();
    assert_eq!((accepted.len(), model.refused()), (CHATS * MESSAGES, Vec::new()));
    check(&gateway.database(), &Witness { accepted: &accepted, sink: Some(&sink), strict_order: false });
    let effects = std::fs::read_to_string(gateway.workspace().join("effects.txt")).unwrap_or_default();
    let mut ran: BTreeMap<&str, usize> = BTreeMap::new();
    for word in effects.lines() {
        *ran.entry(word).or_default() += 1;
    }
    assert!(ran.values().all(|times| *times == 1), "a command ran twice: {ran:?}");
    deaths
}

/// Sends the messages of one chat in order, each until it is accepted.
async fn sender(
    client: reqwest::Client,
    url: String,
    chat: usize,
    tools: Vec<bool>,
    accepted: Arc<Mutex<Vec<String>>>,
) {
    for (n, tool) in tools.into_iter().enumerate() {
        let word = format!("w-{chat}-{n}");
        let content = if tool { format!("run {word}") } else { format!("say {word}") };
        let body = json!({"content": content, "chat_id": format!("chat-{chat}"), "id": word});
        loop {
            let request = client.post(&url).bearer_auth("the-bearer-secret").json(&body);
            let answered = Gateway::try_send(request).await;
            if let Some(answered) = answered.filter(|answered| answered.status == 202) {
                let id = answered.body["id"].as_str().map(str::to_owned);
                accepted.lock().expect("no sender panicked").push(id.expect("an accepted message has an id"));
                break;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// The generator is the same on every machine; otherwise a seed would not repeat a run.
#[test]
fn the_soak_generator_is_stable() {
    let mut random = Random(1);
    let drawn: Vec<usize> = (0..4).map(|_| random.below(1_000)).collect();
    assert_eq!(drawn, [465, 519, 590, 235]);
}
