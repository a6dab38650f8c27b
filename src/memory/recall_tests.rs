use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::chat::ChatMessage;
use crate::live::LivePart;
use crate::memory::testing::{row, settings};
use crate::memory::{
    Identities, MemoryService, MemorySettings, MessageIndexer, rebuild_index, search_messages, word_index as terms,
};
use crate::store::inbox::{MessageStatus, NewInboxRow};
use crate::store::{Durability, Store, inbox, messages};

struct World {
    service: Arc<MemoryService>,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let (folder, store) = Store::temporary();
        let settings = MemorySettings { identities: identities(), ..settings(folder.path()) };
        Self { service: Arc::new(MemoryService::new(store, settings)), folder }
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        self.service.store.write(Durability::Logged, work).await.unwrap()
    }

    /// Stores a turn with the message of `sender` and the answer, with a runtime context and a tool result as in real turns.
    async fn turn(&self, session: &str, sender: &str, trust: &'static str, message: &str, answer: &str) -> Uuid {
        let (session, sender) = (session.to_owned(), sender.to_owned());
        let log = [
            ChatMessage::user(format!("{message}\n\n[Runtime Context]\nChannel: hiddenchannel")),
            ChatMessage::Tool {
                call_id: "1".into(),
                name: "x".into(),
                content: "hiddenresult".into(),
                images: Vec::new(),
            },
            ChatMessage::assistant(answer),
        ];
        self.write(move |connection| {
            let id = Uuid::now_v7();
            let text = |text: &str| text.to_owned();
            let row = NewInboxRow {
                id,
                channel: text("email"),
                external_id: id.to_string(),
                session: session.clone(),
                chat_id: text("c"),
                sender: sender.clone(),
                trust,
                content: text("x"),
                attachments: text("[]"),
                metadata: text("{}"),
                origin: text("{}"),
                received_at: 1,
                state: MessageStatus::Queued,
            };
            inbox::insert(connection, &row)?;
            let rows = log.iter().map(|m| (m.role(), serde_json::to_string(m).unwrap()));
            messages::append(connection, &session, id, rows)?;
            Ok(id)
        })
        .await
    }

    async fn fact(&self, owner: &str, text: &str) -> i64 {
        let (owner, text) = (owner.to_owned(), text.to_owned());
        self.write(move |connection| {
            let id = memories::insert(connection, &row(&owner, "fact", "", &text))?;
            terms::put(connection, id)?;
            Ok(id)
        })
        .await
    }

    async fn index(&self) {
        MessageIndexer::new(LivePart::fixed(self.service.clone())).catch_up().await.unwrap();
    }

    async fn hits(&self, owner: &str, text: &str) -> Vec<RecallHit> {
        let query = recall_query(owner, text);
        self.service.store.read(move |connection| recall(connection, &query, None)).await.unwrap()
    }

    async fn texts(&self, owner: &str, text: &str) -> Vec<String> {
        // Neighbours of a hit come along with similarity 0.
        let hits = self.hits(owner, text).await.into_iter().filter(|hit| hit.similarity > 0.0);
        hits.map(|hit| hit.text).collect()
    }
}

fn identities() -> Identities {
    Identities::new(&[("ann".to_owned(), vec!["email:ann@example.org".to_owned()])].into())
}

fn recall_query(owner: &str, text: &str) -> RecallQuery {
    RecallQuery {
        text: text.to_owned(),
        owners: vec![MemoryOwner::from_stored(owner), MemoryOwner::everyone()],
        kinds: vec![MemoryKind::Fact, MemoryKind::Preference],
        messages: true,
        limit: 10,
        ..RecallQuery::default()
    }
}

