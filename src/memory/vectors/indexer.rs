//! Creates embeddings in the background: of new texts, and of all texts after a change of the model.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::query::InstalledEmbedder;
use super::texts;
use crate::crash;
use crate::live::LivePart;
use crate::llm::{EmbeddingDeadline, FailureScope, LlmError, LlmErrorKind, backoff, random_fraction};
use crate::memory::MemoryService;
use crate::store::search_index::{self, SearchCorpus};
use crate::store::vectors::{self, NewVector, SimilarityBaselines, TextHash};
use crate::store::{Connection, Durability, StoreError};

/// The pauses after a failure of the service: the first and the longest one of a backoff, and the pause after a refusal, which
/// only a change by a person ends.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_secs(600);
const REFUSED_PAUSE: Duration = Duration::from_secs(3_600);
/// The pause after the store failed.
const STORE_PAUSE: Duration = Duration::from_secs(60);

/// The maximum size, in bytes, of texts in one request.
const REQUEST_BYTES: usize = 256 * 1024;

/// The number of consecutive server errors after which one of the texts may be their cause.
const MAYBE_A_TEXT: u32 = 2;

/// The threshold of chance similarity, in standard deviations above the mean: hardly any of some thousand unrelated memories
/// exceeds it.
const DEVIATIONS: f64 = 3.0;

/// A text that every embedding model accepts.
const PLAIN: &str = "hello";

/// The worker that keeps the embeddings of memories and messages up to date, while a model is set.
pub struct EmbeddingIndexer {
    live: LivePart<MemoryService>,
    session: Option<ModelSession>,
}

/// The progress with one model.
struct ModelSession {
    installed: Arc<InstalledEmbedder>,
    /// The model's name in the store.
    name: String,
    /// All memories up to this id have an embedding. For messages, whose ids change with their index, the store records the
    /// progress.
    memories: i64,
    /// The number of failures in a row.
    failures: u32,
    paused_until: Option<Instant>,
}

/// A text that needs an embedding, with the ids of its rows.
struct TextToEmbed {
    text: String,
    hash: TextHash,
    ids: Vec<i64>,
    known: Option<Vec<f32>>,
}

/// The texts of one request, without duplicates.
struct PendingEmbeddings {
    source: TextSource,
    texts: Vec<TextToEmbed>,
    /// The last row that the request completes.
    last: i64,
}

/// The table that the texts come from.
enum TextSource {
    Memories,
    /// Messages, with the recorded progress in its stored form, which the write of the vectors compares.
    Messages(String),
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
        Self { live, session: None }
    }

    /// Runs until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let memory = self.live.get();
        let (mut changes, indexed) = (memory.subscribe_to_changes(), memory.indexed.clone());
        drop(memory);
        loop {
            changes.mark_unchanged();
            let Some(pause) = shutdown.run_until_cancelled(self.round()).await else { return };
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
                () = indexed.notified() => {}
                Some(()) = OptionFuture::from(pause.map(sleep)) => {}
            }
        }
    }

    /// Creates all missing embeddings. Returns when to check again without a change.
    pub(in crate::memory) async fn round(&mut self) -> Option<Duration> {
        loop {
            let service = self.live.get();
            let outcome = match self.session(&service).await {
                Ok(None) => return None,
                Ok(Some(session)) => match session.remaining_pause() {
                    Some(left) => return Some(left),
                    None => session.next_step(&service).await,
                },
                Err(error) => Err(error.into()),
            };
            match (outcome, &mut self.session) {
                (Ok(BatchProgress::More), _) => {}
                (Ok(BatchProgress::Done), _) | (Err(EmbeddingFailure::Store(StoreError::Closed)), _) => return None,
                (Err(EmbeddingFailure::Model(error)), Some(session)) => return Some(session.pause(&error)),
                (Err(error), _) => {
                    tracing::warn!(%error, "embeddings could not be stored; retrying");
                    return Some(STORE_PAUSE);
                }
            }
        }
    }

    /// Returns the session of the current model, which begins after a change of the model.
    async fn session(&mut self, service: &MemoryService) -> Result<Option<&mut ModelSession>, StoreError> {
        let Some(installed) = service.embedder.clone() else {
            self.session = None;
            return Ok(None);
        };
        if !self.session.as_ref().is_some_and(|session| Arc::ptr_eq(&session.installed, &installed)) {
            let name = installed.embedder.name();
            // A turn that began with another model must not compare its embeddings with those of this one.
            if let Some(before) = self.session.take().filter(|before| before.name != name) {
                before.installed.is_ready.store(false, Ordering::Release);
            }
            let model = name.clone();
            let begin = move |connection: &Connection| {
                let dropped = vectors::set_model(connection, &model)?;
                Ok((dropped, vectors::bases(connection)?))
            };
            let (dropped, baselines) = service.store.write(Durability::Logged, begin).await?;
            if dropped {
                tracing::info!(model = name, "the embedding model has changed; all embeddings are rebuilt");
            }
            // Without baselines, similarities have no meaning.
            installed.is_ready.store(baselines.is_some(), Ordering::Release);
            self.session = Some(ModelSession { installed, name, memories: 0, failures: 0, paused_until: None });
        }
        Ok(self.session.as_mut())
    }
}

