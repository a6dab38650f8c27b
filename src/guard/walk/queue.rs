//! The job queue of a walk, which several threads fill and empty.

use parking_lot::{Condvar, Mutex};

/// A queue of jobs that may add further jobs. The work ends when the queue is empty and no thread runs a job.
pub(super) struct WorkQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    jobs: Vec<T>,
    active: usize,
}

impl<T> WorkQueue<T> {
    pub(super) fn new(first: T) -> Self {
        Self { state: Mutex::new(State { jobs: vec![first], active: 0 }), changed: Condvar::new() }
    }

    /// Adds jobs. The last one is taken first, so that few folders are open at the same time.
    pub(super) fn extend(&self, jobs: impl IntoIterator<Item = T>) {
        self.state.lock().jobs.extend(jobs);
        self.changed.notify_all();
    }

    /// Returns the number of waiting jobs.
    pub(super) fn len(&self) -> usize {
        self.state.lock().jobs.len()
    }

    /// Runs jobs with `work` until none is left or `is_stopped` returns true.
    pub(super) fn run(&self, is_stopped: impl Fn() -> bool, mut work: impl FnMut(T)) {
        while let Some(job) = self.next(&is_stopped) {
            // Also ends the job if `work` panics: the other threads must not wait for it.
            scopeguard::defer! {
                self.state.lock().active -= 1;
                self.changed.notify_all();
            }
            work(job);
        }
    }

    fn next(&self, is_stopped: impl Fn() -> bool) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if is_stopped() {
                state.jobs.clear();
            }
            if let Some(job) = state.jobs.pop() {
                state.active += 1;
                return Some(job);
            }
            if state.active == 0 {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_work_is_done_and_a_stop_ends_it() {
        for (limit, expected) in [(usize::MAX, 1 + 4 + 16 + 64), (10, 10)] {
            let (queue, done) = (WorkQueue::new(0_u32), AtomicUsize::new(0));
            let work = |depth: u32| {
                done.fetch_add(1, Ordering::Relaxed);
                if depth < 3 {
                    queue.extend([depth + 1; 4]);
                }
            };
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| queue.run(|| done.load(Ordering::Relaxed) >= limit, work));
                }
            });
            let done = done.into_inner();
            assert!((expected..expected + 3).contains(&done), "{done}");
        }
    }

    #[test]
    fn a_panic_does_not_leave_others_waiting() {
        let queue = WorkQueue::new(true);
        let work = |first: bool| {
            if first {
                queue.extend([false, false]);
                panic!("this job fails");
            }
        };
        let ended = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(|| queue.run(|| false, work)));
            threads.map(|thread| thread.join().is_ok())
        });
        assert_eq!(ended.iter().filter(|ended| !**ended).count(), 1, "{ended:?}");
        assert_eq!(queue.len(), 0);
    }
}
