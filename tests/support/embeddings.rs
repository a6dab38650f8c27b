//! A recording embedding server on loopback that speaks OpenAI's API. It computes vectors from the words of a text: texts
//! that share words are near, and synonyms can be configured. Unit tests use it too.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Default dimensions of a vector.
const DIMENSIONS: usize = 64;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingRequest {
    pub model: String,
    pub texts: Vec<String>,
    pub dimensions: Option<usize>,
}

type Rule = Box<dyn Fn(&EmbeddingRequest) -> Option<u16> + Send + Sync>;

#[derive(Default)]
struct Record {
    /// Each word with the word that it counts as.
    alike: BTreeMap<String, String>,
    is_crowded: bool,
    rule: Option<Rule>,
    requests: Vec<EmbeddingRequest>,
}

struct Shared {
    record: Mutex<Record>,
    is_open: watch::Sender<bool>,
}

/// The running server; it stops when dropped.
pub struct Embeddings {
    shared: Arc<Shared>,
    port: u16,
    server: AbortHandle,
}

impl Drop for Embeddings {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Embeddings {
    pub async fn start() -> Self {
        let shared = Arc::new(Shared { record: Mutex::default(), is_open: watch::Sender::new(true) });
        let app = Router::new().route("/v1/embeddings", post(answer)).with_state(shared.clone());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port on loopback");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let server = tokio::spawn(async move { axum::serve(listener, app).await }).abort_handle();
        Self { shared, port, server }
    }

    /// Returns the value for `providers.NAME.base_url`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Treats these words as synonyms from now on.
    pub fn alike(&self, words: &[&str]) {
        let mut record = self.shared.record.lock();
        for word in words {
            record.alike.insert((*word).to_owned(), words[0].to_owned());
        }
    }

    /// Makes vectors crowded from now on, as those of many models are: texts of one language are similar, and short texts even more so.
    pub fn crowd(&self) {
        self.shared.record.lock().is_crowded = true;
    }

    /// Answers requests from now on with the status that the rule returns, if it returns one.
    pub fn refuse(&self, rule: impl Fn(&EmbeddingRequest) -> Option<u16> + Send + Sync + 'static) {
        self.shared.record.lock().rule = Some(Box::new(rule));
    }

    /// Holds answers back, or lets them continue.
    pub fn hold(&self, holds: bool) {
        self.shared.is_open.send_replace(!holds);
    }

    /// Returns every request so far, including refused ones.
    pub fn requests(&self) -> Vec<EmbeddingRequest> {
        self.shared.record.lock().requests.clone()
    }

    /// Returns every requested text, in order.
    pub fn texts(&self) -> Vec<String> {
        self.requests().into_iter().flat_map(|asked| asked.texts).collect()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, axum::Json(body): axum::Json<Value>) -> Response {
    let texts = body["input"].as_array().expect("a list of texts").iter();
    let asked = EmbeddingRequest {
        model: body["model"].as_str().expect("a model").to_owned(),
        texts: texts.map(|text| text.as_str().expect("a text").to_owned()).collect(),
        dimensions: body["dimensions"].as_u64().and_then(|count| usize::try_from(count).ok()),
    };
    let refused = {
        let mut record = shared.record.lock();
        record.requests.push(asked.clone());
        record.rule.as_ref().and_then(|rule| rule(&asked))
    };
    let mut open = shared.is_open.subscribe();
    open.wait_for(|is_open| *is_open).await.expect("the server lives");
    if let Some(status) = refused {
        let status = StatusCode::from_u16(status).expect("a rule's status is one");
        return (status, axum::Json(json!({"error": {"message": "scripted refusal"}}))).into_response();
    }
    let record = shared.record.lock();
    let vectors = asked.texts.iter().map(|text| {
        let all = |text: &str| vector(text, &asked, &record.alike);
        if record.is_crowded { crowded(all(&weighty(text)), text) } else { all(text) }
    });
    let vectors = vectors.enumerate();
    // The order differs from that of the texts, as a service's may.
    let data: Vec<Value> =
        vectors.map(|(index, embedding)| json!({"index": index, "embedding": embedding})).rev().collect();
    let tokens: usize = asked.texts.iter().map(|text| words(text).count()).sum();
    axum::Json(json!({"object": "list", "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}))
        .into_response()
}

/// Returns a text without stop words, because embedding models give these little weight.
fn weighty(text: &str) -> String {
    const LIGHT: [&str; 9] = ["what", "where", "which", "with", "when", "does", "that", "this", "they"];
    const LIGHT_CHARACTERS: &str = "的了是在我你他她们吗呢什么怎这那个有和一不";
    let is_light = |word: &String| {
        (word.is_ascii() && word.len() < 4)
            || LIGHT.contains(&word.as_str())
            || LIGHT_CHARACTERS.contains(word.as_str())
    };
    words(text).filter(|word| !is_light(word)).collect::<Vec<_>>().join(" ")
}

/// Adds a part that all texts of a language share: as long as the rest of the vector, or twice as long for short texts.
fn crowded(mut vector: Vec<f32>, text: &str) -> Vec<f32> {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    let is_short = words(text).count() < if text.is_ascii() { 5 } else { 8 };
    let shared = length * if is_short { 2.0 } else { 1.0 } / (vector.len() as f32 / 2.0).sqrt();
    for number in vector.iter_mut().skip(usize::from(text.is_ascii())).step_by(2) {
        *number += shared;
    }
    vector
}

/// Maps each word to a position and a sign, which differ between models.
fn vector(text: &str, asked: &EmbeddingRequest, alike: &BTreeMap<String, String>) -> Vec<f32> {
    let size = asked.dimensions.unwrap_or(DIMENSIONS);
    let mut vector = vec![0.0; size];
    for word in words(text) {
        let word = alike.get(&word).unwrap_or(&word);
        let hash = asked
            .model
            .bytes()
            .chain(word.bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let place = usize::try_from((hash >> 20) % size as u64).expect("less than the size");
        vector[place] += if hash & (1 << 13) == 0 { 1.0 } else { -1.0 };
    }
    vector
}

/// Returns the words of a text in lower case. In non-ASCII text, each letter is a word.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let is_part = |char: char| char.is_ascii_alphanumeric();
    text.split(move |char: char| char.is_ascii() && !is_part(char)).filter(|word| !word.is_empty()).flat_map(
        move |word| {
            if word.is_ascii() { vec![word.to_lowercase()] } else { word.chars().map(String::from).collect() }
        },
    )
}
