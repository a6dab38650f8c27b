//! What a service's cache saves: each request of a session begins with nearly all of the one before.

use serde_json::{Value, json};

use crate::support::{Gateway, Hook, Model, Reply, Setup};

/// Of the bytes of the earlier request, as many have to come again.
const SHARED: f64 = 0.98;

/// What stands in front of a request for a service's cache: tools, system prompt, messages.
fn prefix(request: &Value) -> String {
    format!("{}{}", request["tools"], request["messages"])
}

/// The part of `before` that `after` begins with.
fn shared(before: &str, after: &str) -> f64 {
    let same = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    same as f64 / before.len() as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn consecutive_requests_share_their_beginning() {
    let model = Model::start().await;
    model.on("look", [Reply::tool("list_dir", &json!({"path": "."})), Reply::text("I looked.")]);
    model.on(
        "keep",
        [Reply::tool("remember", &json!({"content": "Ann's lucky number is 7"})), Reply::text("I keep it in mind.")],
    );
    let mut gateway = Gateway::start(Setup::new().model(&model).hook(Hook::bearer("in"))).await;
    for n in 0..30 {
        let word = if n % 7 == 3 { "keep" } else { "look" };
        gateway.ask("in", "c", &format!("{word} at number {n}")).await;
        if n == 15 {
            gateway.restart().await;
        }
    }
    let requests = model.requests();
    let systems: Vec<_> = requests.iter().map(|request| &request["messages"][0]).collect();
    let mut compactions = 0;
    for (n, pair) in requests.windows(2).enumerate() {
        let share = shared(&prefix(&pair[0]), &prefix(&pair[1]));
        if systems[n] != systems[n + 1] {
            compactions += 1;
            assert!(systems[n + 1]["content"].as_str().unwrap().contains("# Earlier"), "{}", systems[n + 1]);
        } else {
            assert!(share >= SHARED, "request {n} shares {share:.3} of the one before");
        }
    }
    // 120 messages: at 50, and every 25 behind that.
    assert!((1..=4).contains(&compactions), "{compactions} of {} requests", requests.len());
    assert_eq!((requests.len(), model.refused()), (60, Vec::new()));
}