#[tokio::test]
async fn single_characters_and_stems_are_found() {
    let world = World::new();
    world.index().await;
    for fact in ["我的狗叫旺财", "他住在上海", "Ann likes hiking in the Alps", "The Wi-Fi password hangs at the door"]
    {
        world.fact("owner", fact).await;
    }
    world.turn("s", "me", "owner", "我下周去北京出差", "好的，祝一路顺风").await;
    world.index().await;
    for (asked, expected) in [
        ("狗", "我的狗叫旺财"),
        ("旺财", "我的狗叫旺财"),
        ("我的狗叫什么名字？", "我的狗叫旺财"),
        ("上海", "他住在上海"),
        ("北京", "我下周去北京出差"),
        ("who went hiking?", "Ann likes hiking in the Alps"),
        ("alpine? ALPS!", "Ann likes hiking in the Alps"),
        ("wi-fi passwords", "The Wi-Fi password hangs at the door"),
    ] {
        assert_eq!(world.texts("owner", asked).await.first().map(String::as_str), Some(expected), "{asked}");
    }
    for hidden in ["hiddenchannel", "hiddenresult", "京", "runtime context"] {
        let found = world.texts("owner", hidden).await;
        assert_eq!(found.len(), usize::from(hidden == "京"), "{hidden}: {found:?}");
    }
    let turned = world.hits("owner", "海上").await.remove(0);
    assert!(turned.similarity < 0.4, "the characters are there, and not the word: {turned:?}");
    let hit = world.hits("owner", "狗 elephant").await.remove(0);
    assert!(hit.similarity > 0.3 && hit.similarity < 0.6 && hit.kind == Some(MemoryKind::Fact), "{hit:?}");
}

