//! Files and folders that swap places while they are in use.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Swaps two names repeatedly. Both names exist at every moment, so that no write creates a folder in between.
pub struct Swapper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Swapper {
    pub fn start(one: PathBuf, other: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut swaps = 0_usize;
            while !stopped.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("both names exist");
                swaps += 1;
            }
            swaps
        });
        Self { stop, thread }
    }

    /// Stops and returns the number of swaps.
    pub fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the names can be swapped")
    }
}
