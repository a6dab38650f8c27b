//! The ways to create jobs: the command line with and without a gateway, the tool in a chat, and the file.

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, Message};
use crate::support::invariants::{open_to_change, wait_settled};
use crate::support::{Hook, Model, Reply, Setup, Sink, until};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Adds a job by the command line; returns its id, which must be the only standard output.
async fn add(gateway: &Gateway, args: &[&str]) -> String {
    let ran = gateway.run(&[&["cron", "add"], args].concat()).await;
    let id = ran.stdout.trim_end();
    let is_id = id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    assert!(ran.code == Some(0) && is_id && ran.stderr.contains("next: "), "{args:?}: {ran:?}");
    id.to_owned()
}

/// Returns a hook with a callback, so that its messages count as read. No job is due in this test.
fn hook_that_is_read() -> Hook {
    Hook::bearer("in").set("callback_url", "http://127.0.0.1:9/never")
}

/// The same command lines give the same answers with and without a running gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_managed_by_the_command_line() {
    for is_running in [true, false] {
        let setup = Setup::new().set("agent.timezone", "Asia/Shanghai").hook(hook_that_is_read());
        let mut gateway = Gateway::new(setup);
        if is_running {
            gateway.up().await;
        }
        let list = async || gateway.json(&["cron", "list"]).await;
        assert_eq!(list().await, json!([]), "looking makes nothing");
        let news = [
            "--name", "news", "--cron", "0 9 * * *", "--prompt", "What is new?", "--channel", "webhook:in", "--chat",
            "c",
        ];
        let more =
            ["--misfire", "skip", "--deliver", "on_change", "--session", "cli:work", "--model", "offline/offline"];
        let id = add(&gateway, &[news.as_slice(), &more].concat()).await;
        let job = gateway.json(&["cron", "show", "news"]).await;
        let expected = json!({
            "id": id, "name": "news", "state": "enabled", "kind": "prompt", "text": "What is new?", "channel": "webhook:in",
            "chat_id": "c", "session": "cli:work", "misfire": "skip", "deliver": "on_change",
            "schedule": {"cron": "0 9 * * *", "tz": "Asia/Shanghai"}, "delete_after_run": false,
        });
        for (key, value) in expected.as_object().expect("an object") {
            assert_eq!(&job[key], value, "{key}: {job}");
        }
        assert!(job["next_at"].as_str().is_some_and(|at| at.ends_with("T01:00:00Z")), "{job}");
        assert_eq!(job["upcoming"].as_array().map(Vec::len), Some(5));
        assert_eq!(gateway.json(&["cron", "history", &id]).await, json!([]));
        for (word, state) in [("disable", "disabled"), ("enable", "enabled")] {
            let ran = gateway.run(&["cron", word, "news"]).await;
            assert!(ran.code == Some(0) && ran.stdout.contains(&id), "{ran:?}");
            assert_eq!(list().await[0]["state"], state);
        }
        let tea = add(&gateway, &words("--at 2031-01-01T09:00:00+08:00 --message tea")).await;
        let rows = list().await;
        assert_eq!((rows[1]["id"].as_str(), &rows[1]["delete_after_run"]), (Some(tea.as_str()), &json!(true)));
        let table = gateway.run(&["cron", "list"]).await.stdout;
        assert!(table.starts_with("ID") && table.contains("2031-01-01 09:00"), "{table}");
        assert_eq!(gateway.json(&["cron", "remove", &tea]).await["removed"], true);
        assert_eq!(list().await.as_array().map(Vec::len), Some(1));
        wrong_lines(&gateway).await;
    }
}