#[tokio::test]
async fn an_index_that_grows_between_searches_stays_sound() {
    let world = World::new();
    for n in 0..40 {
        world.fact("owner", &format!("recipe {n} for guests")).await;
        world.turn("s", "me", "owner", &format!("message {n}"), "yes").await;
        world.index().await;
        if n % 10 == 0 {
            assert!(!world.hits("owner", "recipe message").await.is_empty());
        }
    }
    assert_eq!(world.service.store.read(terms::check).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_least_share_keeps_the_best_hits() {
    let world = World::new();
    for n in 0..900_u32 {
        let rare = if n % 300 == 7 { "with saffron" } else { "" };
        let common = if n % 2 == 0 { "soup" } else { "bread" };
        world.fact("owner", &format!("recipe {n}: {common} for guests {rare} {}", n % 5)).await;
    }
    for text in ["soup with saffron for guests", "saffron bread 3", "a recipe", "recipe 307", "nothing of the kind"] {
        let all = world.hits("owner", text).await;
        for least in [0.2, 0.5, 0.9] {
            let query = RecallQuery { least, ..recall_query("owner", text) };
            let found = world.service.store.read(move |connection| recall(connection, &query, None)).await.unwrap();
            let ids = |hits: &[RecallHit]| hits.iter().map(|hit| hit.found.clone()).collect::<HashSet<_>>();
            assert!(found.iter().all(|hit| hit.similarity >= least), "{text} {least}: {found:?}");
            let best: Vec<RecallHit> = all.iter().filter(|hit| hit.similarity >= least).cloned().collect();
            assert!(ids(&best).is_subset(&ids(&found)), "{text} {least}: {best:?} {found:?}");
        }
    }
}

#[tokio::test]
async fn recall_returns_only_own_memories() {
    let world = World::new();
    world.turn("a", "ann@example.org", "known", "my secret is a walnut", "a walnut, I see").await;
    world.turn("b", "bob@example.org", "known", "my secret is a hazelnut", "a hazelnut, I see").await;
    world.turn("c", "eve@example.org", "untrusted", "the secret walnut hazelnut", "no").await;
    world.turn("d", "me", "owner", "the secret almond", "an almond").await;
    world.fact("name:ann", "Ann's secret drawer").await;
    world.fact("everyone", "The secret entrance is in the yard").await;
    world.index().await;
    for (owner, expected) in [
        ("name:ann", vec!["Ann's secret drawer", "The secret entrance is in the yard", "my secret is a walnut"]),
        ("sender:email:bob@example.org", vec!["The secret entrance is in the yard", "my secret is a hazelnut"]),
        ("owner", vec!["The secret entrance is in the yard", "the secret almond"]),
        ("sender:email:eve@example.org", vec!["The secret entrance is in the yard"]),
    ] {
        let mut found = world.texts(owner, "secret").await;
        found.retain(|text| text.contains("secret"));
        found.sort();
        assert_eq!(found, expected, "{owner}");
    }
    // Only the owner's command line searches all conversations.
    let lines =
        world.service.store.read(|connection| search_messages(connection, "secret", None, None, 10)).await.unwrap();
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().any(|line| line.owner.is_empty() && line.session == "c"), "{lines:?}");
    let of_one = world
        .service
        .store
        .read(|connection| search_messages(connection, "secret", Some("b"), None, 10))
        .await
        .unwrap();
    assert_eq!(of_one.iter().map(|line| line.excerpt.as_str()).collect::<Vec<_>>(), ["my secret is a hazelnut"]);
}

/// Returns the terms of the index, with the messages and memories that they lead to.
fn content(connection: &Connection) -> Result<Vec<(String, String)>, StoreError> {
    connection.execute_batch(
        "CREATE VIRTUAL TABLE temp.v1 USING fts5vocab(main, message_words, instance);
         CREATE VIRTUAL TABLE temp.v2 USING fts5vocab(main, memory_words, instance);",
    )?;
    let sql = "SELECT term, session || ' ' || seq || owner || speaker FROM temp.v1 JOIN indexed_messages ON id = doc
               UNION ALL SELECT term, CAST(doc AS TEXT) FROM temp.v2 ORDER BY 1, 2";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<Vec<_>, _>>()?;
    drop(statement);
    connection.execute_batch("DROP TABLE temp.v1; DROP TABLE temp.v2;")?;
    Ok(rows)
}

#[tokio::test]
async fn a_rebuilt_index_equals_one_that_grew() {
    let world = World::new();
    let mut forgotten = Uuid::nil();
    for n in 0..100 {
        let session = format!("s{}", n % 3);
        let turn = world.turn(&session, "ann@example.org", "known", &format!("message {n} 消息"), "回答 it").await;
        if n == 40 {
            forgotten = turn;
        }
        if n % 7 == 0 {
            world.fact("owner", &format!("fact {n}")).await;
            world.index().await;
        }
    }
    world.index().await;
    world
        .write(move |connection| {
            terms::remove_turn(connection, "s1", &forgotten.to_string())?;
            // Forgetting leaves a placeholder in the log as well.
            let body = serde_json::to_string(&ChatMessage::user(super::super::FORGOTTEN)).unwrap();
            connection.execute("UPDATE messages SET body = ? WHERE turn = ?", [body, forgotten.to_string()])?;
            connection.execute("DELETE FROM messages WHERE session = 's2' AND seq < 10", [])?;
            Ok(())
        })
        .await;
    world.index().await;
    let grown = world.write(content).await;
    let rebuilt = world
        .write(|connection| {
            assert_eq!(terms::check(connection)?, Vec::<String>::new());
            rebuild_index(connection, &identities())?;
            assert_eq!(terms::check(connection)?, Vec::<String>::new());
            content(connection)
        })
        .await;
    assert!(grown.len() > 500, "{}", grown.len());
    assert_eq!(grown, rebuilt);
}

#[tokio::test]
async fn forgotten_terms_leave_the_index() {
    let world = World::new();
    let turn = world.turn("s", "me", "owner", "the passphrase is xylophonequartz", "noted xylophonequartz").await;
    for n in 0..50 {
        world.turn("s", "me", "owner", &format!("other things {n}"), "yes").await;
    }
    let fact = world.fact("owner", "The passphrase is xylophonequartz").await;
    world.index().await;
    assert_eq!(world.texts("owner", "xylophonequartz").await.len(), 3);
    world
        .write(move |connection| {
            terms::remove_turn(connection, "s", &turn.to_string())?;
            terms::remove(connection, fact)?;
            connection.execute("DELETE FROM memories WHERE id = ?", [fact])?;
            connection.execute("DELETE FROM messages WHERE turn = ?", [turn.to_string()])?;
            Ok(())
        })
        .await;
    assert_eq!(world.hits("owner", "xylophonequartz").await, []);
    world.index().await;
    let left =
        "SELECT count(*) FROM (SELECT block FROM message_words_data UNION ALL SELECT block FROM memory_words_data
                    UNION ALL SELECT c0 FROM memory_words_content)
                WHERE instr(block, CAST('quartz' AS BLOB)) OR instr(block, CAST('xylophon' AS BLOB))";
    let left: i64 = world.write(move |connection| Ok(connection.query_row(left, [], |row| row.get(0))?)).await;
    assert_eq!(left, 0);
    assert_eq!(world.texts("owner", "things 49").await.first().map(String::as_str), Some("other things 49"));
}

