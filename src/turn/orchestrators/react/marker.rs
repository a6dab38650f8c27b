//! The markers that begin a section of an answer in the ReAct format.

/// The section that a marker begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerKind {
    Thought,
    Action,
    Input,
    Observation,
    Answer,
}

/// The classification of the beginning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerMatch {
    /// A marker, with its length in bytes and whether it is bold: a closing `**` may follow a bold one.
    Marker {
        kind: MarkerKind,
        length: usize,
        bold: bool,
    },
    /// The line may become a marker.
    Maybe,
    No,
}

/// English and Chinese markers. Of two markers with the same beginning, the longer one comes first.
const NAMES: &[(&str, MarkerKind)] = &[
    ("thought", MarkerKind::Thought),
    ("思考", MarkerKind::Thought),
    ("action input", MarkerKind::Input),
    ("action", MarkerKind::Action),
    ("行动输入", MarkerKind::Input),
    ("行动", MarkerKind::Action),
    ("动作输入", MarkerKind::Input),
    ("动作", MarkerKind::Action),
    ("observation", MarkerKind::Observation),
    ("观察结果", MarkerKind::Observation),
    ("观察", MarkerKind::Observation),
    ("final answer", MarkerKind::Answer),
    ("最终答案", MarkerKind::Answer),
    ("最终回答", MarkerKind::Answer),
];

/// Characters that models put around a marker.
const DECORATION: [char; 7] = ['*', '_', '#', '>', '-', '`', ' '];
/// A line of this many bytes without a marker contains none.
const LONGEST: usize = 64;

/// Classifies the beginning of a line.
pub fn read(line: &str) -> MarkerMatch {
    let text = line.trim_start_matches(|c| DECORATION.contains(&c) || c == '\t');
    let bold = line[..line.len() - text.len()].contains(['*', '_']);
    if line.len() > LONGEST && !line[..line.floor_char_boundary(LONGEST)].contains([':', '：']) {
        return MarkerMatch::No;
    }
    // Models capitalise markers; a lower-case word belongs to the answer.
    if text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return MarkerMatch::No;
    }
    let mut found = MarkerMatch::No;
    for (name, kind) in NAMES {
        let Some(after) = strip_prefix_ignoring_case(text, name) else {
            if strip_prefix_ignoring_case(name, text).is_some() {
                found = MarkerMatch::Maybe;
            }
            continue;
        };
        // The original format numbers its markers: `Thought 2:`.
        let after = after.trim_start_matches(|c: char| DECORATION.contains(&c) || c.is_ascii_digit());
        match after.chars().next() {
            Some(colon @ (':' | '：')) => {
                let length = line.len() - after.len() + colon.len_utf8();
                return MarkerMatch::Marker { kind: *kind, length, bold };
            }
            None => found = MarkerMatch::Maybe,
            Some(_) => {}
        }
    }
    found
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, tail) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_recognised_in_every_decoration() {
        for (line, kind, rest) in [
            ("Thought: hm", MarkerKind::Thought, " hm"),
            ("  Action: x", MarkerKind::Action, " x"),
            ("Action Input: {}", MarkerKind::Input, " {}"),
            ("**Action Input:** {}", MarkerKind::Input, "** {}"),
            ("**Action**: x", MarkerKind::Action, " x"),
            ("### Final Answer: 1", MarkerKind::Answer, " 1"),
            ("Final answer：是", MarkerKind::Answer, "是"),
            ("行动：x", MarkerKind::Action, "x"),
            ("**行动输入**：{}", MarkerKind::Input, "{}"),
            ("最终答案: 好", MarkerKind::Answer, " 好"),
            ("OBSERVATION: x", MarkerKind::Observation, " x"),
            ("观察结果：x", MarkerKind::Observation, "x"),
            ("Thought 2: x", MarkerKind::Thought, " x"),
            ("- Action: x", MarkerKind::Action, " x"),
        ] {
            let MarkerMatch::Marker { kind: found, length, bold } = read(line) else { panic!("{line}: no marker") };
            assert_eq!((found, &line[length..], bold), (kind, rest, line.contains('*')), "{line}");
            // While the marker arrives, the line is never classified as having none.
            for (end, _) in line.char_indices().take_while(|(end, _)| *end < length) {
                assert_eq!(read(&line[..end]), MarkerMatch::Maybe, "{:?}", &line[..end]);
            }
        }
    }

    #[test]
    fn other_lines_have_no_marker() {
        for line in [
            "Thoughts on this: x", "Actions: x", "action: x", "The Action: x", "I think", "Final", "Final Answers",
            "行为：x", "{\"Action\": 1}",
        ] {
            let whole = read(&format!("{line}\n"));
            assert_eq!(whole, MarkerMatch::No, "{line}");
        }
        assert_eq!(read(&" ".repeat(70)), MarkerMatch::No);
    }
}
