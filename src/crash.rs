//! Fail points, in debug builds only: `DAOYOU_CRASH_AT=NAME` kills the process with SIGKILL where NAME stands,
//! `NAME:N` at its N-th passing, `NAME=TEXT` only where the point's detail holds TEXT. Release builds know none.

/// Dies here if the environment asks for it. `detail` is what `NAME=TEXT` looks into, e.g. the message's text.
#[cfg(debug_assertions)]
pub fn point(name: &str, detail: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ORDER: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("DAOYOU_CRASH_AT").ok());
    static PASSED: AtomicU64 = AtomicU64::new(0);

    let Some(order) = ORDER.as_deref() else { return };
    let due = if let Some((at, text)) = order.split_once('=') {
        at == name && detail.contains(text)
    } else if let Some((at, count)) = order.split_once(':') {
        at == name && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == count.parse().unwrap_or(1)
    } else {
        order == name
    };
    if due {
        // Nothing of ours runs after this: no drop, no flush, as if the power of this process were cut.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::park();
    }
}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_name: &str, _detail: &str) {}