impl ModelSession {
    /// Returns the rest of the current pause.
    fn remaining_pause(&mut self) -> Option<Duration> {
        let left = self.paused_until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_none_or(|left| left.is_zero()) {
            self.paused_until = None;
        }
        left.filter(|left| !left.is_zero())
    }

    /// Takes the next step. Success ends a series of failures.
    async fn next_step(&mut self, service: &MemoryService) -> Result<BatchProgress, EmbeddingFailure> {
        let batch = service.settings.config.embeddings.batch.clamp(1, 2_048);
        if !self.installed.is_ready.load(Ordering::Acquire) {
            self.measure_baselines(service, batch).await?;
        }
        let step = self.embed_next(service, batch).await?;
        if self.failures > 0 {
            tracing::info!(model = self.name, "the embedding service answers again");
            self.failures = 0;
        }
        Ok(step)
    }

    /// Measures the similarity that the model gives to unrelated texts. With some models, it is high.
    async fn measure_baselines(&mut self, service: &MemoryService, batch: u32) -> Result<(), EmbeddingFailure> {
        let unrelated: Vec<&str> = texts::UNRELATED.into_iter().flatten().collect();
        let mut vectors = Vec::with_capacity(unrelated.len());
        for some in unrelated.chunks(usize::try_from(batch).unwrap_or(usize::MAX)) {
            vectors.extend(self.installed.embedder.embed(some, EmbeddingDeadline::Usual).await?);
        }
        let (name, baselines) = (self.name.clone(), baselines_of(&vectors));
        tracing::debug!(model = name, ?baselines, "the similarity of unrelated texts was measured");
        let write = move |connection: &Connection| vectors::set_bases(connection, &name, &baselines);
        service.store.write(Durability::Logged, write).await?;
        self.installed.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Creates the next embeddings, as many as fit into one request.
    async fn embed_next(&mut self, service: &MemoryService, batch: u32) -> Result<BatchProgress, EmbeddingFailure> {
        for corpus in SearchCorpus::ALL {
            // Embeddings lack their codes after an update of the program, and after a memory moved to another owner.
            if service.store.read(move |connection| vectors::are_missing(connection, corpus)).await? {
                let put = move |connection: &Connection| vectors::put_missing(connection, corpus);
                if service.store.write(Durability::Logged, put).await? {
                    return Ok(BatchProgress::More);
                }
            }
        }
        let memories = self.memories;
        let page = service.store.read(move |connection| next_texts(connection, memories, batch)).await?;
        let Some(PendingEmbeddings { source, texts: pending, last }) = page else {
            // The next round starts over, since memories that were reworded or moved have lost their embeddings.
            self.memories = 0;
            return Ok(BatchProgress::Done);
        };
        let texts: Vec<&str> =
            pending.iter().filter(|text| text.known.is_none()).map(|text| text.text.as_str()).collect();
        let mut created = if texts.is_empty() { Vec::new() } else { self.embed(&texts).await? }.into_iter();
        let new: Vec<NewVector> = pending
            .into_iter()
            .filter_map(|TextToEmbed { hash, ids, known, .. }| {
                Some(NewVector { hash, ids, vector: known.or_else(|| created.next())? })
            })
            .collect();
        let are_messages = matches!(source, TextSource::Messages(_));
        if !new.is_empty() || are_messages {
            crash::point("vectors_answered", "");
            let name = self.name.clone();
            let write = move |connection: &Connection| match &source {
                TextSource::Memories => vectors::put(connection, &name, &new),
                TextSource::Messages(indexed) => vectors::put_messages(connection, &name, (indexed, last), &new),
            };
            service.store.write(Durability::Logged, write).await?;
            crash::point("vectors_written", "");
        }
        if !are_messages {
            self.memories = last;
        }
        Ok(BatchProgress::More)
    }

    /// Creates the embeddings of texts. A text that the model rejects, although it accepts others, gets an empty one.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, LlmError> {
        let embedder = &self.installed.embedder;
        let error = match embedder.embed(texts, EmbeddingDeadline::Usual).await {
            Ok(vectors) => return Ok(vectors),
            Err(error) => error,
        };
        let may_be_one_text = match error.kind {
            LlmErrorKind::BadRequest | LlmErrorKind::ContextTooLong => error.blame == FailureScope::Request,
            LlmErrorKind::Server => error.blame == FailureScope::Request && self.failures >= MAYBE_A_TEXT,
            _ => false,
        };
        if !may_be_one_text || embedder.embed(&[PLAIN], EmbeddingDeadline::Usual).await.is_err() {
            return Err(error);
        }
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            vectors.push(self.embed_one(text).await?);
        }
        Ok(vectors)
    }

    /// Creates the embedding of a text from a rejected request: of its beginning if the whole is too long, or an empty one.
    async fn embed_one(&self, text: &str) -> Result<Vec<f32>, LlmError> {
        for text in [text, texts::first_chars(text, texts::RETRY_CHARS)] {
            match self.installed.embedder.embed(&[text], EmbeddingDeadline::Usual).await {
                Ok(vectors) => return Ok(vectors.into_iter().next().unwrap_or_default()),
                Err(error) => match error.kind {
                    LlmErrorKind::BadRequest | LlmErrorKind::ContextTooLong | LlmErrorKind::Server
                        if error.blame == FailureScope::Request => {}
                    _ => return Err(error),
                },
            }
        }
        // A service that is down rejects everything, which does not mean that this text is at fault.
        self.installed.embedder.embed(&[PLAIN], EmbeddingDeadline::Usual).await?;
        tracing::warn!(model = self.name, "the embedding model rejects a text; searches find it by its words alone");
        Ok(Vec::new())
    }

    /// Pauses requests to the service. Logs the first failure of a series.
    fn pause(&mut self, error: &LlmError) -> Duration {
        let pause = if error.is_retryable() {
            let retry_after = error.retry_after.unwrap_or_default().min(REFUSED_PAUSE);
            backoff(FIRST_PAUSE, MAX_PAUSE, self.failures, random_fraction()).max(retry_after)
        } else {
            REFUSED_PAUSE
        };
        if self.failures == 0 {
            let (model, code, pause_s) = (&self.name, error.code(), pause.as_secs());
            tracing::warn!(model, code, pause_s, %error, "no embeddings are created, so searches use words alone; retrying after the pause, or after a reload of the configuration");
        }
        self.failures = self.failures.saturating_add(1);
        self.paused_until = Some(Instant::now() + pause);
        pause
    }
}