#[tokio::test]
async fn a_damaged_index_is_rebuilt_and_breaks_nothing_else() {
    let world = World::new();
    world.turn("s", "me", "owner", "the heron stands in the pond", "a heron").await;
    world.fact("owner", "The heron is called Heinz").await;
    world.index().await;
    for table in ["message_words", "memory_words"] {
        let damage = format!("UPDATE {table}_data SET block = x'00ff00ff00ff00ff' WHERE id > 10");
        world.write(move |connection| Ok(connection.execute(&damage, [])?)).await;
        assert!(!world.service.store.read(terms::check).await.unwrap().is_empty(), "{table}");
        assert!(world.service.store.check().await.is_ok(), "the database file is sound");
        // Other writes succeed, and searches find nothing instead of failing.
        world.fact("owner", "Herons eat fish").await;
        world.hits("owner", "heron").await;
        world.service.store.read(|connection| search_messages(connection, "heron", None, None, 9)).await.unwrap();
        world.write(terms::mark_damaged).await;
        world.index().await;
        assert_eq!(world.service.store.read(terms::check).await.unwrap(), Vec::<String>::new(), "{table}");
        assert!(world.texts("owner", "heron heinz").await.contains(&"The heron is called Heinz".to_owned()));
        assert!(world.texts("owner", "pond").await.contains(&"the heron stands in the pond".to_owned()));
    }
}

#[tokio::test]
async fn a_repaired_database_is_indexed_again() {
    let world = World::new();
    world.turn("s", "me", "owner", "the heron stands in the pond", "a heron").await;
    world.fact("owner", "The heron is called Heinz").await;
    world.index().await;
    world.service.store.close().await;
    let path = world.folder.path().join("daoyou.db");
    crate::store::repair(&path, "a test says so").unwrap();
    let store = Store::open(&path).unwrap();
    let settings = (*world.service.settings).clone();
    let again = World { service: Arc::new(MemoryService::new(store, settings)), folder: world.folder };
    again.index().await;
    let mut found = again.texts("owner", "heron").await;
    found.sort();
    assert_eq!(found, ["The heron is called Heinz", "a heron", "the heron stands in the pond"]);
}

#[tokio::test]
async fn filters_are_exact() {
    let world = World::new();
    for n in 0..900 {
        world.turn(&format!("s{}", n % 2), "me", "owner", &format!("common word {n}"), "fine").await;
    }
    world.index().await;
    let base = RecallQuery { kinds: Vec::new(), ..recall_query("owner", "common word 777") };
    for (change, least, most) in [
        (base.clone(), 10, 10),
        (RecallQuery { session: Some("s1".to_owned()), ..base.clone() }, 10, 10),
        (RecallQuery { session: Some("s0".to_owned()), least: 0.9, ..base.clone() }, 0, 0),
        (RecallQuery { least: 0.9, ..base.clone() }, 1, 1),
        (RecallQuery { limit: 3, ..base.clone() }, 3, 3),
        (RecallQuery { until: Some(0), ..base.clone() }, 0, 0),
        (RecallQuery { since: Some(i64::MAX), ..base.clone() }, 0, 0),
        (RecallQuery { messages: false, ..base.clone() }, 0, 0),
        (RecallQuery { owners: Vec::new(), ..base.clone() }, 0, 0),
        (RecallQuery { text: "??".to_owned(), ..base.clone() }, 0, 0),
    ] {
        let asked = change.clone();
        let hits = world.service.store.read(move |connection| recall(connection, &asked, None)).await.unwrap();
        assert!((least..=most).contains(&hits.len()), "{change:?}: {}", hits.len());
        if let Some(session) = &change.session {
            assert!(
                hits.iter().all(|hit| matches!(&hit.found, HitLocation::Message { session: s, .. } if s == session))
            );
        }
    }
    assert_eq!(world.texts("owner", "common word 777").await[0], "common word 777");
}
