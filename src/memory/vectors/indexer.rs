//! Creates embeddings in the background: of new texts, and of all texts after a change of the model.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::query::InstalledEmbedder;
use super::texts;
use crate::crash;
use crate::live::LivePart;
use crate::llm::{Blame, LlmError, LlmErrorKind, Patience, backoff, random_fraction};
use crate::memory::MemoryService;
use crate::store::search_index::SearchCorpus;
use crate::store::vectors::{self, NewVector, SimilarityBaselines, TextHash};
use crate::store::{Connection, Durability, StoreError};

/// The pauses after the service failed, with backoff, and after it refused, which only a person can change.
const FIRST_REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(600);
const REFUSED_REST: Duration = Duration::from_secs(3_600);
/// The pause after the store failed.
const STORE_REST: Duration = Duration::from_secs(60);

/// The most bytes of texts in one request.
const REQUEST_BYTES: usize = 256 * 1024;

/// The number of server errors in a row after which a text may be their cause.
const MAYBE_A_TEXT: u32 = 2;

/// The number of standard deviations above the mean that hardly any of some thousand memories exceeds by chance.
const DEVIATIONS: f64 = 3.0;

/// A text that every embedding model accepts.
const PLAIN: &str = "hello";

/// The worker that keeps the embeddings of memories and messages up to date, while a model is set.
pub struct EmbeddingIndexer {
    live: LivePart<MemoryService>,
    shift: Option<ModelSession>,
}

/// The state of the work with one model.
struct ModelSession {
    installed: Arc<InstalledEmbedder>,
    /// The model's name in the store.
    name: String,
    /// All memories up to this id have an embedding. The store records the progress of messages, whose ids change with their
    /// index.
    memories: i64,
    /// The number of failures in a row.
    failures: u32,
    resting: Option<Instant>,
}

/// A text that needs an embedding, with the ids of its rows.
struct TextToEmbed {
    text: String,
    hash: TextHash,
    ids: Vec<i64>,
    known: Option<Vec<f32>>,
}

/// The texts of one request, without duplicates.
struct EmbeddingBatch {
    place: TextLocation,
    wanted: Vec<TextToEmbed>,
    /// The last row that the request completes.
    last: i64,
}

/// The source of texts.
enum TextLocation {
    Memories,
    /// Messages after this one, as stored.
    Said(String),
}

enum BatchProgress {
    More,
    /// All texts have embeddings.
    Done,
}

#[derive(Debug, thiserror::Error)]
enum EmbeddingFailure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Model(#[from] LlmError),
}

impl EmbeddingIndexer {
    pub fn new(live: LivePart<MemoryService>) -> Self {
        Self { live, shift: None }
    }

    /// Runs until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let memory = self.live.get();
        let (mut changes, queries) = (memory.subscribe_to_changes(), memory.queries.clone());
        drop(memory);
        loop {
            changes.mark_unchanged();
            let Some(rest) = shutdown.run_until_cancelled(self.round()).await else { return };
            let rested = async {
                match rest {
                    Some(rest) => sleep(rest).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
                () = queries.indexed() => {}
                () = rested => {}
            }
        }
    }

    /// Creates all missing embeddings. Returns when to check again without a change.
    pub(in crate::memory) async fn round(&mut self) -> Option<Duration> {
        loop {
            let service = self.live.get();
            let outcome = match self.shift(&service).await {
                Ok(None) => return None,
                Ok(Some(shift)) => match shift.rest_left() {
                    Some(left) => return Some(left),
                    None => shift.work(&service).await,
                },
                Err(error) => Err(error.into()),
            };
            match (outcome, &mut self.shift) {
                (Ok(BatchProgress::More), _) => {}
                (Ok(BatchProgress::Done), _) | (Err(EmbeddingFailure::Store(StoreError::Closed)), _) => return None,
                (Err(EmbeddingFailure::Model(error)), Some(shift)) => return Some(shift.rest(&error)),
                (Err(error), _) => {
                    tracing::warn!(%error, "vectors could not be kept; tried again");
                    return Some(STORE_REST);
                }
            }
        }
    }

