//! Measures recall on LoCoMo (Maharana et al., 2024): long conversations of two people, and questions with the turns that answer them.
//!
//! The weights of recall were chosen on the conversations 1, 3, 5 … only, so these are reported separately from the others.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use daoyou::chat::ChatMessage;
use daoyou::memory::{
    HitLocation, Identities, MemoryOwner, MemoryService, RecallHit, RecallQuery, RecallWeights, rebuild_index,
    recall_weighted,
};
use daoyou::store::inbox::{self, MessageStatus, NewInboxRow};
use daoyou::store::{Connection, StoreError, messages};
use serde_json::Value;
use uuid::Uuid;

use super::embedded::Service;
use super::{BenchStore, as_f64, ask, tokens};

const CHANNEL: &str = "webhook:locomo";
const CHAT: &str = "webhook:locomo:chat";
const HITS: [usize; 4] = [5, 10, 20, 50];

/// One utterance of a conversation.
struct LocomoTurn {
    speaker: String,
    id: String,
    text: String,
}

struct Question {
    text: String,
    evidence: HashSet<String>,
    vector: Option<Arc<[f32]>>,
}

/// A method of finding turns.
#[derive(Clone, Copy)]
enum SearchMethod {
    /// The baseline: SQLite's full-text search with its own BM25 and Porter's stemmer.
    Bm25,
    Words(RecallWeights),
    WordsAndVectors(RecallWeights),
}

/// The sums of the measurements of one method.
#[derive(Default)]
struct Sum {
    questions: usize,
    recall: [f64; HITS.len()],
    tokens: [f64; HITS.len()],
}

/// Returns the tables of recall and tokens, as means over all questions of all conversations, by words and with vectors of `service`.
pub async fn measure(file: &Path, service: Option<&Service>, is_quick: bool) -> Result<String> {
    let halves = read(file, service, if is_quick { 2 } else { usize::MAX }).await?;
    let counts =
        halves.each_ref().map(|half| half.iter().map(|conversation| conversation.questions.len()).sum::<usize>());
    let mut page = format!(
        "**LoCoMo**, {} questions. Each conversation is one session, each of its turns one message of its speaker. *Recall* is the share of \
         a question's evidence turns among the first hits, the mean over the questions that name existing evidence; \
         *tokens* are those of the hits, a quarter of their characters. All columns are of one run over the same questions. *BM25* is that \
         of SQLite's FTS5 with Porter's stemmer; each entry is a turn with its speaker's name. Weights were chosen on one half \
         of the conversations, {} questions; the other half, {}, had no part in it.\n",
        counts[0] + counts[1],
        counts[0],
        counts[1]
    );
    let alone = RecallWeights { neighbour_words: 0.0, neighbour_likeness: 0.0, ..RecallWeights::default() };
    let mut methods = vec![
        ("BM25", SearchMethod::Bm25),
        ("words", SearchMethod::Words(alone)),
        ("words, neighbours", SearchMethod::Words(RecallWeights::default())),
    ];
    if let Some(service) = service {
        write!(page, "\nVectors are those of `{}`.\n", service.model())?;
        methods.push(("words, vectors", SearchMethod::WordsAndVectors(alone)));
        methods.push(("words, vectors, neighbours", SearchMethod::WordsAndVectors(RecallWeights::default())));
    }
    let [chosen, other] = &halves;
    for (name, half) in [("The half on which the weights were chosen", chosen), ("The other half", other)] {
        let mut sums = Vec::new();
        for (_, method) in &methods {
            sums.push(sum(half.iter(), *method).await?);
        }
        page += &table(name, &methods, &sums);
    }
    let mut sums = Vec::new();
    for (_, method) in &methods {
        sums.push(sum(chosen.iter().chain(other), *method).await?);
    }
    page += &table("All", &methods, &sums);
    Ok(page)
}

