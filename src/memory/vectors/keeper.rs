//! Makes vectors in the background: of what is new, and of all when another model is set.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::asked::Installed;
use super::texts;
use crate::crash;
use crate::llm::{Blame, LlmError, LlmErrorKind, Patience, chance, growing};
use crate::memory::Desk;
use crate::store::vectors::{self, Hash, NewVector};
use crate::store::{Commit, Connection, StoreError};

/// The wait after a service failed, growing, and after it refused: nothing that a machine does will change that.
const FIRST_REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(600);
const REFUSED_REST: Duration = Duration::from_secs(3_600);
/// The wait after the store failed.
const STORE_REST: Duration = Duration::from_secs(60);

/// Bytes of texts that go into one request at most.
const REQUEST_BYTES: usize = 256 * 1024;

/// Failures of a server in a row after which it may be a text that it cannot take.
const MAYBE_A_TEXT: u32 = 2;

/// What every model of vectors takes.
const PLAIN: &str = "hello";

/// Keeps the vectors of memories, while a model of vectors is set; without one it does nothing.
pub struct VectorKeeper {
    desk: Arc<Desk>,
    shift: Option<Shift>,
}

/// The work with one model.
struct Shift {
    installed: Arc<Installed>,
    /// The model's name in the store.
    name: String,
    /// Memories up to this id have vectors.
    done: i64,
    /// In a row.
    failures: u32,
    resting: Option<Instant>,
}

/// A text that is to have a vector, and who says it.
struct Wanted {
    text: String,
    hash: Hash,
    memories: Vec<i64>,
    known: Option<Vec<f32>>,
}

enum Step {
    More,
    /// All that there is has vectors.
    Done,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Model(#[from] LlmError),
}

impl VectorKeeper {
    pub fn new(desk: Arc<Desk>) -> Self {
        Self { desk, shift: None }
    }

    /// Runs until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut changes = self.desk.changes();
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
                () = rested => {}
            }
        }
    }

    /// Makes all vectors that are missing; answers when to look again though nothing has changed.
    pub(super) async fn round(&mut self) -> Option<Duration> {
        let desk = self.desk.clone();
        loop {
            let outcome = match self.shift().await {
                Ok(None) => return None,
                Ok(Some(shift)) => match shift.rest_left() {
                    Some(left) => return Some(left),
                    None => shift.step(&desk).await,
                },
                Err(error) => Err(error.into()),
            };
            match (outcome, &mut self.shift) {
                (Ok(Step::More), _) => {}
                (Ok(Step::Done), _) | (Err(Trouble::Store(StoreError::Closed)), _) => return None,
                (Err(Trouble::Model(error)), Some(shift)) => return Some(shift.rest(&error)),
                (Err(error), _) => {
                    tracing::warn!(%error, "vectors could not be kept; tried again");
                    return Some(STORE_REST);
                }
            }
        }
    }

    /// The work with the model that is set now, begun where it is another one than before.
    async fn shift(&mut self) -> Result<Option<&mut Shift>, StoreError> {
        let Some(installed) = self.desk.vectors.installed() else {
            self.shift = None;
            return Ok(None);
        };
        if !self.shift.as_ref().is_some_and(|shift| Arc::ptr_eq(&shift.installed, &installed)) {
            self.shift = None;
            let name = installed.embedder.name();
            let model = name.clone();
            let dropped = self.desk.store.write(Commit::Logged, move |connection| vectors::begin(connection, &model));
            if dropped.await? {
                tracing::info!(model = name, "another model makes vectors now: all are made anew");
            }
            installed.is_ready.store(true, Ordering::Release);
            self.shift = Some(Shift { installed, name, done: 0, failures: 0, resting: None });
        }
        Ok(self.shift.as_mut())
    }
}

impl Shift {
    /// How long it is still left alone.
    fn rest_left(&mut self) -> Option<Duration> {
        let left = self.resting.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_none_or(|left| left.is_zero()) {
            self.resting = None;
        }
        left.filter(|left| !left.is_zero())
    }

    /// Makes the next vectors, as many as go into one request.
    async fn step(&mut self, desk: &Desk) -> Result<Step, Trouble> {
        let (after, batch) = (self.done, desk.terms.get().config.embeddings.batch.clamp(1, 2_048));
        let (wanted, last) = desk.store.read(move |connection| next(connection, after, batch)).await?;
        let mut wanted = wanted;
        let texts: Vec<&str> =
            wanted.iter().filter(|wanted| wanted.known.is_none()).map(|wanted| wanted.text.as_str()).collect();
        let mut made = if texts.is_empty() { Vec::new() } else { self.make(&texts).await? }.into_iter();
        let step = if wanted.is_empty() { Step::Done } else { Step::More };
        let new: Vec<NewVector> = wanted
            .drain(..)
            .filter_map(|Wanted { hash, memories, known, .. }| {
                Some(NewVector { hash, memories, vector: known.or_else(|| made.next())? })
            })
            .collect();
        let name = self.name.clone();
        if !new.is_empty() {
            crash::point("vectors_answered", "");
            let write = move |connection: &Connection| {
                new.iter().try_for_each(|new| vectors::put(connection, &name, new).map(drop))
            };
            desk.store.write(Commit::Logged, write).await?;
            crash::point("vectors_written", "");
        }
        self.done = last;
        if self.failures > 0 {
            tracing::info!(model = self.name, "vectors are made again");
            self.failures = 0;
        }
        Ok(step)
    }

    /// The vectors of these texts. One that the model does not take, though it takes others, has an empty one.
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

    /// The vector of a text among which one was refused: of its beginning where the whole is too much, or an empty one.
    async fn make_one(&self, text: &str) -> Result<Vec<f32>, LlmError> {
        for text in [text, texts::cut(text, texts::SHORTER)] {
            match self.installed.embedder.embed(&[text], Patience::Usual).await {
                Ok(vectors) => return Ok(vectors.into_iter().next().unwrap_or_default()),
                Err(error) => match error.kind {
                    LlmErrorKind::BadRequest | LlmErrorKind::ContextTooLong | LlmErrorKind::Server => {}
                    _ => return Err(error),
                },
            }
        }
        tracing::warn!(model = self.name, "a text that the model of vectors does not take is found by its words alone");
        Ok(Vec::new())
    }

    /// Leaves the service alone for a while; said once, until it answers again.
    fn rest(&mut self, error: &LlmError) -> Duration {
        let rest = if error.is_retryable() {
            let asked = error.retry_after.unwrap_or_default().min(REFUSED_REST);
            growing(FIRST_REST, LONGEST_REST, self.failures, chance()).max(asked)
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

/// The texts of one request, each once, and the last memory that then has its vector.
fn next(connection: &Connection, after: i64, batch: u32) -> Result<(Vec<Wanted>, i64), StoreError> {
    let (rows, newest) = vectors::unembedded(connection, after, batch)?;
    let (mut wanted, mut last, mut bytes): (Vec<Wanted>, _, _) = (Vec::new(), newest, 0);
    for row in rows {
        let text = texts::of_memory(&row);
        let hash = vectors::hash(&text);
        bytes += text.len();
        if bytes > REQUEST_BYTES && !wanted.is_empty() {
            return Ok((wanted, last));
        }
        last = row.id;
        match wanted.iter_mut().find(|wanted| wanted.hash == hash) {
            Some(same) => same.memories.push(row.id),
            None => {
                let known = vectors::known(connection, &hash)?;
                wanted.push(Wanted { text, hash, memories: vec![row.id], known });
            }
        }
    }
    Ok((wanted, last))
}