    /// Returns the session of the current model, which begins after a change of the model.
    async fn shift(&mut self, service: &MemoryService) -> Result<Option<&mut ModelSession>, StoreError> {
        let Some(installed) = service.embedder.clone() else {
            self.shift = None;
            return Ok(None);
        };
        if !self.shift.as_ref().is_some_and(|shift| Arc::ptr_eq(&shift.installed, &installed)) {
            let name = installed.embedder.name();
            // A turn that began with another model must not compare its embeddings with those of this one.
            if let Some(before) = self.shift.take().filter(|before| before.name != name) {
                before.installed.is_ready.store(false, Ordering::Release);
            }
            let model = name.clone();
            let begin = move |connection: &Connection| {
                let dropped = vectors::set_model(connection, &model)?;
                Ok((dropped, vectors::bases(connection)?))
            };
            let (dropped, bases) = service.store.write(Durability::Logged, begin).await?;
            if dropped {
                tracing::info!(model = name, "another model makes vectors now: all are made anew");
            }
            // Without baselines, no similarity can be judged.
            installed.is_ready.store(bases.is_some(), Ordering::Release);
            self.shift = Some(ModelSession { installed, name, memories: 0, failures: 0, resting: None });
        }
        Ok(self.shift.as_mut())
    }
}

impl ModelSession {
    /// Returns the rest of the current pause.
    fn rest_left(&mut self) -> Option<Duration> {
        let left = self.resting.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_none_or(|left| left.is_zero()) {
            self.resting = None;
        }
        left.filter(|left| !left.is_zero())
    }

    /// Takes the next step. Success ends a series of failures.
    async fn work(&mut self, service: &MemoryService) -> Result<BatchProgress, EmbeddingFailure> {
        let batch = service.settings.config.embeddings.batch.clamp(1, 2_048);
        if !self.installed.is_ready.load(Ordering::Acquire) {
            self.learn_base(service, batch).await?;
        }
        let step = self.step(service, batch).await?;
        if self.failures > 0 {
            tracing::info!(model = self.name, "vectors are made again");
            self.failures = 0;
        }
        Ok(step)
    }

