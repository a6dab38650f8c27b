//! Tests of embeddings from end to end, with a local server.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use tempfile::TempDir;

use super::indexer::EmbeddingIndexer;
use super::nearest;
use super::stub::{EmbeddingRequest, Embeddings};
use crate::chat::ChatMessage;
use crate::live::{Live, LivePart};
use crate::llm::{Embedder, Models, ProviderConfig};
use crate::memory::testing::{row, settings};
use crate::memory::{HitLocation, MemoryKind, MemoryOwner, MemoryService, RecallQuery};
use crate::store::memories::{self, NewMemory};
use crate::store::vector_codes;
use crate::store::vectors::{self, NewVector};
use crate::store::{Connection, Durability, Store, StoreError, messages, search_index};

struct World {
    live: Arc<Live<MemoryService>>,
    service: Arc<MemoryService>,
    indexer: EmbeddingIndexer,
    server: Embeddings,
    home: TempDir,
}

impl World {
    async fn new(batch: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        let service = Arc::new(service(&home, batch));
        let live = Arc::new(Live::new(service.clone()));
        let (indexer, server) = (EmbeddingIndexer::new(live.part(|all| all)), Embeddings::start().await);
        let mut world = Self { live, service, indexer, server, home };
        world.embed_by("p/m", 0);
        assert_eq!(world.service.vector_of("the car").await, None, "its baselines are not measured yet");
        assert_eq!(world.indexer.round().await, None);
        world
    }

    fn embed_by(&mut self, model: &str, dimensions: u32) {
        let embedder = embedder(&self.server.base_url(), model, dimensions);
        self.reload(MemoryService::clone(&self.service).with_embedder(Some(embedder)));
    }

    fn reload(&mut self, service: MemoryService) {
        self.service = Arc::new(service);
        self.live.set(self.service.clone());
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        self.service.store.write(Durability::Logged, work).await.unwrap()
    }

    async fn store(&self, texts: &[&str]) -> Vec<i64> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        self.write(move |connection| texts.iter().map(|text| insert(connection, ("owner", "fact", "", text))).collect())
            .await
    }

    async fn count(&self) -> (i64, String) {
        let kept = self.write(vectors::count).await;
        (kept.memories, kept.model)
    }

    /// Returns the hits nearest to a text, with the similarity in tenths.
    async fn nearest(&self, text: &str) -> Vec<(HitLocation, i32)> {
        let vector = self.service.vector_of(text).await.expect("a vector");
        let near = self.write(move |connection| nearest(connection, &recall_query(&["owner"]), &vector, 2)).await;
        near.into_iter().map(|(found, alike)| (found, (alike * 10.0).round() as i32)).collect()
    }
}

fn service(home: &TempDir, batch: u32) -> MemoryService {
    let mut settings = settings(home.path());
    settings.config.embeddings.batch = batch;
    MemoryService::new(Store::open(&home.path().join("daoyou.db")).unwrap(), settings)
}

fn embedder(base_url: &str, model: &str, dimensions: u32) -> Embedder {
    crate::llm::install_crypto();
    let config = ProviderConfig { base_url: Some(base_url.to_owned()), retries: 0, ..ProviderConfig::default() };
    let configs = IndexMap::from([("p".to_owned(), config)]);
    Models::build(&configs, |_| None).unwrap().embedder(model, dimensions).unwrap()
}

fn insert(connection: &Connection, (owner, kind, name, text): (&str, &str, &str, &str)) -> Result<i64, StoreError> {
    memories::insert(connection, &NewMemory { session: Some("s"), ..row(owner, kind, name, text) })
}

