//! SIGINT, shared between whoever owns the process's signals and a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Hands SIGINT to a terminal. While a turn runs the terminal's line editor is not there to take Ctrl-C, so it comes as
/// a signal, which belongs to the process.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// A turn runs here that nobody has interrupted yet.
    armed: AtomicBool,
    raised: Notify,
}

impl Interrupt {
    /// To be called for each SIGINT. True: a turn ran here and is being stopped, the signal has done its work. False:
    /// nothing to stop, or it is being stopped already; the signal means the process.
    pub fn raise(&self) -> bool {
        let taken = self.0.armed.swap(false, Ordering::AcqRel);
        if taken {
            self.0.raised.notify_one();
        }
        taken
    }

    /// A turn begins.
    pub(super) fn arm(&self) {
        self.0.armed.store(true, Ordering::Release);
    }

    /// It ended.
    pub(super) fn disarm(&self) {
        self.0.armed.store(false, Ordering::Release);
    }

    /// Completes when it was raised.
    pub(super) async fn raised(&self) {
        self.0.raised.notified().await;
    }
}
