//! Tests of the tool with a store of their own.

use std::sync::Arc;

use daoyou_channels::{InboundMessage, SessionKey, Trust, TurnSettings};
use serde_json::{Value, json};
use uuid::Uuid;

use super::run_message::{RunSlot, RunWork, work};
use super::testing::job_context;
use super::{CronHandle, CronTool, Job, JobScope, JobService, JobTask, list};
use crate::bus::{InboundDraft, WeakBus};
use crate::origin::TurnOrigin;
use crate::store::{Durability, Store, jobs};
use crate::tools::{Tool, ToolContext, ToolEffect, parse_arguments};

struct World {
    _folder: tempfile::TempDir,
    service: Arc<JobService>,
    tool: CronTool,
    calls: std::cell::Cell<u32>,
}

impl World {
    fn new(max_jobs: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let job_context = job_context(max_jobs, &["cli", "webhook:in"]);
        let service = Arc::new(JobService::new(store, job_context, CronHandle::default(), WeakBus::default()));
        Self { _folder: folder, tool: CronTool::new(service.clone()), service, calls: std::cell::Cell::new(0) }
    }

    /// Returns the result that the model reads, and commits the changes of the call.
    async fn says(&self, context: &ToolContext, arguments: &Value) -> String {
        self.calls.set(self.calls.get() + 1);
        let context = ToolContext { call_id: format!("call-{}", self.calls.get()), ..context.clone() };
        let arguments = match parse_arguments(self.tool.spec(), &arguments.to_string()) {
            Ok(arguments) => arguments,
            Err(error) => return error,
        };
        if let Err(error) = self.tool.validate(&arguments, &context) {
            return error;
        }
        let outcome = self.tool.call(arguments, &context).await;
        for effect in outcome.effects {
            let ToolEffect::Rows(rows) = effect else { panic!("{effect:?}") };
            // A repeated commit changes nothing more.
            for _ in 0..2 {
                let rows = rows.clone();
                self.service.store.write(Durability::Synced, move |connection| rows.0.write(connection)).await.unwrap();
            }
        }
        outcome.result.render()
    }

    async fn jobs(&self) -> Vec<Job> {
        let jobs = self.service.store.read(|connection| list(connection, &JobScope::All)).await.unwrap();
        jobs.into_iter().map(Result::unwrap).collect()
    }
}