fn recall_query(owners: &[&str]) -> RecallQuery {
    let owners = owners.iter().map(|owner| MemoryOwner::from_stored(owner)).collect();
    RecallQuery { owners, kinds: MemoryKind::ALL.to_vec(), messages: true, limit: 10, ..RecallQuery::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn similar_texts_are_near_and_no_text_is_embedded_twice() {
    let mut world = World::new(3).await;
    world.server.alike(&["car", "automobile"]);
    let texts = ["My car is red", "The cat sleeps", "My car is red", "Tea is green", "我住在北京", "Soup is hot"];
    let ids = world.store(&texts).await;
    let before = world.server.requests().len();
    assert_eq!(world.indexer.round().await, None);
    let requests = world.server.requests().split_off(before);
    let sizes: Vec<_> = requests.iter().map(|asked| asked.texts.len()).collect();
    let mut asked: Vec<_> = requests.into_iter().flat_map(|asked| asked.texts).collect();
    asked.sort_unstable();
    let mut expected = texts.to_vec();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!((asked, sizes), (expected.iter().map(ToString::to_string).collect(), vec![2, 3]));
    assert_eq!(world.count().await, (6, "p/m".to_owned()));

    let near = world.nearest("automobile").await;
    assert_eq!(near, [(HitLocation::Memory(ids[0]), 5), (HitLocation::Memory(ids[2]), 5)], "no word is the same");
    let requests = world.server.requests().len();
    world.nearest(" automobile ").await;
    assert_eq!(world.server.requests().len(), requests, "the query is cached");

    // A repeated text reuses its embedding; a replaced or forgotten one has none.
    let again = world.store(&["Tea is green"]).await[0];
    let (first, second) = (ids[0], ids[2]);
    world
        .write(move |connection| {
            memories::replace(connection, first, again)?;
            memories::delete(connection, second).map(drop)
        })
        .await;
    assert_eq!(world.indexer.round().await, None);
    assert_eq!((world.server.requests().len(), world.count().await.0), (requests, 5));
    assert_eq!(world.nearest("automobile").await, []);

    // Another model or another dimension: all embeddings are rebuilt.
    for (model, dimensions, name) in [("p/other", 0, "p/other"), ("p/other", 16, "p/other@16")] {
        world.embed_by(model, dimensions);
        assert_eq!(
            world.service.vector_of("automobile").await,
            None,
            "the stored embeddings are those of another model"
        );
        assert_eq!(world.indexer.round().await, None);
        assert_eq!(world.count().await, (5, name.to_owned()));
        let last = world.server.requests().pop().unwrap();
        assert_eq!(
            (last.model.as_str(), last.dimensions),
            ("other", Some(dimensions as usize).filter(|size| *size > 0))
        );
        assert_eq!(world.nearest("cat").await.first().map(|near| near.0.clone()), Some(HitLocation::Memory(ids[1])));
    }
    world.reload(MemoryService::clone(&world.service).with_embedder(None));
    assert_eq!((world.service.vector_of("cat").await, world.indexer.round().await), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_continues_after_the_last_stored_embedding() {
    let mut world = World::new(2).await;
    world.store(&["one", "two", "three", "four", "five"]).await;
    world.server.refuse(|asked| asked.texts.contains(&"five".to_owned()).then_some(503));
    let rest = world.indexer.round().await;
    assert!(rest.is_some_and(|rest| rest <= Duration::from_secs(10)), "{rest:?}");
    assert_eq!(world.count().await.0, 4);
    let World { service, server, home, .. } = world;
    let (before, url) = (server.requests().len(), server.base_url());
    service.store.close().await;
    server.refuse(|_| None);
    let service = super::tests::service(&home, 2).with_embedder(Some(embedder(&url, "p/m", 0)));
    assert_eq!(EmbeddingIndexer::new(LivePart::fixed(service)).round().await, None);
    let texts: Vec<_> = server.requests().split_off(before).into_iter().flat_map(|asked| asked.texts).collect();
    assert_eq!(texts, ["five"], "only the text without an embedding");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_service_is_paused_and_a_rejected_text_is_skipped() {
    let mut world = World::new(8).await;
    world.store(&["good", "bad", "fine"]).await;
    for (status, low, high) in [(503, 5, 10), (429, 5, 20), (401, 3_600, 3_600), (404, 3_600, 3_600)] {
        world.embed_by("p/m", 0);
        world.server.refuse(move |_| Some(status));
        let (before, rest) = (world.server.requests().len(), world.indexer.round().await.expect("a rest").as_secs());
        assert!((low..=high).contains(&rest), "{status}: {rest} s");
        // New memories cause no request meanwhile.
        let left = world.indexer.round().await.expect("the rest of it").as_secs();
        assert!(left <= rest && world.server.requests().len() == before + 1, "{status}");
        assert_eq!(world.service.vector_of("a question").await, None, "{status}: words alone");
    }
    // A model that rejects everything is not asked for each text.
    world.embed_by("p/m", 0);
    world.server.refuse(|_| Some(400));
    let before = world.server.requests().len();
    assert_eq!(world.indexer.round().await, Some(Duration::from_secs(3_600)));
    assert_eq!(world.server.requests().len(), before + 2);

    let refuses_bad = |asked: &EmbeddingRequest| asked.texts.contains(&"bad".to_owned()).then_some(400);
    world.embed_by("p/m", 0);
    world.server.refuse(refuses_bad);
    assert_eq!(world.indexer.round().await, None);
    assert_eq!(world.count().await.0, 3, "the rejected text is not retried");
    let near = world.nearest("bad good").await;
    assert_eq!(near.len(), 1, "{near:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn query_embedding_respects_the_timeout() {
    let mut world = World::new(8).await;
    world.store(&["one"]).await;
    assert_eq!(world.indexer.round().await, None);
    let mut settings = (*world.service.settings).clone();
    settings.config.embeddings.timeout = daoyou_channels::settings::HumanDuration::from_millis(500);
    world.reload(world.service.with_settings(settings));
    world.server.hold(true);
    for _ in 0..8 {
        assert_eq!(world.service.vector_of("a question").await, None);
    }
    let asked = world.server.texts().iter().filter(|text| *text == "a question").count();
    assert_eq!(asked, 5, "then the service is paused");
}

/// Each query and its expected hits.
#[tokio::test]
async fn nearest_returns_only_what_the_query_selects() {
    let (_home, store) = Store::temporary();
    let vector = |at: f32| vec![at.cos(), at.sin(), 0.0];
    let rows = [
        ("owner", "fact", 0.1),
        ("owner", "task", 0.2),
        ("everyone", "fact", 0.3),
        ("name:ann", "fact", 0.0),
        ("owner", "fact", 2.0),
        ("owner", "preference", 0.1),
    ];
    store
        .write(Durability::Logged, move |connection| {
            vectors::set_model(connection, "m")?;
            for (number, (owner, kind, at)) in (1..).zip(rows) {
                let id = insert(connection, (owner, kind, "", "x"))?;
                let hash = vectors::hash(&number.to_string());
                vectors::put(connection, "m", &[NewVector { hash, vector: vector(at), ids: vec![id] }])?;
                connection.execute("UPDATE memories SET created_at = ?1 WHERE id = ?1", [id])?;
            }
            let other = insert(connection, ("owner", "fact", "", "of another length"))?;
            let odd = |size| [NewVector { hash: vectors::hash("odd"), vector: vec![1.0; size], ids: vec![other] }];
            vectors::put(connection, "m", &odd(2))?;
            // Embeddings of another model are not stored.
            vectors::put(connection, "other", &odd(3))
        })
        .await
        .unwrap();
    let all = || recall_query(&["owner", "everyone", "owner"]);
    let table: [(RecallQuery, usize, &[i64]); 10] = [
        (all(), 10, &[1, 6, 2, 3]),
        (all(), 2, &[1, 6]),
        (all(), 0, &[]),
        (recall_query(&["name:ann"]), 10, &[4]),
        (recall_query(&["sender:cli:bob"]), 10, &[]),
        (RecallQuery { kinds: vec![MemoryKind::Task, MemoryKind::Fact], ..all() }, 10, &[1, 2, 3]),
        (RecallQuery { kinds: Vec::new(), ..all() }, 10, &[]),
        (RecallQuery { session: Some("s".to_owned()), ..all() }, 10, &[1, 6, 2, 3]),
        (RecallQuery { session: Some("t".to_owned()), ..all() }, 10, &[]),
        (RecallQuery { since: Some(2), until: Some(6), ..all() }, 10, &[2, 3]),
    ];
    for (query, limit, expected) in table {
        let asked = query.clone();
        let near = store.read(move |connection| nearest(connection, &asked, &vector(0.0), limit)).await.unwrap();
        let found: Vec<i64> = near
            .iter()
            .map(|(found, _)| match found {
                HitLocation::Memory(id) => *id,
                HitLocation::Message { .. } => 0,
            })
            .collect();
        assert_eq!(found, expected, "{query:?}");
        assert!(near.iter().all(|(_, cosine)| (0.0..=1.0).contains(cosine)));
    }
}

/// Adds a message to a session's log, with its row in the word index.
fn say(connection: &Connection, (owner, role, text): (&str, &str, &str)) -> Result<(), StoreError> {
    let message = match role {
        "user" => ChatMessage::user(text),
        _ => ChatMessage::assistant(text),
    };
    let session = format!("of:{owner}");
    let seq = messages::session(connection, &session)?.next_seq;
    let body = serde_json::to_string(&message)?;
    messages::append(connection, &session, uuid::Uuid::now_v7(), [(role, body)].into_iter())?;
    let insert = "INSERT INTO indexed_messages (session, seq, owner, speaker) VALUES (?, ?, ?, '')";
    connection.execute(insert, rusqlite::params![session, seq, owner])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_near_too_and_are_removed_with_their_rows() {
    let mut world = World::new(2).await;
    world.server.alike(&["bike", "bicycle"]);
    let lines = [
        ("owner", "user", "yes, go on"),
        ("owner", "user", "I parked my bicycle behind the library\n\n[Runtime Context]\nCurrent Time: now"),
        ("owner", "assistant", "Your bicycle stands behind the library, I will remember that"),
        ("name:ann", "user", "My own bicycle is in the cellar"),
        ("", "user", "A stranger's bicycle is nobody's to find"),
        ("owner", "user", "我把自行车停在图书馆后面了"),
    ];
    world.write(move |connection| lines.iter().try_for_each(|line| say(connection, *line))).await;
    let before = world.server.requests().len();
    assert_eq!(world.indexer.round().await, None);
    let asked = world.server.requests().split_off(before).into_iter().flat_map(|asked| asked.texts);
    let expected =
        ["I parked my bicycle behind the library", "My own bicycle is in the cellar", "我把自行车停在图书馆后面了"];
    assert_eq!(asked.collect::<Vec<_>>(), expected);
    let near = world.nearest("bike").await;
    assert_eq!(near, [(HitLocation::Message { session: "of:owner".to_owned(), seq: 1 }, 4)]);

    // A rebuilt index has other ids.
    world.write(search_index::clear).await;
    assert_eq!(world.write(vectors::count).await.messages, 0);
    let again = "INSERT INTO indexed_messages (session, seq, owner, speaker)
        SELECT session, seq, substr(session, 4), '' FROM messages ORDER BY session DESC, seq";
    world.write(move |connection| Ok(connection.execute(again, [])?)).await;
    assert_eq!(world.indexer.round().await, None);
    assert_eq!(world.nearest("bike").await, near);
    world.write(|connection| Ok(connection.execute("DELETE FROM messages", [])?)).await;
    assert_eq!((world.nearest("bike").await, world.write(vectors::count).await.messages), (Vec::new(), 0));
}

/// Returns a pseudo-random vector of length 1, the same for the same seed.
fn noise(seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut number = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    let vector: Vec<f32> = (0..64).map(|_| number()).collect();
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    vector.into_iter().map(|number| number / length).collect()
}

/// Stores memories of an owner, each with the noise of its id as embedding.
async fn fill(store: &Store, owner: &'static str, count: usize) -> Vec<i64> {
    let work = move |connection: &Connection| {
        (0..count)
            .map(|_| {
                let id = insert(connection, (owner, "fact", "", "x"))?;
                let hash = vectors::hash(&id.to_string());
                vectors::put(connection, "m", &[NewVector { hash, vector: noise(id.unsigned_abs()), ids: vec![id] }])?;
                Ok(id)
            })
            .collect()
    };
    store.write(Durability::Logged, work).await.unwrap()
}

async fn first(store: &Store, owner: &str, of: i64) -> Option<i64> {
    let (query, vector) = (recall_query(&[owner]), noise(of.unsigned_abs()));
    let near = store.read(move |connection| nearest(connection, &query, &vector, 1)).await.unwrap();
    near.first().filter(|(_, similarity)| *similarity > 0.99).map(|(found, _)| match found {
        HitLocation::Memory(id) => *id,
        HitLocation::Message { .. } => 0,
    })
}

/// Returns the number of codes, and of the rows that hold them.
async fn codes(store: &Store) -> (i64, i64) {
    let sql = "SELECT ifnull(sum(live_count), 0), count(*) FROM memory_codes";
    store
        .read(move |connection| Ok(connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?))
        .await
        .unwrap()
}

#[tokio::test]
async fn codes_follow_their_embeddings() {
    let (_home, store) = Store::temporary();
    store.write(Durability::Logged, |connection| vectors::set_model(connection, "m")).await.unwrap();
    let anns = fill(&store, "name:ann", 20).await;
    let ours = fill(&store, "owner", 700).await;
    assert_eq!(codes(&store).await, (720, 4));
    for id in [ours[0], ours[255], ours[256], ours[699]] {
        assert_eq!((first(&store, "owner", id).await, first(&store, "name:ann", id).await), (Some(id), None));
    }
    assert_eq!(first(&store, "owner", anns[3]).await, None);

    // A forgotten memory has no code, and an empty row is deleted.
    let gone: Vec<i64> = ours[10..256].iter().copied().chain([ours[300]]).collect();
    let of_one = vector_codes::VectorCode::of(&noise(ours[300].unsigned_abs()));
    let forget = gone.clone();
    store
        .write(Durability::Logged, move |connection| {
            forget.iter().try_for_each(|id| memories::delete(connection, *id).map(drop))?;
            vector_codes::visit(connection, search_index::SearchCorpus::Memories, "owner", &of_one, |read| {
                assert!(read.distance > 0);
            })
        })
        .await
        .unwrap();
    assert_eq!(codes(&store).await, (720 - 247, 4));
    assert_eq!(
        (first(&store, "owner", ours[300]).await, first(&store, "owner", ours[301]).await),
        (None, Some(ours[301]))
    );
    let rest: Vec<i64> = ours[..10].to_vec();
    let delete =
        move |connection: &Connection| rest.iter().try_for_each(|id| memories::delete(connection, *id).map(drop));
    store.write(Durability::Logged, delete).await.unwrap();
    assert_eq!(codes(&store).await, (720 - 257, 3));

    // A memory that was moved, or that has lost its code, gets exactly one new code.
    let given = ours[400];
    store
        .write(Durability::Logged, move |connection| {
            memories::set_owner(connection, given, "name:ann")?;
            connection.execute("DELETE FROM memory_codes WHERE id = (SELECT max(id) FROM memory_codes)", [])?;
            vectors::set_model(connection, "m")?;
            while vectors::put_missing(connection, search_index::SearchCorpus::Memories)? {}
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(codes(&store).await.0, 720 - 257);
    assert_eq!((first(&store, "owner", given).await, first(&store, "name:ann", given).await), (None, Some(given)));
    assert_eq!(first(&store, "owner", ours[699]).await, Some(ours[699]));

    store.write(Durability::Logged, |connection| vectors::set_model(connection, "another")).await.unwrap();
    assert_eq!(codes(&store).await, (0, 0));
}

#[tokio::test]
async fn unselected_candidates_hide_no_hits() {
    let (_home, store) = Store::temporary();
    let vector = |at: f32| vec![at.cos(), at.sin(), 0.0];
    store
        .write(Durability::Logged, move |connection| {
            vectors::set_model(connection, "m")?;
            for number in 0..1_200_i64 {
                let kind = if number % 2 == 0 { "fact" } else { "task" };
                let ids = vec![insert(connection, ("owner", kind, "", "x"))?];
                let at = if number == 777 { 1.0 } else { 0.0 };
                vectors::put(connection, "m", &[NewVector { hash: vectors::hash("x"), vector: vector(at), ids }])?;
            }
            connection.execute("UPDATE memories SET created_at = id", [])?;
            connection.execute("UPDATE memories SET session = 'of its own' WHERE id = 778", [])?;
            Ok(())
        })
        .await
        .unwrap();
    for (query, expected) in [
        (RecallQuery { since: Some(778), until: Some(779), ..recall_query(&["owner"]) }, 1),
        (RecallQuery { session: Some("of its own".to_owned()), ..recall_query(&["owner"]) }, 1),
        (
            RecallQuery {
                since: Some(778),
                until: Some(779),
                kinds: vec![MemoryKind::Fact],
                ..recall_query(&["owner"])
            },
            0,
        ),
        (RecallQuery { since: Some(778), until: Some(779), ..recall_query(&["everyone"]) }, 0),
    ] {
        let near = store.read(move |connection| nearest(connection, &query, &vector(0.0), 10)).await.unwrap();
        assert_eq!(near.iter().filter(|(found, _)| *found == HitLocation::Memory(778)).count(), expected);
        assert_eq!(near.len(), expected);
    }
}
