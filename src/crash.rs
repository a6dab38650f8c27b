//! Fail points, in debug builds only. `DAOYOU_CRASH_AT=NAME` kills the process with SIGKILL at the point NAME, `NAME:N` at
//! its N-th passing, `NAME=TEXT` only if the point's detail contains TEXT. `DAOYOU_STALL_AT` blocks the thread at that point
//! for ever instead. Release builds have no fail points.

/// Dies or blocks here if the environment asks for it. `NAME=TEXT` searches `detail`, for example the text of the message.
#[cfg(debug_assertions)]
pub fn point(name: &str, detail: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::AtomicU64;

    static CRASH: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("DAOYOU_CRASH_AT").ok());
    static STALL: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("DAOYOU_STALL_AT").ok());
    static CRASH_PASSED: AtomicU64 = AtomicU64::new(0);
    static STALL_PASSED: AtomicU64 = AtomicU64::new(0);

    if is_due(CRASH.as_deref(), name, detail, &CRASH_PASSED) {
        // As after a power failure, no code of this process runs any more: no drop, no flush.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::park();
    }
    if is_due(STALL.as_deref(), name, detail, &STALL_PASSED) {
        loop {
            std::thread::park();
        }
    }
}

#[cfg(debug_assertions)]
fn is_due(order: Option<&str>, name: &str, detail: &str, passed: &std::sync::atomic::AtomicU64) -> bool {
    use std::sync::atomic::Ordering;

    let Some(order) = order else { return false };
    if let Some((at, text)) = order.split_once('=') {
        at == name && detail.contains(text)
    } else if let Some((at, count)) = order.split_once(':') {
        at == name && passed.fetch_add(1, Ordering::SeqCst) + 1 == count.parse().unwrap_or(1)
    } else {
        order == name
    }
}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_name: &str, _detail: &str) {}
