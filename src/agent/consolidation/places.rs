//! The conversations that are told at the moment: so many at once, none twice.

use std::collections::HashSet;
use std::future::Future;

use tokio::task::{JoinError, JoinSet};

/// Conversations that are told at the same time.
const AT_ONCE: usize = 2;

/// What is told, by session and epoch.
pub(super) type Place = (String, i64);

/// The tasks that tell them.
#[derive(Default)]
pub(super) struct Places {
    /// What is told at the moment, and what ended unexpectedly.
    taken: HashSet<Place>,
    tasks: JoinSet<Place>,
}

impl Places {
    /// Whether one more may begin. One that ended unexpectedly holds its own place, and nobody else's.
    pub fn has_room(&self) -> bool {
        self.tasks.len() < AT_ONCE
    }

    /// Begins `telling`, unless its place is taken.
    pub fn begin(&mut self, place: Place, telling: impl Future<Output = ()> + Send + 'static) {
        if self.taken.insert(place.clone()) {
            self.tasks.spawn(async move {
                telling.await;
                place
            });
        }
    }

    /// Waits for the next end; `None` where nothing is told.
    pub async fn next_end(&mut self) -> Option<()> {
        match self.tasks.join_next().await? {
            Ok(place) => drop(self.taken.remove(&place)),
            // Its place stays taken until the next start: whatever it was would only come again.
            Err(error) => log(&error),
        }
        Some(())
    }

    /// Stops all of them.
    pub async fn shut_down(&mut self) {
        self.tasks.shutdown().await;
    }
}

fn log(error: &JoinError) {
    tracing::error!(%error, "a consolidation ended unexpectedly");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn who_panics_is_not_begun_again_and_holds_nobody_up() {
        let mut places = Places::default();
        let place = |n: i64| (format!("s{n}"), 0);
        for n in 0..2 {
            assert!(places.has_room());
            places.begin(place(n), async { panic!("as the test wants it") });
        }
        assert!(!places.has_room());
        while places.next_end().await.is_some() {}
        let told = Arc::new(AtomicU32::new(0));
        for n in [0, 1, 2, 2] {
            assert!(places.has_room(), "{n}");
            let told = told.clone();
            places.begin(place(n), async move {
                told.fetch_add(1, Ordering::Relaxed);
            });
        }
        while places.next_end().await.is_some() {}
        assert_eq!(told.load(Ordering::Relaxed), 1, "those that panicked rest, and nobody is told twice at once");
        places.begin(place(2), async {});
        assert_eq!(places.next_end().await, Some(()));
    }
}