/// Every error says what would be correct.
async fn wrong_lines(gateway: &Gateway) {
    let twin = add(gateway, &["--name", "twin", "--every", "2h", "--message", "1"]).await;
    let taken = format!("a job named \"twin\" already exists ({twin}); choose another name");
    gateway.run(&words("cron add --name twin --every 3h --message 2")).await.assert_refused(&taken);
    let is_id = format!("\"{twin}\" is the id of another job, \"twin\"");
    gateway.run(&["cron", "add", "--name", &twin, "--every", "3h", "--message", "2"]).await.assert_refused(&is_id);
    let long = "n".repeat(101);
    let ran = gateway.run(&["cron", "add", "--name", &long, "--every", "3h", "--message", "2"]).await;
    ran.assert_refused("its name has 101 characters; at most 100 are allowed");
    let mut file = gateway.json(&["cron", "export"]).await;
    let jobs = file["jobs"].as_array_mut().expect("a list");
    jobs.retain(|job| job["name"] == "twin");
    jobs[0]["id"] = json!("another1");
    let ran = gateway.run_with_input(&words("cron import - --json"), &file.to_string()).await;
    let refusal: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let reason = refusal["refused"][0]["reason"].as_str().unwrap_or_default();
    assert!(ran.code == Some(1) && reason.contains(&taken), "{ran:?}");
    // Jobs without a name get distinct names.
    for name in ["drink", "drink 2"] {
        let id = add(gateway, &["--every", "2h", "--message", "drink"]).await;
        assert_eq!(gateway.json(&["cron", "show", name]).await["id"], id.as_str());
    }
    // Duplicate names can come from versions that did not require distinct names.
    let job = add(gateway, &["--name", "older", "--every", "2h", "--message", "1"]).await;
    let store = open_to_change(&gateway.database());
    store.execute("UPDATE jobs SET name = 'twin' WHERE id = ?", [&job]).expect("our own file");
    for (line, expected) in [
        ("show nothing", "there is no job \"nothing\""),
        ("history nothing", "there is no job \"nothing\""),
        ("remove nothing", "there is no job \"nothing\""),
        ("enable nothing", "there is no job \"nothing\""),
        ("run nothing", "there is no job \"nothing\""),
        ("remove twin", "2 jobs are called \"twin\"; say which id: "),
        ("add --at 2020-01-01T00:00:00Z --message x", "past"),
        ("add --every soon --message x", "is not a duration"),
        ("add --every 2h --message x --jitter soon", "is not a duration"),
        ("add --cron @daily --tz Mars/Base --message x", "not a known time zone"),
        ("add --every 2h --message x --channel emial --chat a", "there are cli, page, webhook:in"),
        ("add --every 2h --message x --channel webhook:in", "needs a chat"),
        ("import nothing.json", "nothing.json cannot be opened"),
    ] {
        gateway.run(&[&["cron"], words(line).as_slice()].concat()).await.assert_refused(expected);
    }
    let ran = gateway.run(&words("cron add --every 2h --message x --misfire never")).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let ran = gateway.run_with_input(&words("cron import -"), "{\n  \"jobs\": [,]\n}").await;
    ran.assert_refused("at line 2 column 12");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cron_api_answers_errors_with_their_status() {
    let gateway = Gateway::start(Setup::new().set("cron.max_jobs", 1)).await;
    let url = |path: &str| gateway.url(&format!("/api/cron{path}"));
    let open = Gateway::try_send(gateway.client.get(url(""))).await.expect("an answer");
    assert_eq!(open.status, 401);
    let send = async |request: reqwest::RequestBuilder| {
        Gateway::try_send(request.bearer_auth(gateway.token())).await.expect("an answer")
    };
    let job = json!({"name": "n", "prompt": "x", "every": "2h"});
    let made = send(gateway.client.post(url("")).json(&job)).await;
    assert_eq!((made.status, made.text("name")), (200, "n"), "{made:?}");
    for (request, status, expected) in [
        (gateway.client.post(url("")).json(&job), 422, "as many as cron.max_jobs allows"),
        (gateway.client.post(url("")).json(&json!({"promt": "x"})), 422, "unknown field `promt`"),
        (gateway.client.post(url("")).body("{"), 400, "not valid"),
        (gateway.client.get(url("/x")), 404, "there is no job"),
        (gateway.client.patch(url("/x")).json(&json!({"prompt": "y"})), 404, "there is no job"),
        (gateway.client.patch(url("/n")).json(&json!({"promt": "y"})), 422, "unknown field `promt`"),
        (gateway.client.get(url("?limit=1")), 400, "there is no parameter \"limit\"; allowed: none"),
        (gateway.client.get(url("/n/history?limt=1")), 400, "there is no parameter \"limt\"; allowed: limit"),
        (gateway.client.delete(url("/x")), 404, "there is no job"),
        (gateway.client.post(url("/x/run")), 404, "there is no job"),
        (gateway.client.get(url("/x/history")), 404, "there is no job"),
        (gateway.client.post(url("/import")).body("[1"), 422, "line 1 column 2"),
    ] {
        let answered = send(request).await;
        let message = answered.body["error"]["message"].as_str().unwrap_or_default();
        assert!(answered.status == status && message.contains(expected), "{expected}: {answered:?}");
    }
    let edited = send(gateway.client.patch(url("/n")).json(&json!({"prompt": "y"}))).await;
    assert_eq!(
        (&edited.body["text"], &edited.body["schedule"], &edited.body["name"]),
        (&json!("y"), &made.body["schedule"], &json!("n")),
        "{edited:?}"
    );
    assert_eq!(send(gateway.client.post(url("/n/disable"))).await.text("state"), "disabled");
    assert_eq!(send(gateway.client.get(url("/export"))).await.body["jobs"][0]["name"], "n");
    assert_eq!(send(gateway.client.delete(url("/n"))).await.body["removed"], true);
}

/// A manual run starts at once, or as soon as a gateway runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_by_hand() {
    let model = Model::start().await;
    model.on("What is new?", [Reply::text("Nothing much.")]);
    let sink = Sink::signed().await;
    let mut gateway = Gateway::new(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink)));
    let place = ["--channel", "webhook:in", "--chat", "c"];
    add(&gateway, &[["--name", "tea", "--every", "1d", "--message", "The tea is ready"].as_slice(), &place].concat())
        .await;
    add(&gateway, &[["--name", "news", "--every", "1d", "--prompt", "What is new?"].as_slice(), &place].concat()).await;
    let ran = gateway.run(&["cron", "run", "tea"]).await;
    assert!(ran.code == Some(0) && ran.stdout.starts_with("queued: "), "{ran:?}");
    assert!(ran.stdout.contains("no gateway runs at the moment, the next one carries it out"), "{ran:?}");
    assert_eq!(gateway.json(&["cron", "run", "news"]).await["state"], "queued");
    for (job, outcome, has_started) in [("tea", "ok", true), ("news", "queued", false)] {
        let runs = gateway.json(&["cron", "history", job]).await;
        assert_eq!((&runs[0]["outcome"], runs[0]["started"].is_string()), (&json!(outcome), has_started), "{runs}");
    }
    gateway.up().await;
    let posts = sink.wait_posts(2).await;
    let mut delivered: Vec<_> = posts.iter().map(|post| (post.data("chat_id"), post.data("content"))).collect();
    delivered.sort_unstable();
    assert_eq!(delivered, [("c", "Nothing much."), ("c", "The tea is ready")]);
    wait_settled(&gateway.database()).await;
    let ran = gateway.run(&["cron", "run", "news"]).await;
    assert!(ran.code == Some(0) && ran.stdout.starts_with("started: "), "{ran:?}");
    assert_eq!(sink.wait_posts(3).await[2].data("content"), "Nothing much.");
    wait_settled(&gateway.database()).await;
    for job in ["tea", "news"] {
        let runs = gateway.json(&["cron", "history", job]).await;
        let seen = ["outcome", "delivery"].map(|key| runs[0][key].as_str().unwrap_or_default());
        let expected = if job == "tea" { 1 } else { 2 };
        assert_eq!((runs.as_array().map(Vec::len), seen), (Some(expected), ["ok", "sent"]), "{runs}");
        assert!(["due", "started", "ended", "turn"].iter().all(|key| runs[0][*key].is_string()), "{runs}");
    }
    let news = gateway.json(&["cron", "history", "news", "--limit", "1"]).await;
    assert!(news[0]["input_tokens"].as_u64() > Some(0), "{news}");
}