/// Returns the next texts without embeddings, memories first; `None` if there are none.
fn next_texts(connection: &Connection, memories: i64, batch: u32) -> Result<Option<PendingEmbeddings>, StoreError> {
    if search_index::highest_id(connection, SearchCorpus::Memories)? > memories {
        return page(connection, TextSource::Memories, memories, batch).map(Some);
    }
    let newest = search_index::highest_id(connection, SearchCorpus::Messages)?;
    let indexed = vectors::indexed_up_to(connection)?;
    let after = indexed.parse().unwrap_or(0).max(newest - vectors::KEPT_MESSAGES);
    if newest > after {
        return page(connection, TextSource::Messages(indexed), after, batch).map(Some);
    }
    Ok(None)
}

fn page(connection: &Connection, source: TextSource, after: i64, batch: u32) -> Result<PendingEmbeddings, StoreError> {
    let corpus = match source {
        TextSource::Memories => SearchCorpus::Memories,
        TextSource::Messages(_) => SearchCorpus::Messages,
    };
    // This is read before the rows, so that rows written meanwhile do not count as completed.
    let newest = search_index::highest_id(connection, corpus)?;
    let rows = vectors::unembedded(connection, corpus, after, batch)?;
    let last = if rows.is_empty() { newest } else { after };
    let (mut page, mut bytes) = (PendingEmbeddings { source, texts: Vec::new(), last }, 0);
    for row in rows {
        let text = texts::text_to_embed(corpus, &row);
        bytes += text.as_ref().map_or(0, String::len);
        if bytes > REQUEST_BYTES && !page.texts.is_empty() {
            break;
        }
        page.last = row.id;
        let Some(text) = text else { continue };
        let hash = vectors::hash(&text);
        match page.texts.iter_mut().find(|known| known.hash == hash) {
            Some(same) => same.ids.push(row.id),
            None => {
                let known = vectors::find_by_hash(connection, &hash)?;
                page.texts.push(TextToEmbed { text, hash, ids: vec![row.id], known });
            }
        }
    }
    Ok(page)
}

