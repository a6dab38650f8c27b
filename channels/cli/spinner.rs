//! The spinner, and durations for display.

use std::time::Duration;

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// How long each frame is shown.
pub(super) const FRAME: Duration = Duration::from_millis(100);

/// Returns the spinner's frame after `elapsed`.
pub(super) fn frame(elapsed: Duration) -> &'static str {
    let number = elapsed.as_millis() / FRAME.as_millis();
    FRAMES[usize::try_from(number).unwrap_or(0) % FRAMES.len()]
}

/// Formats a duration: `0.4s`, `12s`, `3m05s`.
pub(super) fn span(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        0..10 => format!("{:.1}s", elapsed.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds}s"),
        seconds => format!("{}m{:02}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (ms, words) in [(40, "0.0s"), (1_240, "1.2s"), (12_900, "12s"), (185_000, "3m05s")] {
            assert_eq!(span(Duration::from_millis(ms)), words);
        }
    }
}