/// Jobs that the model creates in a chat send their output to that chat: a reminder without a model, a task with one.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_creates_jobs_for_its_chat() {
    let model = Model::start().await;
    let tea = json!({"action": "add", "kind": "message", "message": "The tea is ready", "at": "in 1s"});
    let look = json!({"action": "add", "prompt": "Look at the build", "at": "in 1s", "name": "build"});
    let daily = json!({"action": "add", "message": "x", "every": "1d", "name": "daily"});
    let both = Reply::tool("cron", &tea).and_tool("schedule", &look).and_tool("cron", &daily);
    let odd = Reply::tool("cron", &json!({"action": "add", "message": "x", "at": "2020-01-01T00:00:00Z"}))
        .and_tool("cron", &daily)
        .and_tool("cron", &json!({"action": "remove", "job_id": "daily"}))
        .and_tool("cron", &json!({"action": "remove", "job_id": "nothing"}))
        .and_tool("cron", &json!({"action": "list"}));
    model.on("tea and build", [both, odd, Reply::text("I will.")]);
    model.on("Look at the build", [Reply::text("The build is green.")]);
    let sink = Sink::signed().await;
    let gateway = Gateway::start(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink))).await;
    let id = gateway.accept("in", &Message::new("tea and build").chat("c")).await;
    sink.wait_reply(&id).await;
    let posts = sink.wait_posts(3).await;
    let mut delivered: Vec<_> = posts.iter().map(|post| (post.data("chat_id"), post.data("content"))).collect();
    delivered.sort_unstable();
    assert_eq!(delivered, [("c", "I will."), ("c", "The build is green."), ("c", "The tea is ready")]);
    let result = model.requests_about("tea and build").last().expect("a request")["messages"].to_string();
    for expected in [
        "Created job 'The tea is ready' (id: ",
        "Created job 'build'",
        "a job named \\\"daily\\\" already exists",
        "past",
        "Job nothing not found; there are",
    ] {
        assert!(result.contains(expected), "{expected}: {result}");
    }
    until("both jobs to be gone", async || (gateway.json(&["cron", "list"]).await == json!([])).then_some(())).await;
    assert_eq!(model.refused(), [""; 0]);
}

