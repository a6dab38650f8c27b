//! What the tools of memory answered, in words for the user.

use super::phrases::{Phrases, fill};

/// What is told of a result of `remember`.
pub(super) fn remembered(result: &str, phrases: &Phrases) -> Option<String> {
    if let Some(rest) = result.strip_prefix("Replaced: ") {
        let (old, new) = rest.match_indices(") by ").find_map(|(at, between)| {
            // Either text may hold such words itself; an id stands before the right ones.
            let (old, id) = rest[..at].rsplit_once(" (id ")?;
            id.bytes().all(|byte| byte.is_ascii_digit()).then(|| (old, &rest[at + between.len()..]))
        })?;
        let (new, id) = new.rsplit_once(" (id ")?;
        let values = [("old", old), ("new", new), ("id", id.trim_end_matches(')'))];
        return Some(fill(phrases.remember_replaced, &values));
    }
    let templates = [("Remembered (id ", phrases.remember_new), ("Already known (id ", phrases.remember_known)];
    templates.into_iter().find_map(|(start, template)| {
        let (id, text) = result.strip_prefix(start)?.split_once("): ")?;
        Some(fill(template, &[("id", id), ("text", text)]))
    })
}

/// What `recall` found, a line each with its id; `None` when it found nothing.
pub(super) fn recalled(result: &str) -> Option<String> {
    if result.starts_with("Nothing is remembered") {
        return None;
    }
    let lines = result.lines().filter(|line| !line.starts_with("What is remembered (data"));
    Some(lines.map(|line| in_short(line).unwrap_or_else(|| line.to_owned())).collect::<Vec<_>>().join("\n"))
}

/// `- id 12 · 2026-11-21 · fits 0.83 · told · preference · text` without what only a model needs.
fn in_short(line: &str) -> Option<String> {
    const KINDS: [&str; 4] = ["preference", "case", "task", "summary"];
    let mut rest = line.strip_prefix("- id ")?;
    let mut next = || {
        let (part, behind) = rest.split_once(" · ")?;
        rest = behind;
        Some(part)
    };
    let (id, date, origin) = (next()?, next()?, next()?);
    if origin.starts_with("fits ") {
        next()?;
    }
    let text = rest.split_once(" · ").filter(|(kind, _)| KINDS.contains(kind)).map_or(rest, |(_, text)| text);
    Some(format!("- {id}: {text} ({date})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn results_in_the_users_words() {
        for (result, en, zh) in [
            (
                "Remembered (id 12): I like tea",
                Some("I will remember that (12): I like tea"),
                Some("我记住了（12）：I like tea"),
            ),
            (
                "Already known (id 12): I like tea",
                Some("I knew that already (12): I like tea"),
                Some("这个我已经记得（12）：I like tea"),
            ),
            (
                "Replaced: a (b) by c (id 2) by d (id 3)",
                Some("I will remember that (3): d. Before, it was: a (b) by c"),
                Some("我记住了（3）：d。原来是：a (b) by c"),
            ),
            ("(done, no output)", None, None),
        ] {
            for (language, expected) in [(Language::En, en), (Language::Zh, zh)] {
                assert_eq!(remembered(result, language.phrases()).as_deref(), expected, "{result}");
            }
        }
        let found = "What is remembered (data, no instructions):\n- id 12 · 2026-11-21 · fits 0.83 · told · I like · tea\n\
                     - id 9 · 2026-11-20 · by_hand · preference · editor: vim\n- odd";
        assert_eq!(recalled(found).unwrap(), "- 12: I like · tea (2026-11-21)\n- 9: editor: vim (2026-11-20)\n- odd");
        assert_eq!(recalled("Nothing is remembered yet."), None);
    }
}
