//! Selects the parts of a result with a meaning similar to that of the question.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::sync::Cache;
use sha2::{Digest, Sha256};

use super::config::SemanticConfig;
use super::filter::{FilterOutput, RawResult};
use super::lines::{LineSelection, TextLines};
use super::question::Question;
use super::section_filter::kind_of;
use super::sections::{TextSection, sections};
use crate::llm::{Embedder, EmbeddingDeadline, LlmError};

/// The maximum number of texts of one request.
const BATCH_SIZE: usize = 64;
/// The number of parts of one line that are joined to one part.
const LINES_TOGETHER: usize = 8;
/// The maximum number of parts of a result; if there are more, neighbours are joined.
const MAX_PARTS: usize = 512;
/// The beginning of a part that is compared, in characters.
const LONGEST_PART: usize = 2_000;
/// The maximum number of cached vectors, and their lifetime.
const CACHED_VECTORS: u64 = 20_000;
const CACHED_FOR: Duration = Duration::from_secs(3_600);

/// The longest wait of a turn for all vectors of a result.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A filter that compares parts with a question by an embedding model. Vectors are cached by the hash of their text.
pub struct SemanticFilter {
    embedder: Embedder,
    vectors: Cache<[u8; 32], Arc<[f32]>>,
}

impl SemanticFilter {
    pub fn new(embedder: Embedder) -> Self {
        Self { embedder, vectors: Cache::builder().max_capacity(CACHED_VECTORS).time_to_live(CACHED_FOR).build() }
    }

    /// Returns the parts that are similar to the question; `None` if there are none.
    ///
    /// # Errors
    /// The embedding model does not answer.
    pub(super) async fn filter(
        &self,
        raw: &RawResult<'_>,
        question: &Question,
        config: &SemanticConfig,
    ) -> Result<Option<FilterOutput>, LlmError> {
        let (body, remarks) = raw.body_and_remarks();
        let lines = TextLines::of(body);
        let parts = joined(sections(&lines, kind_of(raw, &lines)));
        let text = |part: &TextSection| lines.text(part.lines.clone()).chars().take(LONGEST_PART).collect::<String>();
        let mut texts: Vec<String> = parts.iter().map(text).collect();
        texts.push(format!("{}\n{}", question.text, question.aim).trim().to_owned());
        let mut vectors = self.vectors_of(&texts).await?;
        let Some(asked) = vectors.pop() else { return Ok(None) };
        let mut rated: Vec<(f32, usize)> = vectors
            .iter()
            .enumerate()
            .map(|(at, vector)| (dot(vector, &asked), at))
            .filter(|(near, _)| f64::from(*near) >= config.threshold)
            .collect();
        rated.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        rated.truncate(config.max_items as usize);
        if rated.is_empty() {
            return Ok(None);
        }
        let mut selection = LineSelection::none(&lines);
        for (_, at) in rated {
            selection.keep(parts[at].lines.clone());
            parts[at].above.iter().for_each(|line| selection.keep_line(*line));
        }
        Ok(Some(FilterOutput::of_lines(&selection, "lines", &remarks)))
    }

    /// Returns the vectors of texts. Requests only those that are not cached.
    async fn vectors_of(&self, texts: &[String]) -> Result<Vec<Arc<[f32]>>, LlmError> {
        let keys: Vec<[u8; 32]> = texts.iter().map(|text| Sha256::digest(text.as_bytes()).into()).collect();
        let mut found: Vec<Option<Arc<[f32]>>> = keys.iter().map(|key| self.vectors.get(key)).collect();
        let missing: Vec<usize> = (0..texts.len()).filter(|at| found[*at].is_none()).collect();
        let deadline = Instant::now() + TIMEOUT;
        for batch in missing.chunks(BATCH_SIZE) {
            // Services refuse an empty text, so a placeholder is sent for it.
            let wanted: Vec<&str> =
                batch.iter().map(|at| if texts[*at].trim().is_empty() { "-" } else { texts[*at].as_str() }).collect();
            let vectors = self
                .embedder
                .embed(&wanted, EmbeddingDeadline::Within(deadline.saturating_duration_since(Instant::now())))
                .await?;
            for (at, vector) in batch.iter().zip(vectors) {
                let vector: Arc<[f32]> = vector.into();
                self.vectors.insert(keys[*at], vector.clone());
                found[*at] = Some(vector);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// Joins parts of one line, and bounds the number of parts.
fn joined(parts: Vec<TextSection>) -> Vec<TextSection> {
    let together = if parts.iter().all(|part| part.lines.len() == 1) { LINES_TOGETHER } else { 1 };
    let together = together.max(parts.len().div_ceil(MAX_PARTS));
    if together == 1 {
        return parts;
    }
    let join = |group: &[TextSection]| {
        let (first, last) = (&group[0], &group[group.len() - 1]);
        TextSection {
            lines: first.lines.start..last.lines.end,
            above: first.above.clone(),
            definition: first.definition,
        }
    };
    parts.chunks(together).map(join).collect()
}

/// Returns the cosine of two vectors of length 1.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
