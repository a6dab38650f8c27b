//! Findings, one a line, with how to mend each below it.

use std::io::{self, IsTerminal, Write};

use daoyou_channels::{Finding, Verdict};

/// Prints them in their order, in colour where that is seen.
pub fn list(findings: &[Finding], mut out: impl Write) -> io::Result<()> {
    let colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let width = findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or_default();
    for Finding { name, state, message, mend, fixed } in findings {
        let word = format!("{state:4}");
        let word = match state {
            _ if !colours => word,
            Verdict::Ok => format!("\x1b[32m{word}\x1b[0m"),
            Verdict::Warn => format!("\x1b[33m{word}\x1b[0m"),
            Verdict::Fail => format!("\x1b[31m{word}\x1b[0m"),
        };
        let (first, second) = match (fixed, mend) {
            (Some(done), _) => (format!("mended: {done}"), Some(format!("was: {message}"))),
            (None, mend) => (message.clone(), mend.as_ref().map(|mend| format!("mend: {mend}"))),
        };
        writeln!(out, "{word}  {name:width$}  {}", safe(&first))?;
        if let Some(second) = second {
            writeln!(out, "{:indent$}{}", "", safe(&second), indent = width + 8)?;
        }
    }
    Ok(())
}

/// A terminal obeys control characters, and some of these words are a service's.
fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
