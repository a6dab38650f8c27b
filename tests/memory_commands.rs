//! Memories by the command line, with a gateway and without one.

use serde_json::{Value, json};

use crate::support::gateway::Gateway;
use crate::support::{Hook, Setup};

async fn home(is_running: bool) -> Gateway {
    let setup =
        Setup::new().hook(Hook::bearer("in")).set("identities.ann", vec!["webhook:in:ann", "email:a@example.org"]);
    let mut gateway = Gateway::new(setup);
    if is_running {
        gateway.up().await;
    }
    gateway
}

/// Adds a memory and returns its id, the only standard output.
async fn add(gateway: &Gateway, args: &[&str]) -> String {
    let ran = gateway.run(&[&["memory", "add"], args].concat()).await;
    let id = ran.stdout.trim_end().to_owned();
    assert!(ran.code == Some(0) && id.parse::<i64>().is_ok(), "{args:?}: {ran:?}");
    id
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|row| row["text"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn memories_are_managed_from_the_command_line() {
    for is_running in [true, false] {
        let gateway = home(is_running).await;
        assert_eq!(gateway.json(&["memory", "show"]).await, json!([]), "looking makes nothing");
        let cat = add(&gateway, &["The cat is called Momo"]).await;
        assert_eq!(add(&gateway, &["the cat is called momo."]).await, cat, "what says the same is known");
        let language = ["--kind", "preference", "--key", "language"];
        let old = add(&gateway, &[&["German"], language.as_slice()].concat()).await;
        let new = add(&gateway, &[&["French"], language.as_slice()].concat()).await;
        add(&gateway, &["办公室星期五不开门", "--owner", "everyone"]).await;
        add(&gateway, &["Ann likes tea", "--owner", "email:a@example.org"]).await;

        let all = gateway.json(&["memory", "show"]).await;
        assert_eq!(texts(&all), ["Ann likes tea", "办公室星期五不开门", "French", "The cat is called Momo"]);
        let mine = gateway.json(&["memory", "show", "--owner", "owner"]).await;
        assert_eq!(texts(&mine), ["French", "The cat is called Momo"]);
        let ann = gateway.json(&["memory", "show", "--owner", "ann"]).await;
        assert_eq!((texts(&ann), &ann[0]["owner"]), (vec!["Ann likes tea"], &json!("ann")));
        assert_eq!(gateway.json(&["memory", "show", "--kind", "fact"]).await.as_array().unwrap().len(), 3);
        let shown = gateway.json(&["memory", "show", &new]).await;
        assert_eq!((&shown["name"], &shown["before"][0]["text"]), (&json!("language"), &json!("German")), "{shown}");
        assert_eq!(shown["before"][0]["id"].to_string(), old);

        for (query, expected) in [("name of the cat", "The cat is called Momo"), ("星期五", "办公室星期五不开门")]
        {
            let hits = gateway.json(&["memory", "search", query]).await;
            let similarity = hits[0]["similarity"].as_f64().unwrap_or(0.0);
            assert!(hits[0]["text"] == expected && similarity > 0.0 && similarity <= 1.0, "{query}: {hits}");
        }
        let mine = gateway.json(&["memory", "search", "tea", "--owner", "owner"]).await;
        assert_eq!(mine, json!([]), "what Ann told is hers");

        let stats = gateway.json(&["memory", "stats"]).await;
        assert_eq!((&stats["known"], &stats["replaced"]), (&json!(4), &json!(1)), "{stats}");
        let gone = gateway.json(&["memory", "forget", &new, &cat]).await;
        assert_eq!(gone["forgotten"].as_array().unwrap().len(), 3, "with what it had replaced: {gone}");
        assert_eq!(texts(&gateway.json(&["memory", "show"]).await), ["Ann likes tea", "办公室星期五不开门"]);

        gateway.run(&["memory", "forget", &cat]).await.assert_refused(&format!("there is no memory {cat}"));
        gateway
            .run(&["memory", "show", "--owner", "bob"])
            .await
            .assert_refused("\"bob\" is not an owner; allowed: \"owner\"");
        gateway.run(&["memory", "add", " "]).await.assert_refused("empty");
        gateway.run(&["memory", "search", "x", "--since", "noon"]).await.assert_refused("\"noon\" is not a time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_memories_are_imported_elsewhere() {
    let (from, to) = (home(true).await, home(false).await);
    add(&from, &["The cat is called Momo"]).await;
    add(&from, &["German", "--kind", "preference", "--key", "language"]).await;
    add(&from, &["Ann likes tea", "--owner", "ann"]).await;
    let lines = from.run(&["memory", "export"]).await.stdout;
    assert_eq!(lines.lines().count(), 3);
    for expected in
        [json!({"imported": 3, "known": 0, "summaries": 0}), json!({"imported": 0, "known": 3, "summaries": 0})]
    {
        let with_mark = format!("\u{feff}{lines}");
        let ran = to.run_with_input(&["memory", "import", "-", "--json"], &with_mark).await;
        assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), expected, "{ran:?}");
    }
    let again = to.run(&["memory", "export"]).await.stdout;
    let plain = |lines: &str| {
        let plain = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let [owner, kind, name, text, at] = ["owner", "kind", "name", "text", "created_at"].map(|key| &line[key]);
            format!("{owner} {kind} {name} {text} {at}")
        };
        lines.lines().map(plain).collect::<Vec<_>>()
    };
    assert_eq!(plain(&again), plain(&lines));
    let spoilt = format!("{lines}{{\"owner\":\"owner\",\"kind\":\"fakt\",\"text\":\"x\"}}\nno JSON\n");
    let ran = home(false).await.run_with_input(&["memory", "import", "-"], &spoilt).await;
    ran.assert_refused("nothing was imported:\nline 4: \"fakt\" is not a kind");
    assert!(ran.stderr.contains("line 5: this is not a memory: expected ident, in column 2\n"), "{ran:?}");
}

/// An import adds nothing that already exists, whatever its kind: tasks, which are otherwise added each time; facts that
/// contradict each other; replaced facts.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_adds_no_duplicates() {
    let line = |kind: &str, name: &str, text: &str| {
        json!({"owner": "owner", "kind": kind, "name": name, "text": text, "detail": {"steps": 2}}).to_string() + "\n"
    };
    let lines = [
        line("task", "report", "wrote the report"),
        line("task", "", "sent the report"),
        line("case", "printer", "turned it off and on"),
        line("preference", "language", "German"),
        line("fact", "", "My phone number is 123"),
        line("fact", "", "My phone number is 456"),
    ]
    .concat();
    for is_running in [true, false] {
        let to = home(is_running).await;
        let import = async |lines: &str| {
            let ran = to.run_with_input(&["memory", "import", "-", "--json"], lines).await;
            let taken: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
            (taken["imported"].clone(), taken["known"].clone())
        };
        assert_eq!(import(&lines).await, (json!(6), json!(0)));
        let exported = to.run(&["memory", "export"]).await.stdout;
        let stats = to.json(&["memory", "stats"]).await["entries"].clone();
        for lines in [&lines, &exported] {
            assert_eq!(import(lines).await.0, json!(0), "{lines}");
            assert_eq!(to.run(&["memory", "export"]).await.stdout, exported);
            assert_eq!(to.json(&["memory", "stats"]).await["entries"], stats);
        }
    }
}

/// An import over TCP may be larger than other API bodies. It is read, and each of its lines lacks an owner.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_of_three_megabytes_is_read_over_tcp() {
    let gateway = Gateway::start(Setup::new()).await;
    let fact =
        |number: usize| json!({"kind": "fact", "text": format!("fact {number} {}", "word ".repeat(150))}).to_string();
    let lines = (0..4_000).map(fact).collect::<Vec<_>>().join("\n");
    assert!(lines.len() > 3_000_000, "{}", lines.len());
    for (path, status) in [("/api/memory", 413), ("/api/memory/import", 422)] {
        let request = gateway.client.post(gateway.url(path)).bearer_auth(gateway.token()).body(lines.clone());
        let answered = Gateway::try_send(request).await.expect("an answer");
        assert_eq!(answered.status, status, "{path}: {:.500}", answered.body.to_string());
    }
}
