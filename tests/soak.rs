//! Random messages, random deaths, and a model service that fails now and then. Short here, long by `cargo xtask soak`; a failure names the seed that repeats it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::invariants::{Witness, check};
use crate::support::{Gate, Gateway, Hook, Model, POLL, Reply, Setup, Sink, config};

const POINTS: &[&str] = &[
    "accept_before_commit",
    "accept_committed",
    "turn_started",
    "response_committed",
    "tool_started",
    "tool_finished",
    "tool_result_committed",
    "final_response_committed",
    "end_committed",
    "sending_committed",
    "sent_unmarked",
];
const CHATS: usize = 6;
const MESSAGES: usize = 20;

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    /// A number below `bound`.
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

#[tokio::test(flavor = "multi_thread")]
async fn soak() {
    let first = env_number("DAOYOU_SOAK_SEED")
        .unwrap_or_else(|| u64::try_from(jiff::Timestamp::now().as_millisecond()).expect("a time after 1970"));
    let minutes = env_number("DAOYOU_SOAK_MINUTES").unwrap_or(0);
    let begun = Instant::now();
    for round in 0.. {
        let seed = first.wrapping_add(round);
        println!("soak: seed {seed}; repeat with `cargo xtask soak --minutes 0 --seed {seed}`");
        one_round(Random(seed)).await;
        if begun.elapsed() >= Duration::from_secs(minutes * 60) {
            break;
        }
    }
}

/// What a service does that fails now and then. The second try mostly helps; where it does not, the turn ends with an
/// error, and all else holds.
fn fault(random: &mut Random, never: &Gate, answer: Reply) -> Reply {
    match random.below(5) {
        0 => Reply::status(429).retry_after("0"),
        1 => Reply::status(500),
        2 => Reply::hang(),
        3 => answer.chunk_chars(4).stalls_after(3, never),
        _ => answer.chunk_chars(4).drops_after(3),
    }
}

/// Senders who send until they are told "accepted", a service that fails, a gateway that is killed again and again, and in the end a look at
/// everything.
async fn one_round(mut random: Random) {
    let (model, never) = (Model::start().await, Gate::new());
    let faults = Mutex::new(Random(random.0 ^ 1));
    model.script(move |asked| {
        let answer = match asked.user.strip_prefix("run ") {
            Some(word) if asked.step == 0 => {
                let command = json!({"command": format!("echo {word} >> effects.txt")});
                Reply::tool("exec", &command)
            }
            Some(word) => Reply::text(format!("ran {word}")),
            None => Reply::text(format!("echo: {}", asked.user)),
        };
        let mut faults = faults.lock().expect("no script panicked");
        Some(if faults.below(8) == 0 { fault(&mut faults, &never, answer) } else { answer })
    });
    let sink = Sink::start(Some(&config::callback_secret())).await;
    let hook = Hook::bearer("in").callback(&sink).set("retry", vec!["50ms"; 200]);
    let setup = Setup::new().model(&model).set("providers.scripted.idle_timeout", "300ms").hook(hook);
    let mut gateway = Gateway::new(setup);
    let accepted = Arc::new(Mutex::new(Vec::new()));
    let mut senders = JoinSet::new();
    for chat in 0..CHATS {
        let tools: Vec<bool> = (0..MESSAGES).map(|_| random.below(3) == 0).collect();
        let sender = sender(gateway.client.clone(), gateway.url("/webhook/in"), chat, tools, Arc::clone(&accepted));
        senders.spawn(sender);
    }
    let begun = Instant::now();
    let mut deaths = 0;
    while !senders.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(180), "the gateway makes no headway between its deaths");
        let point = format!("{}:{}", POINTS[random.below(POINTS.len())], 1 + random.below(12));
        if random.below(4) > 0 {
            gateway.crash_at(&point);
        }
        gateway.spawn();
        let kill_at = model.count() + 1 + random.below(8);
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
    assert!(deaths >= 2, "the gateway died only {deaths} times: this was no soak");
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
            let request = client.post(&url).bearer_auth("a-bearer-secret").json(&body);
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

/// The generator is the same everywhere, or a seed would repeat nothing.
#[test]
fn the_soaks_generator_is_stable() {
    let mut random = Random(1);
    let drawn: Vec<usize> = (0..4).map(|_| random.below(1_000)).collect();
    assert_eq!(drawn, [465, 519, 590, 235]);
}
