use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

use super::*;
use crate::live::LivePart;
use crate::llm::{Embedder, Models, ProviderConfig};
use crate::memory::testing::{row, settings};
use crate::memory::vectors::EmbeddingIndexer;
use crate::memory::vectors::stub::Embeddings;
use crate::memory::{MemoryService, recall};
use crate::store::Store;
use crate::store::{Durability, memories};
use crate::text::without_fillers;

/// The maximum number of hits that a turn gets.
const MAX_ATTACHED: usize = 3;

struct World {
    service: Arc<MemoryService>,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let (folder, store) = Store::temporary();
        Self { service: Arc::new(MemoryService::new(store, settings(folder.path()))), _folder: folder }
    }

    /// Stores memories of an owner, each with a kind and a name.
    async fn store(&self, owner: &'static str, entries: Vec<(&'static str, String, String)>) -> Vec<i64> {
        let put = move |connection: &Connection| {
            entries.iter().map(|(kind, name, text)| insert(connection, (owner, kind, name, text))).collect()
        };
        self.service.store.write(Durability::Logged, put).await.unwrap()
    }

    async fn relevant(&self, text: &str) -> Vec<RecallHit> {
        let owners = vec![MemoryOwner::gateway(), MemoryOwner::everyone()];
        self.service.relevant(RelevanceQuery { text: text.to_owned(), owners, limit: MAX_ATTACHED }).await.unwrap()
    }

    async fn texts(&self, text: &str) -> Vec<String> {
        self.relevant(text).await.into_iter().map(|hit| hit.text).collect()
    }

    /// Returns the hits of the `recall` tool's search with the same least share.
    async fn recalled(&self, text: &str) -> Vec<HitLocation> {
        let query = RecallQuery {
            text: text.to_owned(),
            owners: vec![MemoryOwner::gateway(), MemoryOwner::everyone()],
            kinds: ATTACHED_KINDS.to_vec(),
            least: MIN_SHARE,
            limit: MAX_ATTACHED,
            ..RecallQuery::default()
        };
        let hits = self.service.store.read(move |connection| recall(connection, &query, None)).await.unwrap();
        hits.into_iter().map(|hit| hit.found).collect()
    }
}

fn insert(connection: &Connection, (owner, kind, name, text): (&str, &str, &str, &str)) -> Result<i64, StoreError> {
    let id = memories::insert(connection, &row(owner, kind, name, text))?;
    crate::memory::word_index::put(connection, id)?;
    Ok(id)
}

fn own_set() -> Value {
    serde_json::from_str(include_str!("../../benches/memory/bilingual.json")).unwrap()
}

fn pairs(list: &Value) -> Vec<(String, String)> {
    serde_json::from_value(list.clone()).unwrap()
}

/// Stores facts, and summaries of other conversations.
async fn filled(world: &World) -> BTreeMap<String, i64> {
    let facts = pairs(&own_set()["facts"]);
    let entries = facts.iter().map(|(_, text)| ("fact", String::new(), text.clone())).collect();
    let ids = world.store("owner", entries).await;
    let summaries = [
        "The user was concerned with: what shall we cook tonight; the tomatoes are ripe; how long does rice take; write the list\n\
         The user was concerned with: translate this letter; is the grammar right; make it shorter; one more sentence",
        "The user plans a trip to Norway in June. A ferry from Hirtshals was compared with a flight. The budget is 2,000 euros.",
        "用户关心: 写一份周报、今天天气怎么样、推荐电影、翻译一段英文\n用户关心: 怎么修自行车、链条掉了、多少钱、哪里有店",
        "用户在准备数学考试，问了平方根和导数的题目，并请求再讲一次牛顿定律的历史。",
    ];
    let summaries = summaries.iter().enumerate();
    world.store("owner", summaries.map(|(n, text)| ("summary", format!("s{n}"), (*text).to_owned())).collect()).await;
    facts.into_iter().map(|(name, _)| name).zip(ids).collect()
}

/// Returns those of 60 unrelated messages that get memories attached, with these memories.
async fn attached(world: &World) -> Vec<(String, Vec<String>)> {
    let unrelated: Vec<String> = serde_json::from_str(include_str!("../../benches/memory/unrelated.json")).unwrap();
    assert_eq!(unrelated.len(), 60);
    let mut attached = Vec::new();
    for text in unrelated {
        let found = world.texts(&text).await;
        if !found.is_empty() {
            attached.push((text, found));
        }
    }
    attached
}