/// Reminders without any model, in both languages, and `/cron`.
#[tokio::test(flavor = "multi_thread")]
async fn the_offline_responder_creates_reminders() {
    let gateway = Gateway::new(Setup::new().set("agent.timezone", "Asia/Shanghai").hook(hook_that_is_read()));
    let ask = async |text: &str| {
        let ran = gateway.run(&["agent", "-m", text]).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{text}: {ran:?}");
        ran.stdout
    };
    assert!(ask("有哪些提醒").await.contains("没有提醒"));
    assert!(ask("/cron").await.contains("no reminders"));
    let zone = jiff::tz::TimeZone::get("Asia/Shanghai").expect("a zone");
    let in_20_minutes = || {
        let due = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(20);
        due.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:").to_string()
    };
    let earliest = in_20_minutes();
    let once = ask("remind me in 20 minutes to call mum").await;
    assert!(once.contains("call mum"), "{once}");
    assert!([earliest, in_20_minutes()].iter().any(|hour| once.contains(hour)), "{once}");
    let daily = ask("每天8点提醒我吃药").await;
    assert!(daily.contains("吃药") && daily.contains(" 08:00"), "{daily}");
    let mut jobs = gateway.json(&["cron", "list"]).await;
    // The list is in the order of the next runs, which depends on the time of day.
    let jobs = jobs.as_array_mut().expect("a list");
    jobs.sort_by_key(|job| job["text"].to_string());
    let seen: Vec<_> = jobs.iter().map(|job| (job["kind"].clone(), job["text"].clone())).collect();
    assert_eq!(seen, [(json!("message"), json!("Reminder: call mum")), (json!("message"), json!("提醒：吃药"))]);
    for list in ["list my reminders", "/cron"] {
        let listed = ask(list).await;
        assert!(listed.contains("call mum") && listed.contains("吃药"), "{list}: {listed}");
        let shows_ids = jobs.iter().any(|job| listed.contains(job["id"].as_str().unwrap()));
        assert_eq!(shows_ids, list != "/cron", "people go by names: {listed}");
    }
    assert!(ask("cancel the reminder to call mum").await.contains("cancelled"));
    // Reminders with the same text get numbers.
    for text in ["remind me in 2 hours to call mum", "remind me in 3 hours to call mum"] {
        assert!(ask(text).await.contains("I will remind you"), "{text}");
    }
    assert!(ask("1小时后提醒我吃药").await.contains("会在"));
    let numbered = gateway.json(&["cron", "list"]).await;
    let names: Vec<_> = numbered.as_array().expect("a list").iter().map(|job| job["name"].clone()).collect();
    for name in ["call mum", "call mum 2", "吃药", "吃药 2"] {
        assert!(names.contains(&json!(name)), "{names:?}");
    }
    for name in ["call mum 2", "call mum", "吃药 2"] {
        assert!(ask(&format!("cancel reminder {name}")).await.contains("cancelled"), "{name}");
    }
    let id = jobs[1]["id"].as_str().expect("an id");
    assert!(ask(&format!("取消提醒 {id}")).await.contains("已取消"));
    assert_eq!(gateway.json(&["cron", "list"]).await, json!([]));
    assert!(ask("cancel reminder 7").await.contains("Job 7 not found"));
}

