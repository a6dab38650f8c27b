//! Makes vectors in the background: of what is new, and of all when another model is set.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::query::InstalledEmbedder;
use super::texts;
use crate::crash;
use crate::live::LivePart;
use crate::llm::{EmbeddingDeadline, FailureScope, LlmError, LlmErrorKind, backoff, random_fraction};
use crate::memory::MemoryService;
use crate::store::search_index::SearchCorpus;
use crate::store::vectors::{self, NewVector, SimilarityBaselines, TextHash};
use crate::store::{Connection, Durability, StoreError};

/// The wait after a service failed, backoff, and after it refused: nothing that a machine does will change that.
const FIRST_REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(600);
const REFUSED_REST: Duration = Duration::from_secs(3_600);
/// The wait after the store failed.
const STORE_REST: Duration = Duration::from_secs(60);

/// Bytes of texts that go into one request at most.
const REQUEST_BYTES: usize = 256 * 1024;

/// Failures of a server in a row after which it may be a text that it cannot take.
const MAYBE_A_TEXT: u32 = 2;

/// So many standard deviations above the mean hardly any of some thousand memories reaches by chance.
const DEVIATIONS: f64 = 3.0;

/// What every model of vectors takes.
const PLAIN: &str = "hello";

/// Keeps the vectors of memories, and of what people say, while a model of vectors is set; without one it does nothing.
pub struct EmbeddingIndexer {
    live: LivePart<MemoryService>,
    shift: Option<ModelSession>,
}

/// The work with one model.
struct ModelSession {
    installed: Arc<InstalledEmbedder>,
    /// The model's name in the store.
    name: String,
    /// Up to this id all memories have one. Of messages the store says how far it is: their ids change with their index.
    memories: i64,
    /// In a row.
    failures: u32,
    resting: Option<Instant>,
}

/// A text that is to have a vector, and who says it.
struct TextToEmbed {
    text: String,
    hash: TextHash,
    ids: Vec<i64>,
    known: Option<Vec<f32>>,
}

/// The texts of one request, each once.
struct EmbeddingBatch {
    place: TextLocation,
    wanted: Vec<TextToEmbed>,
    /// The last of those that have a vector then, or need none.
    last: i64,
}

/// Where texts come from.
enum TextLocation {
    Memories,
    /// Messages behind this one, as it stands in the store.
    Said(String),
}

enum BatchProgress {
    More,
    /// All that there is has vectors.
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

    /// Makes all vectors that are missing; answers when to look again though nothing has changed.
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

    /// Returns the work with the model that is set now, begun if it is another one than before.
    async fn shift(&mut self, service: &MemoryService) -> Result<Option<&mut ModelSession>, StoreError> {
        let Some(installed) = service.embedder.clone() else {
            self.shift = None;
            return Ok(None);
        };
        if !self.shift.as_ref().is_some_and(|shift| Arc::ptr_eq(&shift.installed, &installed)) {
            let name = installed.embedder.name();
            // A turn that began with another model must not compare its vectors with those of this one.
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
            // By a base that is not known nobody could say what is near.
            installed.is_ready.store(bases.is_some(), Ordering::Release);
            self.shift = Some(ModelSession { installed, name, memories: 0, failures: 0, resting: None });
        }
        Ok(self.shift.as_mut())
    }
}

impl ModelSession {
    /// How long it is still left alone.
    fn rest_left(&mut self) -> Option<Duration> {
        let left = self.resting.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_none_or(|left| left.is_zero()) {
            self.resting = None;
        }
        left.filter(|left| !left.is_zero())
    }

    /// The next step; what a failure before it meant is over when it goes well.
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

    /// Learns how near the model finds texts that have nothing in common: with some models that is very near.
    async fn learn_base(&mut self, service: &MemoryService, batch: u32) -> Result<(), EmbeddingFailure> {
        let unlike: Vec<&str> = texts::UNLIKE.into_iter().flatten().collect();
        let mut vectors = Vec::with_capacity(unlike.len());
        for some in unlike.chunks(usize::try_from(batch).unwrap_or(usize::MAX)) {
            vectors.extend(self.installed.embedder.embed(some, EmbeddingDeadline::Usual).await?);
        }
        let (name, bases) = (self.name.clone(), bases_of(&vectors));
        tracing::debug!(model = name, ?bases, "how near texts are that have nothing in common");
        let write = move |connection: &Connection| vectors::set_bases(connection, &name, &bases);
        service.store.write(Durability::Logged, write).await?;
        self.installed.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes the next vectors, as many as go into one request.
    async fn step(&mut self, service: &MemoryService, batch: u32) -> Result<BatchProgress, EmbeddingFailure> {
        for shelf in SearchCorpus::ALL {
            // As after an update of the program, and when a memory was given to another owner.
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
            // The next round begins anew: what is told in other words, or belongs to somebody else now, has lost its vector.
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

    /// The vectors of these texts. One that the model does not take, though it takes others, has an empty one.
    async fn make(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, LlmError> {
        let embedder = &self.installed.embedder;
        let error = match embedder.embed(texts, EmbeddingDeadline::Usual).await {
            Ok(vectors) => return Ok(vectors),
            Err(error) => error,
        };
        let may_be_a_text = match error.kind {
            LlmErrorKind::BadRequest | LlmErrorKind::ContextTooLong => error.blame == FailureScope::Request,
            LlmErrorKind::Server => error.blame == FailureScope::Request && self.failures >= MAYBE_A_TEXT,
            _ => false,
        };
        if !may_be_a_text || embedder.embed(&[PLAIN], EmbeddingDeadline::Usual).await.is_err() {
            return Err(error);
        }
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            vectors.push(self.make_one(text).await?);
        }
        Ok(vectors)
    }

    /// The vector of a text among which one was refused: of its beginning where the whole is too much, or an empty one.
    async fn make_one(&self, text: &str) -> Result<Vec<f32>, LlmError> {
        for text in [text, texts::cut(text, texts::SHORTER)] {
            match self.installed.embedder.embed(&[text], EmbeddingDeadline::Usual).await {
                Ok(vectors) => return Ok(vectors.into_iter().next().unwrap_or_default()),
                Err(error) => match error.kind {
                    LlmErrorKind::BadRequest | LlmErrorKind::ContextTooLong | LlmErrorKind::Server
                        if error.blame == FailureScope::Request => {}
                    _ => return Err(error),
                },
            }
        }
        // A service that is down takes nothing: that says nothing of this text.
        self.installed.embedder.embed(&[PLAIN], EmbeddingDeadline::Usual).await?;
        tracing::warn!(model = self.name, "a text that the model of vectors does not take is found by its words alone");
        Ok(Vec::new())
    }

    /// Leaves the service alone for a while; said once, until it answers again.
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

/// What is to have vectors next, memories first; `None` when all that there is has some.
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
    // Read first: what is written meanwhile is none of those that need nothing.
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

/// The bases of the vectors (of length 1) of [`texts::UNLIKE`], in its order.
fn bases_of(vectors: &[Vec<f32>]) -> SimilarityBaselines {
    /// A model that finds all the same tells nothing apart; without a bound nothing would ever be near.
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