/// Checks that a question gets the fact that answers it, wherever a search finds that fact.
async fn assert_answers_what_a_search_finds(world: &World, ids: &BTreeMap<String, i64>) {
    let questions = pairs(&own_set()["questions"]);
    let mut answered = 0;
    for (question, fact) in &questions {
        let fact = HitLocation::Memory(ids[fact]);
        let found: Vec<HitLocation> = world.relevant(question).await.into_iter().map(|hit| hit.found).collect();
        assert!(found.contains(&fact) || !world.recalled(question).await.contains(&fact), "{question}: {found:?}");
        answered += usize::from(found.contains(&fact));
    }
    assert!(answered * 10 >= questions.len() * 8, "{answered} of {} questions are answered", questions.len());
}

#[tokio::test]
async fn unrelated_messages_get_nothing_and_questions_get_their_answers() {
    let world = World::new();
    let ids = filled(&world).await;
    let given = attached(&world).await;
    assert!(given.len() <= 3, "{}: {given:#?}", given.len());
    assert_answers_what_a_search_finds(&world, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_attach_nothing_to_unrelated_messages() {
    let (mut world, server) = (World::new(), Embeddings::start().await);
    server.crowd();
    server.alike(&["car", "automobile"]);
    let ids = filled(&world).await;
    let automobile = "Our automobile stands in the northern garage of the harbour";
    world.store("owner", vec![("fact", String::new(), automobile.to_owned())]).await;
    crate::llm::install_crypto();
    let config = ProviderConfig { base_url: Some(server.base_url()), retries: 0, ..ProviderConfig::default() };
    let models = Models::build(&IndexMap::from([("p".to_owned(), config)]), |_| None).unwrap();
    let embedder: Embedder = models.embedder("p/m", 256).unwrap();
    world.service = Arc::new(MemoryService::clone(&world.service).with_embedder(Some(embedder)));
    world.service.notify_changes();
    assert_eq!(EmbeddingIndexer::new(LivePart::fixed(world.service.clone())).round().await, None);
    let before = server.texts().len();
    for text in ["你好", "谢谢", "好的", "嗯", "hello", "Thanks!", "ok", "Yes, please.", "Good morning", "什么？"]
    {
        assert_eq!(world.texts(text).await, Vec::<String>::new(), "{text}");
    }
    assert_eq!(server.texts().len(), before, "a greeting causes no request");
    let given = attached(&world).await;
    assert!(given.len() <= 3, "{}: {given:#?}", given.len());
    assert_answers_what_a_search_finds(&world, &ids).await;
    let found = world.texts("In which northern harbour stands the car of us").await;
    assert_eq!(found.first().map(String::as_str), Some(automobile));
}

/// A generator of words that follow Zipf's law.
struct Dice(u64);

impl Dice {
    fn words(&mut self, count: usize) -> String {
        let mut word = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let part = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
            format!("w{}x", 6_000_f64.powf(part).floor())
        };
        (0..count).map(|_| word()).collect::<Vec<_>>().join(" ")
    }
}

#[tokio::test]
async fn a_few_common_words_do_not_attach_a_summary() {
    let world = World::new();
    let mut dice = Dice(7);
    let extract = |dice: &mut Dice| {
        let sayings: Vec<String> = (0..5).map(|_| dice.words(8)).collect();
        format!("The user was concerned with: {}", sayings.join("; "))
    };
    let mut known = Vec::new();
    for session in 0..100 {
        let lines: Vec<String> = (0..10).map(|_| extract(&mut dice)).collect();
        known.push(("summary", format!("s{session}"), lines.join("\n")));
    }
    let quoted = known[40].2.lines().nth(3).unwrap().split(": ").nth(1).unwrap().split("; ").next().unwrap().to_owned();
    world.store("owner", known).await;
    let mut attached = 0;
    for _ in 0..100 {
        attached += usize::from(!world.relevant(&dice.words(12)).await.is_empty());
    }
    assert!(attached <= 5, "{attached} of 100 got something");
    let hits = world.texts(&quoted).await;
    assert!(hits.first().is_some_and(|text| text.contains(&quoted) && text.chars().count() < 400), "{hits:?}");
}

#[tokio::test]
async fn the_index_follows_changes_of_memories() {
    let world = World::new();
    let fact = |text: &str| vec![("fact", String::new(), text.to_owned())];
    assert_eq!(world.texts("where is the red bicycle?").await, Vec::<String>::new());
    let old = world.store("owner", fact("The red bicycle stands in the cellar")).await[0];
    world.store("name:ann", fact("Ann's red bicycle is in the garden")).await;
    world.store("everyone", fact("The red bicycle pump hangs at the door")).await;
    let both = ["The red bicycle stands in the cellar", "The red bicycle pump hangs at the door"];
    let mut found = world.texts("where is the red bicycle?").await;
    found.sort();
    assert_eq!(found, {
        let mut both = both;
        both.sort_unstable();
        both
    });
    // Replaced, deleted, restored and moved memories.
    let new = world.store("owner", fact("The red bicycle was sold to Bob")).await[0];
    let write = |work: fn(&Connection, i64, i64) -> Result<(), StoreError>| {
        world.service.store.write(Durability::Logged, move |connection| work(connection, old, new))
    };
    write(memories::replace).await.unwrap();
    assert_eq!(world.texts("red bicycle Bob").await[0], "The red bicycle was sold to Bob");
    assert!(!world.texts("red bicycle cellar").await.contains(&both[0].to_owned()));
    write(|connection, _, new| memories::delete(connection, new).map(drop)).await.unwrap();
    assert!(!world.texts("red bicycle Bob").await.iter().any(|text| text.contains("Bob")));
    write(|connection, old, _| {
        connection.execute("UPDATE memories SET replaced_by = NULL WHERE id = ?", [old])?;
        Ok(())
    })
    .await
    .unwrap();
    world.service.notify_changes();
    assert!(world.texts("red bicycle cellar").await.contains(&both[0].to_owned()));
    write(|connection, old, _| memories::set_owner(connection, old, "name:ann")).await.unwrap();
    assert!(!world.texts("red bicycle cellar").await.contains(&both[0].to_owned()));
}

/// The owner has so many facts that no other index fits.
#[tokio::test]
async fn the_index_of_an_owner_with_many_memories_does_not_displace_everyones() {
    let world = World::new();
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= 20000)
                INSERT INTO memories (owner, kind, text, origin, confidence, created_at)
                SELECT 'owner', 'fact', 'Shelf ' || i || ' holds a jar', 'told', 1, 0 FROM n";
    world.service.store.write(Durability::Logged, move |connection| Ok(connection.execute(fill, [])?)).await.unwrap();
    world.store("everyone", vec![("fact", String::new(), "The red bicycle pump hangs at the door".to_owned())]).await;
    for _ in 0..2 {
        assert_eq!(world.texts("what does shelf 20001 hold?").await.first().unwrap(), "Shelf 20001 holds a jar");
        assert_eq!(world.texts("where is the red bicycle pump?").await, ["The red bicycle pump hangs at the door"]);
    }
    // Later memories are found without a rebuild, and displace nothing.
    let later = world.store("owner", vec![("fact", String::new(), "The canoe lies below the bridge".to_owned())]).await;
    let near = world.service.facts_near(
        MemoryOwner::from_stored("owner"),
        vec!["hello".into(), "the canoe below the bridge".into()],
        3,
    );
    assert_eq!(near.await.unwrap(), later);
}

#[test]
fn summaries_are_cut_into_passages() {
    let long = "word ".repeat(30);
    let text = format!("One line.\n\n{long}. {long}; {long}\n");
    let passages = split_into_passages(&text);
    assert_eq!(passages.len(), 4);
    assert_eq!(passages.concat(), text.replace('\n', ""));
    for (text, expected) in [
        ("你好！", None),
        ("好的，谢谢你", None),
        ("what is it?", None),
        ("Good morning", None),
        ("谢谢，我的狗叫什么", Some("狗")),
        ("Thanks! Where is the dog?", Some("dog")),
    ] {
        let left = without_fillers(text);
        assert_eq!(left.is_some(), expected.is_some(), "{text}: {left:?}");
        assert!(expected.is_none_or(|word| left.unwrap().contains(word)), "{text}");
    }
}
