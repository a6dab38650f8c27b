//! Asks a service for embeddings by OpenAI's `/embeddings`
//! (<https://platform.openai.com/docs/api-reference/embeddings>).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout_at};

use super::attempt_error::AttemptError;
use super::dialect::read_capped;
use super::provider::RemoteProvider;
use crate::llm::retry::{FailedAttempt, Retry, random_fraction};
use crate::llm::{LlmError, LlmErrorKind};

/// The maximum number of dimensions of a vector: more than any known model has.
const DIMENSIONS: usize = 8_192;
/// The maximum size, in bytes, of one number in an answer, and of the rest of the answer around the numbers.
const NUMBER_BYTES: usize = 32;
const FRAME_BYTES: usize = 64 * 1024;

/// The time that a caller waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingDeadline {
    /// A person waits: one attempt within this time.
    Within(Duration),
    /// Nobody waits: the provider's own deadline and retries.
    Usual,
}

/// Vectors in the order of their texts, each of length 1 (or all zero), all with the same dimensions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmbeddingBatch {
    pub vectors: Vec<Vec<f32>>,
    /// The tokens that the service counted; 0 if it reports none.
    pub tokens: u64,
}

#[derive(Serialize)]
struct EmbeddingRequest<'a> {
    model: &'a str,
    input: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
}

#[derive(Deserialize)]
struct EmbeddingAnswer {
    data: Vec<EmbeddingItem>,
    usage: Option<EmbeddingUsage>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    index: Option<usize>,
    embedding: Vec<f32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EmbeddingUsage {
    prompt_tokens: u64,
    total_tokens: u64,
}

impl RemoteProvider {
    /// Returns true if the provider's protocol has embeddings.
    pub fn makes_vectors(&self) -> bool {
        self.vectors_url.is_some()
    }

    /// Returns the vectors of `texts` by `model`, with this many dimensions, or the model's default for 0.
    ///
    /// # Errors
    /// The service cannot be reached, refuses, or gives an invalid answer.
    pub async fn embed(
        &self,
        model: &str,
        dimensions: u32,
        texts: &[&str],
        deadline: EmbeddingDeadline,
    ) -> Result<EmbeddingBatch, LlmError> {
        let usual = self.config.timeout.0;
        let (retry, time) = match deadline {
            EmbeddingDeadline::Within(time) => (Retry::new(0), time.min(usual)),
            EmbeddingDeadline::Usual => (self.retry, usual),
        };
        let dimensions = Some(dimensions).filter(|dimensions| *dimensions > 0);
        let asked = EmbeddingRequest { model, input: texts, dimensions };
        let mut retries = 0;
        loop {
            let mut fault = match self.try_embed(&asked, Instant::now() + time).await {
                Ok(embedded) => return Ok(embedded),
                Err(fault) => fault,
            };
            let tried = FailedAttempt { kind: fault.kind, retry_after: fault.retry_after, retries };
            let Some(wait) = retry.wait(tried, random_fraction()) else {
                fault.message += &tried.why_given_up();
                return Err(self.error(fault));
            };
            retries += 1;
            sleep(wait).await;
        }
    }