/// Computes the baselines from the embeddings (of length 1) of [`texts::UNRELATED`], in its order.
fn baselines_of(vectors: &[Vec<f32>]) -> SimilarityBaselines {
    /// The upper limit of a baseline: without it, nothing would be similar for a model that finds all texts alike.
    const MAX_BASELINE: f64 = 0.95;
    let cosine = |one: &[f32], other: &[f32]| -> f64 {
        one.iter().zip(other).map(|(one, other)| f64::from(*one) * f64::from(*other)).sum()
    };
    let sentences = |class: usize| texts::sentences_of(class).filter_map(|at| vectors.get(at));
    let all: Vec<&Vec<f32>> = [1, 3].into_iter().flat_map(sentences).collect();
    let of_pairs = all.iter().enumerate().flat_map(|(at, one)| all[..at].iter().map(move |other| cosine(one, other)));
    let (mean, _) = mean_and_deviation(of_pairs);
    let mut baselines =
        SimilarityBaselines { all: mean.clamp(0.0, MAX_BASELINE) as f32, ..SimilarityBaselines::default() };
    for (class, base) in baselines.classes.iter_mut().enumerate() {
        let of_class: Vec<&Vec<f32>> = texts::texts_of(class).filter_map(|at| vectors.get(at)).collect();
        let pairs = of_class.iter().flat_map(|one| {
            // A text is not compared with itself.
            sentences(class)
                .filter(move |other| !std::ptr::eq::<Vec<f32>>(*one, *other))
                .map(move |other| cosine(one, other))
        });
        let (mean, deviation) = mean_and_deviation(pairs);
        *base = (mean + DEVIATIONS * deviation).clamp(0.0, MAX_BASELINE) as f32;
    }
    baselines
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