/// Tries weights on the first half of the conversations: first the weight of neighbours in a search by words, then, with
/// the best of these, the two weights of similarity. Prints the mean recall over all numbers of hits for each combination,
/// the best last.
pub async fn choose(file: &Path, service: Option<&Service>) -> Result<String> {
    const SHARES: [f64; 10] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
    let [half, _] = read(file, service, usize::MAX).await?;
    let mut tried = Vec::new();
    for neighbour_words in SHARES {
        let weights = RecallWeights { neighbour_words, ..RecallWeights::default() };
        tried.push((sum(half.iter(), SearchMethod::Words(weights)).await?.mean(), "words", weights));
    }
    tried.sort_by(|a, b| a.0.total_cmp(&b.0));
    let best = tried.last().map_or_else(RecallWeights::default, |(_, _, weights)| *weights);
    let mut with_vectors = Vec::new();
    for likeness in [0.5, 1.0, 1.5, 2.0, 2.5, 3.0].into_iter().filter(|_| service.is_some()) {
        for neighbour_likeness in SHARES.into_iter().skip(3) {
            let weights = RecallWeights { likeness, neighbour_likeness, ..best };
            with_vectors.push((
                sum(half.iter(), SearchMethod::WordsAndVectors(weights)).await?.mean(),
                "with vectors",
                weights,
            ));
        }
    }
    with_vectors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let tried = tried.iter().chain(&with_vectors);
    Ok(tried.map(|(mean, method, weights)| format!("{mean:.4} {method} {weights:?}\n")).collect())
}

async fn read(file: &Path, service: Option<&Service>, most: usize) -> Result<[Vec<StoredConversation>; 2]> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let samples: Vec<Value> = serde_json::from_str(&text).context("not the form of locomo10.json")?;
    let mut halves = [Vec::new(), Vec::new()];
    for (at, sample) in samples.iter().take(most).enumerate() {
        halves[at % 2].push(StoredConversation::of(sample, service).await?);
    }
    Ok(halves)
}

async fn sum(half: impl Iterator<Item = &StoredConversation>, method: SearchMethod) -> Result<Sum> {
    let mut sum = Sum::default();
    for conversation in half {
        for question in &conversation.questions {
            sum.add(question, &conversation.find(question, method).await?);
        }
    }
    Ok(sum)
}

fn table(name: &str, methods: &[(&str, SearchMethod)], sums: &[Sum]) -> String {
    let titles: String = methods.iter().map(|(name, _)| format!(" {name} |")).collect();
    let mut table =
        format!("\n{name}: recall, and (tokens).\n\n| hits |{titles}\n|---|{}\n", "---|".repeat(methods.len()));
    for (at, hits) in HITS.iter().enumerate() {
        let each = sums.iter().map(|sum| {
            let count = as_f64(sum.questions.max(1));
            format!(" {:.3} ({:.0}) |", sum.recall[at] / count, sum.tokens[at] / count)
        });
        table += &format!("| {hits} |{}\n", each.collect::<String>());
    }
    table
}

impl Sum {
    /// Adds a result. `found` holds the name and the text of each turn found, the best first.
    fn add(&mut self, question: &Question, found: &[(&str, String)]) {
        self.questions += 1;
        for (at, most) in HITS.iter().enumerate() {
            let first = &found[..found.len().min(*most)];
            let evidence = first.iter().filter(|(id, _)| question.evidence.contains(*id)).count();
            self.recall[at] += as_f64(evidence) / as_f64(question.evidence.len());
            self.tokens[at] += first.iter().map(|(_, text)| tokens(text)).sum::<f64>();
        }
    }

    fn mean(&self) -> f64 {
        self.recall.iter().sum::<f64>() / as_f64(HITS.len() * self.questions.max(1))
    }
}

/// One stored conversation and its questions.
struct StoredConversation {
    bench_store: BenchStore,
    /// Keeps the vectors of the messages alive, if there are any.
    _memory: Option<Arc<MemoryService>>,
    /// The turns in a plain SQLite index.
    fts_baseline: Connection,
    /// The name of each turn, by its position in the session.
    ids: HashMap<i64, String>,
    owners: Vec<MemoryOwner>,
    questions: Vec<Question>,
}

impl StoredConversation {
    async fn of(sample: &Value, service: Option<&Service>) -> Result<Self> {
        let turns = turns(&sample["conversation"]);
        let ids: HashMap<i64, String> = (0..).zip(turns.iter().map(|turn| turn.id.clone())).collect();
        let speakers: HashSet<String> = turns.iter().map(|turn| turn.speaker.clone()).collect();
        let owners = speakers.iter().map(|speaker| MemoryOwner::sender(CHANNEL, speaker)).collect();
        let mut questions = questions(&sample["qa"], &ids.values().collect());
        let fts_baseline = fts_baseline(&turns)?;
        let bench_store = BenchStore::new()?;
        bench_store.fill(move |connection| store_turns(connection, &turns)).await?;
        let memory = match service {
            Some(service) => Some(service.embed(&bench_store).await?),
            None => None,
        };
        if let Some(memory) = &memory {
            for question in &mut questions {
                let vector = memory.vector_of(&question.text).await;
                question.vector = Some(vector.context("the service made no vector of a question in time")?);
            }
        }
        Ok(Self { bench_store, _memory: memory, fts_baseline, ids, owners, questions })
    }

