//! The order in which the chain calls middleware, and which middleware receives an error.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use daoyou_channels::SessionKey;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Middleware, MiddlewareChain, MiddlewareName, TurnRun};
use crate::metrics::TurnMetrics;
use crate::phrases::Phrases;
use crate::text::Language;
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::turn_loop::{TurnRunOutcome, TurnScope};

type Seen = Arc<Mutex<Vec<String>>>;

/// The behaviour of a test middleware, besides adding its name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Nothing,
    FailsBefore,
    FailsAfter,
    ChangesError,
}

struct Layer {
    name: &'static str,
    does: Does,
    seen: Seen,
}

impl Layer {
    fn note(&self, what: &str) {
        self.seen.lock().unwrap().push(format!("{what} {}", self.name));
    }
}

fn answered(reply: String) -> TurnRunOutcome {
    TurnRunOutcome::Answered(reply)
}

fn reply(end: TurnRunOutcome) -> String {
    match end {
        TurnRunOutcome::Answered(reply) => reply,
        TurnRunOutcome::Parked { .. } => "at rest".to_owned(),
    }
}

fn failed(operation: &'static str) -> TurnError {
    TurnError::new(ErrorCode::Internal, operation)
}

#[async_trait]
impl Middleware<TurnRun> for Layer {
    async fn before(&self, _: &TurnScope<'_>, mut request: String) -> Result<String, TurnError> {
        self.note("before");
        request.push_str(self.name);
        if self.does == Does::FailsBefore { Err(failed("before")) } else { Ok(request) }
    }

    async fn after(&self, _: &TurnScope<'_>, end: TurnRunOutcome) -> Result<TurnRunOutcome, TurnError> {
        self.note("after");
        let end = answered(reply(end) + self.name);
        if self.does == Does::FailsAfter { Err(failed("after")) } else { Ok(end) }
    }

    async fn on_error(&self, _: &TurnScope<'_>, error: TurnError) -> TurnError {
        self.note("error");
        if self.does == Does::ChangesError { TurnError::new(error.code, "changed") } else { error }
    }
}

/// Returns the result, and the names of the called middleware in order.
async fn run(layers: &[(&'static str, Does)], fails: bool) -> (Result<String, &'static str>, String) {
    let seen = Seen::default();
    let mut chain = MiddlewareChain::default();
    for (name, does) in layers.iter().copied() {
        chain.push(MiddlewareName::Logging, Arc::new(Layer { name, does, seen: seen.clone() }));
    }
    let (metrics, session) = (TurnMetrics::default(), SessionKey::from("cli:direct"));
    let meter = metrics.meter();
    let (deadline, phrases) = (Instant::now(), Phrases::of(Language::En));
    let context = TurnScope { session: &session, turn: Uuid::nil(), deadline, meter: &meter, phrases };
    let operation = |request: String| {
        seen.lock().unwrap().push("handle".to_owned());
        std::future::ready(if fails { Err(failed("handler")) } else { Ok(answered(format!("<{request}>"))) })
    };
    let answer = chain.run(&context, "t".to_owned(), operation).await;
    let calls = seen.lock().unwrap().join(", ");
    (answer.map(reply).map_err(|error| error.operation), calls)
}

#[tokio::test]
async fn middleware_runs_in_order_before_and_in_reverse_after() {
    use Does::{ChangesError, FailsAfter, FailsBefore, Nothing};
    type Row = ([Does; 3], bool, Result<&'static str, &'static str>, &'static str);
    let table: [Row; 6] = [
        ([Nothing; 3], false, Ok("<tabc>cba"), "before a, before b, before c, handle, after c, after b, after a"),
        ([Nothing, FailsBefore, Nothing], false, Err("before"), "before a, before b, error a, error b"),
        ([FailsBefore, Nothing, Nothing], false, Err("before"), "before a, error a"),
        ([Nothing; 3], true, Err("handler"), "before a, before b, before c, handle, error a, error b, error c"),
        (
            [Nothing, FailsAfter, Nothing],
            false,
            Err("after"),
            "before a, before b, before c, handle, after c, after b, error a, error b, error c",
        ),
        (
            [Nothing, ChangesError, Nothing],
            true,
            Err("changed"),
            "before a, before b, before c, handle, error a, error b, error c",
        ),
    ];
    for (does, fails, expected, called) in table {
        let layers = [("a", does[0]), ("b", does[1]), ("c", does[2])];
        let (answer, calls) = run(&layers, fails).await;
        assert_eq!((answer, calls.as_str()), (expected.map(str::to_owned), called), "{does:?}");
    }
    assert_eq!(run(&[], false).await, (Ok("<t>".to_owned()), "handle".to_owned()));
}