/// A machine whose zone has no name, by a rule such as `TZ=CST-8`, has its jobs by its own clock.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_follow_the_clock_of_a_zone_without_a_name() {
    for (rule, name, due) in [("CST-8", "+08:00", "T01:00:00Z"), ("UTC-8", "+08:00", "T01:00:00Z")] {
        let gateway = Gateway::new(Setup::new().env("TZ", rule));
        let ran = gateway.run(&["cron", "add", "--cron", "0 9 * * *", "--message", "x"]).await;
        assert!(ran.stderr.contains(&format!("every day at 09:00 ({name}); next: ")), "{rule}: {ran:?}");
        assert!(gateway.run(&["agent", "-m", "每天9点提醒我吃药"]).await.stdout.contains(" 09:00"));
        assert!(gateway.run(&["agent", "-m", "remind me on 2031-01-02 at 9 to rest"]).await.stdout.contains(" 09:00"));
        for job in gateway.json(&["cron", "list"]).await.as_array().expect("a list") {
            assert!(job["next_at"].as_str().is_some_and(|at| at.ends_with(due)), "{rule}: {job}");
        }
        let clock = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(8);
        let now = gateway.run(&["agent", "-m", "What time is it?"]).await.stdout;
        assert!(now.contains(" (+08), ") && now.contains(&clock.strftime("%Y-%m-%d").to_string()), "{rule}: {now}");
        let doctor = gateway.run(&["doctor"]).await.stdout;
        assert!(doctor.contains(&format!("{name}, now ")), "{rule}: {doctor}");
    }
    let gateway = Gateway::new(Setup::new().env("TZ", "CST6CDT,M3.2.0,M11.1.0"));
    add(&gateway, &["--cron", "0 9 1 7 *", "--message", "x"]).await;
    let jobs = gateway.json(&["cron", "list"]).await;
    assert!(jobs[0]["next_at"].as_str().is_some_and(|at| at.ends_with("-07-01T14:00:00Z")), "summer time: {jobs}");
}