    /// Measures how similar the model finds unrelated texts: with some models, very similar.
    async fn learn_base(&mut self, service: &MemoryService, batch: u32) -> Result<(), EmbeddingFailure> {
        let unlike: Vec<&str> = texts::UNLIKE.into_iter().flatten().collect();
        let mut vectors = Vec::with_capacity(unlike.len());
        for some in unlike.chunks(usize::try_from(batch).unwrap_or(usize::MAX)) {
            vectors.extend(self.installed.embedder.embed(some, Patience::Usual).await?);
        }
        let (name, bases) = (self.name.clone(), bases_of(&vectors));
        tracing::debug!(model = name, ?bases, "how near texts are that have nothing in common");
        let write = move |connection: &Connection| vectors::set_bases(connection, &name, &bases);
        service.store.write(Durability::Logged, write).await?;
        self.installed.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Creates the next embeddings, as many as fit into one request.
    async fn step(&mut self, service: &MemoryService, batch: u32) -> Result<BatchProgress, EmbeddingFailure> {
        for shelf in SearchCorpus::ALL {
            // Needed after an update of the program, and after a memory moved to another owner.
            if service.store.read(move |connection| vectors::are_missing(connection, shelf)).await? {
                let put = move |connection: &Connection| vectors::put_missing(connection, shelf);
                if service.store.write(Durability::Logged, put).await? {
                    return Ok(BatchProgress::More);
                }
            }
        }
        let memories = self.memories;
        let page = service.store.read(move |connection| next(connection, memories, batch)).await?;
        let Some(EmbeddingBatch { place, wanted, last }) = page else {
            // The next round starts over, since memories that were reworded or moved have lost their embeddings.
            self.memories = 0;
            return Ok(BatchProgress::Done);
        };
        let texts: Vec<&str> =
            wanted.iter().filter(|wanted| wanted.known.is_none()).map(|wanted| wanted.text.as_str()).collect();
        let mut made = if texts.is_empty() { Vec::new() } else { self.make(&texts).await? }.into_iter();
        let new: Vec<NewVector> = wanted
            .into_iter()
            .filter_map(|TextToEmbed { hash, ids, known, .. }| {
                Some(NewVector { hash, ids, vector: known.or_else(|| made.next())? })
            })
            .collect();
        let is_said = matches!(place, TextLocation::Said(_));
        if !new.is_empty() || is_said {
            crash::point("vectors_answered", "");
            let name = self.name.clone();
            let write = move |connection: &Connection| match &place {
                TextLocation::Memories => vectors::put(connection, &name, &new),
                TextLocation::Said(after) => vectors::put_messages(connection, &name, (after, last), &new),
            };
            service.store.write(Durability::Logged, write).await?;
            crash::point("vectors_written", "");
        }
        if !is_said {
            self.memories = last;
        }
        Ok(BatchProgress::More)
    }

    /// Creates the embeddings of texts. A text that the model rejects, although it accepts others, gets an empty one.
    async fn make(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, LlmError> {
        let embedder = &self.installed.embedder;
        let error = match embedder.embed(texts, Patience::Usual).await {
            Ok(vectors) => return Ok(vectors),
            Err(error) => error,
        };
        let may_be_a_text = match error.kind {
            LlmErrorKind::BadRequest | LlmErrorKind::ContextTooLong => error.blame == Blame::Request,
            LlmErrorKind::Server => error.blame == Blame::Request && self.failures >= MAYBE_A_TEXT,
            _ => false,
        };
        if !may_be_a_text || embedder.embed(&[PLAIN], Patience::Usual).await.is_err() {
            return Err(error);
        }
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            vectors.push(self.make_one(text).await?);
        }
        Ok(vectors)
    }

    /// Creates the embedding of a text from a rejected request: of its beginning if the whole is too long, or an empty one.
    async fn make_one(&self, text: &str) -> Result<Vec<f32>, LlmError> {
        for text in [text, texts::cut(text, texts::SHORTER)] {
            match self.installed.embedder.embed(&[text], Patience::Usual).await {
                Ok(vectors) => return Ok(vectors.into_iter().next().unwrap_or_default()),
                Err(error) => match error.kind {
                    LlmErrorKind::BadRequest | LlmErrorKind::ContextTooLong | LlmErrorKind::Server
                        if error.blame == Blame::Request => {}
                    _ => return Err(error),
                },
            }
        }
        // A service that is down rejects everything, which says nothing about this text.
        self.installed.embedder.embed(&[PLAIN], Patience::Usual).await?;
        tracing::warn!(model = self.name, "a text that the model of vectors does not take is found by its words alone");
        Ok(Vec::new())
    }

    /// Pauses requests to the service. Logs the first failure of a series.
    fn rest(&mut self, error: &LlmError) -> Duration {
        let rest = if error.is_retryable() {
            let asked = error.retry_after.unwrap_or_default().min(REFUSED_REST);
            backoff(FIRST_REST, LONGEST_REST, self.failures, random_fraction()).max(asked)
        } else {
            REFUSED_REST
        };
        if self.failures == 0 {
            let (model, code, rest_s) = (&self.name, error.code(), rest.as_secs());
            tracing::warn!(model, code, rest_s, %error, "no vectors are made: what is remembered is found by its words alone; tried again after a rest, or when the configuration is read anew");
        }
        self.failures = self.failures.saturating_add(1);
        self.resting = Some(Instant::now() + rest);
        rest
    }
}

/// Returns the next texts without embeddings, memories first; `None` if there are none.
fn next(connection: &Connection, memories: i64, batch: u32) -> Result<Option<EmbeddingBatch>, StoreError> {
    if vectors::newest(connection, SearchCorpus::Memories)? > memories {
        return page(connection, TextLocation::Memories, memories, batch).map(Some);
    }
    let newest = vectors::newest(connection, SearchCorpus::Messages)?;
    let done = vectors::indexed_up_to(connection)?;
    let after = done.parse().unwrap_or(0).max(newest - vectors::KEPT_MESSAGES);
    if newest > after {
        return page(connection, TextLocation::Said(done), after, batch).map(Some);
    }
    Ok(None)
}

fn page(connection: &Connection, place: TextLocation, after: i64, batch: u32) -> Result<EmbeddingBatch, StoreError> {
    let shelf = match place {
        TextLocation::Memories => SearchCorpus::Memories,
        TextLocation::Said(_) => SearchCorpus::Messages,
    };
    // Read before the rows, so that rows written meanwhile do not count as completed.
    let newest = vectors::newest(connection, shelf)?;
    let rows = vectors::unembedded(connection, shelf, after, batch)?;
    let last = if rows.is_empty() { newest } else { after };
    let (mut page, mut bytes) = (EmbeddingBatch { place, wanted: Vec::new(), last }, 0);
    for row in rows {
        let text = texts::of(shelf, &row);
        bytes += text.as_ref().map_or(0, String::len);
        if bytes > REQUEST_BYTES && !page.wanted.is_empty() {
            break;
        }
        page.last = row.id;
        let Some(text) = text else { continue };
        let hash = vectors::hash(&text);
        match page.wanted.iter_mut().find(|wanted| wanted.hash == hash) {
            Some(same) => same.ids.push(row.id),
            None => {
                let known = vectors::find_by_hash(connection, &hash)?;
                page.wanted.push(TextToEmbed { text, hash, ids: vec![row.id], known });
            }
        }
    }
    Ok(page)
}

/// Computes the baselines from the embeddings (of length 1) of [`texts::UNRELATED`], in its order.
fn bases_of(vectors: &[Vec<f32>]) -> SimilarityBaselines {
    /// An upper bound: without it, a model that finds all texts alike would make nothing similar.
    const MOST: f64 = 0.95;
    let cosine = |one: &[f32], other: &[f32]| -> f64 {
        one.iter().zip(other).map(|(one, other)| f64::from(*one) * f64::from(*other)).sum()
    };
    let sentences = |class: usize| texts::sentences_of(class).filter_map(|at| vectors.get(at));
    let all: Vec<&Vec<f32>> = [1, 3].into_iter().flat_map(sentences).collect();
    let of_pairs = all.iter().enumerate().flat_map(|(at, one)| all[..at].iter().map(move |other| cosine(one, other)));
    let (mean, _) = mean_and_deviation(of_pairs);
    let mut bases = SimilarityBaselines { all: mean.clamp(0.0, MOST) as f32, ..SimilarityBaselines::default() };
    for (class, base) in bases.classes.iter_mut().enumerate() {
        let of_class: Vec<&Vec<f32>> = texts::texts_of(class).filter_map(|at| vectors.get(at)).collect();
        let pairs = of_class.iter().flat_map(|one| {
            // Not with itself.
            sentences(class)
                .filter(move |other| !std::ptr::eq::<Vec<f32>>(*one, *other))
                .map(move |other| cosine(one, other))
        });
        let (mean, deviation) = mean_and_deviation(pairs);
        *base = (mean + DEVIATIONS * deviation).clamp(0.0, MOST) as f32;
    }
    bases
}

fn mean_and_deviation(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let (count, sum, squares) = numbers
        .fold((0.0, 0.0, 0.0), |(count, sum, squares), number| (count + 1.0, sum + number, squares + number * number));
    if count == 0.0 {
        return (0.0, 0.0);
    }
    let mean = sum / count;
    (mean, (squares / count - mean * mean).max(0.0).sqrt())
}