    async fn try_embed(&self, asked: &EmbeddingRequest<'_>, until: Instant) -> Result<EmbeddingBatch, AttemptError> {
        let late = || AttemptError::new(LlmErrorKind::Timeout, "the vectors did not come in time");
        let Some(url) = &self.vectors_url else {
            return Err(AttemptError::new(LlmErrorKind::BadRequest, "its protocol knows no vectors"));
        };
        let body = serde_json::to_vec(asked)
            .map_err(|error| AttemptError::new(LlmErrorKind::BadRequest, error.to_string()))?;
        let request = self.post(url, body);
        let response = timeout_at(until, self.client()?.execute(request)).await.map_err(|_| late())?;
        let response = response.map_err(|error| self.connection_fault(error).asked(url))?;
        let response = self.check_status(response, until).await?;
        let limit = FRAME_BYTES + asked.input.len() * DIMENSIONS * NUMBER_BYTES;
        let body = timeout_at(until, read_capped(response, limit)).await.map_err(|_| late())?;
        read(&body, asked.input.len(), asked.dimensions)
    }
}

/// Reads an answer that must hold `count` vectors of `dimensions` numbers.
fn read(body: &[u8], count: usize, dimensions: Option<u32>) -> Result<EmbeddingBatch, AttemptError> {
    let answer: EmbeddingAnswer = serde_json::from_slice(body)
        .map_err(|error| AttemptError::unusable(format!("the vectors could not be read ({error})")))?;
    if answer.data.len() != count {
        return Err(AttemptError::unusable(format!("{} vectors came for {count} texts", answer.data.len())));
    }
    let mut vectors = vec![Vec::new(); count];
    for (at, EmbeddingItem { index, embedding }) in answer.data.into_iter().enumerate() {
        match vectors.get_mut(index.unwrap_or(at)) {
            Some(place) if place.is_empty() && !embedding.is_empty() => *place = embedding,
            _ => return Err(AttemptError::unusable("two vectors came for one text, or an empty one")),
        }
    }
    let length = vectors.first().map_or(0, Vec::len);
    if length > DIMENSIONS || vectors.iter().any(|vector| vector.len() != length) {
        return Err(AttemptError::unusable("the vectors are not of one length"));
    }
    if let Some(dimensions) = dimensions.filter(|dimensions| usize::try_from(*dimensions) != Ok(length)) {
        // A retry would give the same number of dimensions.
        let message = format!("the vectors have {length} numbers where {dimensions} were asked for (dimensions)");
        return Err(AttemptError::new(LlmErrorKind::BadRequest, message));
    }
    if vectors.iter_mut().any(|vector| !normalise(vector)) {
        return Err(AttemptError::unusable("a vector has a component that is not a number"));
    }
    let EmbeddingUsage { prompt_tokens, total_tokens } = answer.usage.unwrap_or_default();
    Ok(EmbeddingBatch { vectors, tokens: prompt_tokens.max(total_tokens) })
}

/// Scales a vector to length 1, so that a dot product is the cosine; returns true if all components are finite.
fn normalise(vector: &mut [f32]) -> bool {
    let length = vector.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    if !length.is_finite() {
        return false;
    }
    if length > 0.0 {
        vector.iter_mut().for_each(|number| *number = (f64::from(*number) / length) as f32);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_checked_and_put_in_order() {
        let good = |body: &str, count, dimensions| read(body.as_bytes(), count, dimensions).unwrap();
        let two =
            r#"{"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3,4]}],"usage":{"total_tokens":9}}"#;
        let EmbeddingBatch { vectors, tokens } = good(two, 2, None);
        assert_eq!((vectors, tokens), (vec![vec![0.6, 0.8], vec![0.0, 1.0]], 9));
        assert_eq!(
            good(r#"{"data":[{"embedding":[0,0]}]}"#, 1, Some(2)).vectors,
            [[0.0, 0.0]],
            "nothing is like nothing"
        );
        for (body, count, dimensions, expected) in [
            ("<html>", 1, None, "the vectors could not be read"),
            ("{}", 1, None, "the vectors could not be read"),
            (r#"{"data":[{"embedding":["a"]}]}"#, 1, None, "the vectors could not be read"),
            (r#"{"data":[{"embedding":[1e999]}]}"#, 1, None, "the vectors could not be read"),
            (r#"{"data":[{"embedding":[1e300]}]}"#, 1, None, "a vector has a component that is not a number"),
            (r#"{"data":[]}"#, 1, None, "0 vectors came for 1 texts"),
            (r#"{"data":[{"embedding":[]}]}"#, 1, None, "two vectors came for one text, or an empty one"),
            (
                r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
                2,
                None,
                "two vectors came for one text, or an empty one",
            ),
            (r#"{"data":[{"index":7,"embedding":[1]}]}"#, 1, None, "two vectors came for one text, or an empty one"),
            (r#"{"data":[{"embedding":[1]},{"embedding":[1,2]}]}"#, 2, None, "the vectors are not of one length"),
            (r#"{"data":[{"embedding":[1,2]}]}"#, 1, Some(3), "the vectors have 2 numbers where 3 were asked for"),
        ] {
            let fault = read(body.as_bytes(), count, dimensions).unwrap_err();
            assert!(fault.message.starts_with(expected), "{body}: {}", fault.message);
        }
    }
}