/// Each line names the zone of its times.
#[tokio::test(flavor = "multi_thread")]
async fn printed_times_name_their_zone() {
    let gateway = Gateway::new(Setup::new());
    for (at, expected) in [
        (["--at", "2031-03-28T02:30:00"], "once, on Fri 2031-03-28 at 01:30 (UTC); next: 2031-03-28 01:30"),
        (["--cron", "30 2 28 3 *"], "at 02:30 (Europe/Berlin); next: "),
    ] {
        let ran = gateway.run(&[&["cron", "add", "--message", "x", "--tz", "Europe/Berlin"][..], &at].concat()).await;
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
    let table = gateway.run(&["cron", "list"]).await.stdout;
    assert!(table.lines().skip(1).all(|line| line.contains("(UTC)") || line.contains("(Europe/Berlin)")), "{table}");
}

/// An exported file is imported unchanged. A malformed row is named, in the file and in the store.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_exported_and_imported() {
    let mut from = Gateway::new(Setup::new());
    add(&from, &["--name", "news", "--cron", "0 9 * * *", "--tz", "Europe/Berlin", "--prompt", "x", "--jitter", "5m"])
        .await;
    add(&from, &["--name", "tea", "--at", "2031-01-01T09:00:00Z", "--message", "y", "--keep"]).await;
    let water = add(&from, &["--name", "water", "--every", "90m", "--message", "z", "--stale-after", "1h"]).await;
    assert_eq!(from.run(&["cron", "disable", "water"]).await.code, Some(0));
    let file = from.run(&["cron", "export"]).await.stdout;
    let to = Gateway::start(Setup::new()).await;
    let strange = json!([{"id": "past", "schedule": {"kind": "at", "atMs": 1}, "payload": {"kind": "agent_turn", "message": "m"}}, 7]);
    let mut more: Value = serde_json::from_str(&file).expect("JSON");
    more["jobs"].as_array_mut().expect("a list").extend(strange.as_array().expect("a list").clone());
    std::fs::write(to.home().join("cron.json"), more.to_string()).expect("our own folder");
    let path = to.home().join("cron.json").display().to_string();
    let ran = to.run(&["cron", "import", &path]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for expected in [
        "3 imported, 0 here already, 2 refused",
        "job 4 of the file past: schedule.atMs: its time, 1970",
        "job 5 of the file",
    ] {
        assert!(ran.stdout.contains(expected), "{expected}: {ran:?}");
    }
    let again = to.run_with_input(&["cron", "import", "-", "--json"], &file).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let again: Value = serde_json::from_str(&again.stdout).expect("JSON");
    assert_eq!((again["unchanged"].as_array().map(Vec::len), &again["refused"]), (Some(3), &json!([])));
    let kept = |jobs: &Value| -> Vec<Value> {
        let mut jobs = jobs.as_array().expect("a list").clone();
        for job in &mut jobs {
            let job = job.as_object_mut().expect("an object");
            job.retain(|key, _| !["created_at", "updated_at", "next", "next_at"].contains(&key.as_str()));
        }
        jobs.sort_by_key(|job| job["name"].to_string());
        jobs
    };
    let (there, here) = (from.json(&["cron", "list"]).await, to.json(&["cron", "list"]).await);
    assert_eq!(kept(&there), kept(&here));

    let broken = "UPDATE jobs SET body = '{\"schedule\": 7}' WHERE id = ?";
    rusqlite::Connection::open(from.database()).unwrap().execute(broken, [&water]).unwrap();
    from.up().await;
    let rows = from.json(&["cron", "list"]).await;
    let row = rows.as_array().expect("a list").iter().find(|row| row["id"] == water.as_str()).expect("the broken one");
    assert!(
        row["state"] == "unreadable" && row["error"].as_str().is_some_and(|error| error.contains("cannot be read")),
        "{row}"
    );
    let table = from.run(&["cron", "list"]).await.stdout;
    assert!(table.contains("is unreadable: ") && table.contains("news") && table.contains("tea"), "{table}");
    assert_eq!(from.json(&["cron", "export"]).await["unreadable"][0]["id"], water.as_str());
    from.run(&["cron", "show", &water]).await.assert_refused("");
    assert_eq!(from.run(&["cron", "remove", &water]).await.code, Some(0));
    assert_eq!(from.json(&["cron", "list"]).await.as_array().map(Vec::len), Some(2));
}