    async fn find(&self, question: &Question, method: SearchMethod) -> Result<Vec<(&str, String)>> {
        let (weights, vector) = match method {
            SearchMethod::Bm25 => return self.find_in_baseline(question),
            SearchMethod::Words(weights) => (weights, None),
            SearchMethod::WordsAndVectors(weights) => (weights, question.vector.clone()),
        };
        let ask: RecallQuery = ask(&question.text, self.owners.clone(), HITS[HITS.len() - 1]);
        let find = move |connection: &Connection| recall_weighted(connection, &ask, vector.as_deref(), &weights);
        let hits: Vec<RecallHit> = self.bench_store.store.read(find).await?;
        let named = hits.into_iter().filter_map(|hit| match hit.found {
            HitLocation::Message { seq, .. } => Some((self.ids[&seq].as_str(), hit.text)),
            HitLocation::Memory(_) => None,
        });
        Ok(named.collect())
    }

    fn find_in_baseline(&self, question: &Question) -> Result<Vec<(&str, String)>> {
        let words = question.text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
        let any = words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" OR ");
        let sql = "SELECT rowid, text FROM turns WHERE turns MATCH ?1 ORDER BY bm25(turns), rowid LIMIT ?2";
        let mut statement = self.fts_baseline.prepare_cached(sql)?;
        let most = i64::try_from(HITS[HITS.len() - 1])?;
        let rows = statement.query_map((any, most), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
        rows.map(|row| row.map(|(seq, text)| (self.ids[&seq].as_str(), text)).map_err(Into::into)).collect()
    }
}

fn fts_baseline(turns: &[LocomoTurn]) -> Result<Connection> {
    let store = Connection::open_in_memory()?;
    store.execute_batch("CREATE VIRTUAL TABLE turns USING fts5(speaker, text, tokenize = 'porter unicode61')")?;
    for (seq, turn) in (0_i64..).zip(turns) {
        let row = (seq, &turn.speaker, &turn.text);
        store.execute("INSERT INTO turns (rowid, speaker, text) VALUES (?1, ?2, ?3)", row)?;
    }
    Ok(store)
}

fn turns(conversation: &Value) -> Vec<LocomoTurn> {
    let sessions = (1..).map_while(|number| conversation[format!("session_{number}")].as_array());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    sessions
        .flatten()
        .map(|turn| {
            let mut spoken = text(&turn["text"]);
            if let Some(caption) = turn["blip_caption"].as_str() {
                spoken += &format!("\n[image: {caption}]");
            }
            LocomoTurn { speaker: text(&turn["speaker"]), id: text(&turn["dia_id"]), text: spoken }
        })
        .collect()
}

fn questions(qa: &Value, known: &HashSet<&String>) -> Vec<Question> {
    let all = qa.as_array().into_iter().flatten().map(|entry| {
        let evidence = entry["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let evidence = evidence.filter(|id| known.contains(id)).collect();
        Question { text: entry["question"].as_str().unwrap_or_default().to_owned(), evidence, vector: None }
    });
    all.filter(|question| !question.evidence.is_empty()).collect()
}

/// Stores each turn as a message of its speaker, as a channel with two people would deliver it.
fn store_turns(connection: &Connection, turns: &[LocomoTurn]) -> Result<(), StoreError> {
    for turn in turns {
        let id = Uuid::now_v7();
        let message = NewInboxRow {
            id,
            channel: CHANNEL.to_owned(),
            external_id: id.to_string(),
            session: CHAT.to_owned(),
            chat_id: "chat".to_owned(),
            sender: turn.speaker.clone(),
            trust: "known",
            content: turn.text.clone(),
            attachments: "[]".to_owned(),
            metadata: "{}".to_owned(),
            origin: "{}".to_owned(),
            received_at: 0,
            state: MessageStatus::Done,
        };
        inbox::insert(connection, &message)?;
        let body = serde_json::to_string(&ChatMessage::user(&turn.text))?;
        messages::append(connection, CHAT, id, [("user", body)].into_iter())?;
    }
    rebuild_index(connection, &Identities::default())
}