fn context(trust: Trust, chat: &str) -> ToolContext {
    ToolContext {
        session: SessionKey::of_chat("webhook:in", chat),
        turn: Uuid::from_u128(7),
        channel: "webhook:in".to_owned(),
        chat_id: chat.to_owned(),
        trust,
        metadata: r#"{"thread":"t"}"#.into(),
        origin: Arc::new(TurnOrigin::parse(r#"{"settings":{"model":"a/b","requested_model":"c/d"}}"#)),
        ..crate::tools::testing::context()
    }
}

/// The owner is asked only about valid calls.
#[test]
fn a_job_for_an_unreachable_chat_is_refused_before_the_owner_is_asked() {
    let (world, here) = (World::new(10), context(Trust::Known, "c"));
    let elsewhere = ToolContext { channel: "webhook:w".to_owned(), ..here.clone() };
    let origin = TurnOrigin { cause: crate::origin::TurnCause::Heartbeat, ..TurnOrigin::default() };
    let beat = ToolContext { origin: Arc::new(origin), ..elsewhere.clone() };
    for (context, arguments, expected) in [
        (&here, json!({"action": "add"}), None),
        (&elsewhere, json!({"action": "add"}), Some("there is no channel \"webhook:w\"")),
        (&elsewhere, json!({"action": "add", "channel": " cli "}), None),
        (&here, json!({"action": "add", "channel": "webhook:w"}), Some("there is no channel \"webhook:w\"")),
        (&elsewhere, json!({"action": "list"}), None),
        (&beat, json!({"action": "add"}), None),
    ] {
        let error = world.tool.validate(&arguments, context).err();
        let is_expected = match expected {
            None => error.is_none(),
            Some(words) => error.as_ref().is_some_and(|error| error.contains(words)),
        };
        assert!(is_expected, "{arguments}: {error:?}");
    }
}

#[tokio::test]
async fn a_job_is_created_listed_changed_and_removed() {
    let (world, owner) = (World::new(10), context(Trust::Owner, "c"));
    assert_eq!(world.says(&owner, &json!({"action": "list"})).await, "No scheduled jobs.");
    let asked = json!({"action": "add", "kind": "message", "message": "tea", "at": "2031-01-01T09:00:00+08:00"});
    let answer = world.says(&owner, &asked).await;
    assert!(answer.starts_with("Created job 'tea' (id: ") && answer.ends_with("; next: 2031-01-01 09:00"), "{answer}");
    let asked = json!({"action": "add", "prompt": "news?", "interval": "2h", "name": "news", "session": "this"});
    assert!(world.says(&owner, &asked).await.starts_with("Created job 'news'"), "aliases are understood");
    let jobs = world.jobs().await;
    let news = jobs.iter().find(|job| job.row.name == "news").unwrap();
    let tea = jobs.iter().find(|job| job.row.name == "tea").unwrap();
    assert_eq!((&tea.body.task, tea.body.delete_after_run), (&JobTask::Message("tea".to_owned()), true));
    assert_eq!(news.body.session.as_ref().map(SessionKey::as_str), Some("webhook:in:c"));
    let target = json!([news.body.target.metadata, news.body.target.origin]);
    assert_eq!(target, json!([{"thread": "t"}, {"settings": {"model": "a/b"}}]));
    assert_eq!(
        world.says(&owner, &json!({"action": "disable", "job_id": "news"})).await,
        format!("Disabled job {}", news.row.id)
    );
    let listed = world.says(&owner, &json!({"action": "list"})).await;
    assert!(listed.lines().count() == 2 && listed.contains("; disabled"), "{listed}");
    let answer = world.says(&owner, &json!({"action": "enable", "job_id": news.row.id})).await;
    assert!(answer.starts_with(&format!("Enabled job {}; next: ", news.row.id)), "{answer}");
    assert_eq!(
        world.says(&owner, &json!({"action": "remove", "id": "news"})).await,
        format!("Removed job {} (news)", news.row.id)
    );
    assert_eq!(world.jobs().await.len(), 1);
}

#[tokio::test]
async fn an_impossible_call_fails_with_a_reason() {
    let (world, owner) = (World::new(1), context(Trust::Owner, "c"));
    for (asked, expected) in [
        (json!({"action": "sing"}), "is not one of"),
        (json!({"action": "add", "message": "x"}), "say when"),
        (json!({"action": "add", "every": "1h"}), "say what it does"),
        (json!({"action": "add", "message": "x", "at": "2020-01-01T00:00:00Z"}), "past"),
        (json!({"action": "add", "message": "x", "every": "1h", "every_seconds": 5}), "one of them"),
        (
            json!({"action": "add", "message": "x", "every": "1h", "channel": "emial", "chat_id": "y"}),
            "there are cli, webhook:in",
        ),
        (
            json!({"action": "add", "message": "x", "every": "1h", "model": "b/gpt"}),
            "there is no provider \"b\"; there are a, offline",
        ),
        (json!({"action": "remove"}), "job_id is missing"),
        (json!({"action": "remove", "job_id": "x"}), "Job x not found; there are none"),
        (json!({"action": "add", "message": "x", "every_seconds": 60}), "Created job 'x'"),
        (json!({"action": "add", "message": "y", "every_seconds": 60}), "cron.max_jobs"),
    ] {
        let answer = world.says(&owner, &asked).await;
        assert!(answer.contains(expected), "{asked}: {answer}");
    }
    let id = &world.jobs().await[0].row.id;
    assert_eq!(
        world.says(&owner, &json!({"action": "run", "job_id": "y"})).await,
        format!("Error: Job y not found; there are {id} (x)")
    );
}

#[tokio::test]
async fn others_than_the_owner_see_only_the_jobs_of_their_chat() {
    let world = World::new(10);
    let (owner, ann, bob) = (context(Trust::Owner, "o"), context(Trust::Known, "a"), context(Trust::Known, "b"));
    for (who, name) in [(&owner, "owners"), (&ann, "anns")] {
        let answer = world.says(who, &json!({"action": "add", "message": "x", "every": "1h", "name": name})).await;
        assert!(answer.starts_with("Created"), "{answer}");
    }
    for (who, job, expected) in [
        (&ann, "owners", "not found; there are"),
        (&bob, "anns", "not found; there are none"),
        (&ann, "anns", "Removed"),
    ] {
        let answer = world.says(who, &json!({"action": "remove", "job_id": job})).await;
        assert!(
            answer.contains(expected) && !(expected.contains("not") && answer.contains(&format!("({job})"))),
            "{job}: {answer}"
        );
    }
    let answer = world.says(&bob, &json!({"action": "add", "message": "x", "every": "1h", "chat_id": "a"})).await;
    assert!(answer.contains("only the owner"), "{answer}");
    assert!(!world.tool.allows_untrusted(&json!({"action": "list"}), &owner));
    assert_eq!(world.jobs().await.len(), 1);
}

/// Several senders may write in one chat.
#[tokio::test]
async fn others_than_the_owner_see_only_their_own_jobs_of_a_chat() {
    let world = World::new(10);
    let of = |trust: Trust, sender: &str, origin: Value| ToolContext {
        sender: sender.to_owned(),
        origin: Arc::new(TurnOrigin::parse(&origin.to_string())),
        ..context(trust, "c")
    };
    let identity = json!({"owner_identity": {"channel": "webhook:in", "sender": "me"}});
    let (owner, me) = (of(Trust::Owner, "", json!({})), of(Trust::Owner, "me", identity));
    let [ann, bob] = ["ann", "bob"].map(|sender| of(Trust::Known, sender, json!({"on_behalf_of": sender})));
    for (who, name) in [(&owner, "owners"), (&me, "mine"), (&ann, "anns")] {
        let answer = world.says(who, &json!({"action": "add", "message": "x", "every": "1h", "name": name})).await;
        assert!(answer.starts_with("Created"), "{answer}");
    }
    assert_eq!(world.jobs().await.iter().filter(|job| job.body.maker.identity.is_some()).count(), 1);
    let former_owner = of(Trust::Known, "me", json!({"on_behalf_of": "me"}));
    for (who, seen) in [
        (&owner, &["anns", "mine", "owners"][..]),
        (&me, &["anns", "mine", "owners"]),
        (&ann, &["anns"]),
        (&bob, &[]),
        (&former_owner, &["mine"]),
    ] {
        let list = world.says(who, &json!({"action": "list"})).await;
        for name in ["anns", "mine", "owners"] {
            assert_eq!(list.contains(name), seen.contains(&name), "{}: {list}", who.sender);
        }
    }
    let answer = world.says(&bob, &json!({"action": "remove", "job_id": "anns"})).await;
    assert!(answer.contains("there are none"), "{answer}");
}

/// A turn that an earlier version began does not say which sender gives it the trust of the owner.
#[tokio::test]
async fn a_job_of_a_run_has_the_recorded_maker_of_the_runs_job_and_no_other() {
    let world = World::new(20);
    let here = context(Trust::Owner, "c");
    let terminal = ToolContext { channel: "cli".to_owned(), chat_id: "direct".to_owned(), ..here.clone() };
    let me = json!({"owner_identity": {"channel": "webhook:in", "sender": "me"}});
    let me = ToolContext { origin: Arc::new(TurnOrigin::parse(&me.to_string())), ..here.clone() };
    for (who, name) in [(&here, "old"), (&terminal, "terminals"), (&me, "mine")] {
        world.says(who, &json!({"action": "add", "message": "x", "every": "1h", "name": name})).await;
    }
    let jobs = world.jobs().await;
    let run_of = |name: &str| {
        let id = jobs.iter().find(|job| job.row.name == name).map_or(name, |job| job.row.id.as_str());
        json!({"kind": "job", "job": id, "due": 1, "chat": "webhook:in:c"})
    };
    let task = json!({"kind": "sub_agent", "session": "webhook:in:c", "turn": Uuid::from_u128(8), "label": "", "depth": 1,
        "waits": false});
    for (name, cause, channel, is_unrecorded) in [
        ("by heartbeat", json!({"kind": "heartbeat"}), "cli", false),
        ("by terminals", run_of("terminals"), "cli", false),
        ("by mine", run_of("mine"), "webhook:in", false),
        ("by old", run_of("old"), "webhook:in", true),
        ("by a job that is gone", run_of("gone"), "webhook:in", true),
        ("by a sub-agent", task, "webhook:in", true),
        ("by a follow-up", json!({"kind": "person"}), "webhook:in", true),
    ] {
        let origin = json!({"cause": cause, "follow_ups": 1});
        let run = ToolContext { origin: Arc::new(serde_json::from_value(origin).unwrap()), ..here.clone() };
        let answer = world.says(&run, &json!({"action": "add", "message": "x", "every": "1h", "name": name})).await;
        assert!(answer.starts_with("Created"), "{name}: {answer}");
        let made = world.jobs().await.into_iter().find(|job| job.row.name == name).unwrap();
        let maker = made.body.maker;
        assert_eq!((maker.channel.as_str(), maker.is_unrecorded()), (channel, is_unrecorded), "{name}");
        assert_eq!(maker.identity.is_some(), name == "by mine", "{name}");
    }
}

#[tokio::test]
async fn an_unreadable_job_is_removed_by_its_id_or_name() {
    let (world, owner, ann) = (World::new(10), context(Trust::Owner, "c"), context(Trust::Known, "a"));
    let insert = |connection: &crate::store::Connection| {
        jobs::insert(connection, "broken1", "old news", "{", true, None)?;
        jobs::insert(connection, "broken2", "old mail", "{", true, None)
    };
    world.service.store.write(Durability::Synced, insert).await.unwrap();
    for (who, job, expected) in [
        (&ann, "broken1", "not found"),
        (&owner, "old news", "Removed job broken1 (old news)"),
        (&owner, "broken2", "Removed job broken2 (old mail)"),
    ] {
        let answer = world.says(who, &json!({"action": "remove", "job_id": job})).await;
        assert!(answer.contains(expected), "{job}: {answer}");
    }
    assert_eq!(world.jobs().await.len(), 0);
}

/// The limits of the turn that creates a job apply to its runs: a hook's model and prompt, and a sub-agent's tools.
#[tokio::test]
async fn a_job_belongs_to_the_chat_and_has_at_most_its_creators_tools() {
    let world = World::new(10);
    let mut message = InboundMessage::text("webhook:in", "c", "ann", Trust::Known, "x");
    message.metadata.insert("thread".to_owned(), "t".into());
    message.settings = TurnSettings {
        model: Some("a/b".to_owned()),
        prompt: Some("Be kind.".to_owned()),
        about: vec!["x".to_owned()],
        ..TurnSettings::default()
    };
    let draft = InboundDraft::new(message);
    let turn = draft.id;
    world.service.store.write(Durability::Synced, move |connection| draft.insert(connection)).await.unwrap();
    let cause =
        json!({"kind": "sub_agent", "session": "webhook:in:c", "turn": turn, "label": "", "depth": 1, "waits": false});
    let settings = json!({"tools": ["cron"], "fresh": true});
    let own = json!({"cause": cause, "settings": settings, "on_behalf_of": "ann", "follow_ups": 2});
    let child = ToolContext {
        session: SessionKey::from("spawn:1"),
        origin: Arc::new(serde_json::from_value(own).unwrap()),
        ..context(Trust::Known, "c")
    };
    let answer = world.says(&child, &json!({"action": "add", "message": "x", "every": "1h"})).await;
    assert!(answer.starts_with("Created"), "{answer}");
    let job = world.jobs().await.remove(0);
    assert_eq!(job.body.target.session.as_str(), "webhook:in:c");
    assert_eq!(
        json!([job.body.target.metadata, job.body.target.origin]),
        json!([
            {"thread": "t"},
            {
                "settings": {"model": "a/b", "prompt": "Be kind.", "tools": ["cron"]},
                "on_behalf_of": "ann",
                "follow_ups": 2,
            },
        ])
    );
    let settings = world.service.context.settings.clone();
    let now = jiff::Timestamp::now();
    let slot = RunSlot { due: now, passed_over: 0, by_hand: true };
    let work = world.service.store.read(move |connection| work(connection, &job, &settings, slot, now)).await.unwrap();
    let RunWork::Ask(run) = work else { panic!("{work:?}") };
    let set = run.origin.settings;
    let tools = set.tools.as_deref().map(|tools| tools.join(" "));
    assert_eq!(
        (set.model.as_deref(), set.prompt.as_deref(), tools.as_deref()),
        (Some("a/b"), Some("Be kind."), Some("cron"))
    );
}

/// Every request to a model contains the description.
#[test]
fn the_tools_description_is_short() {
    let spec = CronTool::without_service().spec().clone();
    let length = spec.description.len() + spec.parameters.to_string().len();
    assert!(length < 2_000, "{length} bytes: {}", spec.parameters);
}
