//! The words that begin a part of an answer in the ReAct format.

/// What a marker begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Thought,
    Action,
    Input,
    Observation,
    Answer,
}

/// What the beginning of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A marker: its length in bytes, and whether it is set in bold, so that a closing `**` may follow.
    Marker {
        kind: Kind,
        length: usize,
        bold: bool,
    },
    /// It may become one.
    Maybe,
    No,
}

/// In English and Chinese; where one begins with another, the longer one stands first.
const NAMES: &[(&str, Kind)] = &[
    ("thought", Kind::Thought),
    ("思考", Kind::Thought),
    ("action input", Kind::Input),
    ("action", Kind::Action),
    ("行动输入", Kind::Input),
    ("行动", Kind::Action),
    ("动作输入", Kind::Input),
    ("动作", Kind::Action),
    ("observation", Kind::Observation),
    ("观察结果", Kind::Observation),
    ("观察", Kind::Observation),
    ("final answer", Kind::Answer),
    ("最终答案", Kind::Answer),
    ("最终回答", Kind::Answer),
];

/// What models put around a marker.
const DECORATION: [char; 7] = ['*', '_', '#', '>', '-', '`', ' '];
/// A line that has this many bytes and no marker yet holds none.
const LONGEST: usize = 64;

/// Reads the beginning of a line.
pub fn read(line: &str) -> Found {
    let text = line.trim_start_matches(|c| DECORATION.contains(&c) || c == '\t');
    let bold = line[..line.len() - text.len()].contains(['*', '_']);
    if line.len() > LONGEST && !line[..line.floor_char_boundary(LONGEST)].contains([':', '：']) {
        return Found::No;
    }
    // Models write them with a capital; in small letters they are words of an answer.
    if text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Found::No;
    }
    let mut found = Found::No;
    for (name, kind) in NAMES {
        let Some(after) = strip_prefix_ignoring_case(text, name) else {
            if strip_prefix_ignoring_case(name, text).is_some() {
                found = Found::Maybe;
            }
            continue;
        };
        // `Thought 2:` is how the format was first written.
        let after = after.trim_start_matches(|c: char| DECORATION.contains(&c) || c.is_ascii_digit());
        match after.chars().next() {
            Some(colon @ (':' | '：')) => {
                let length = line.len() - after.len() + colon.len_utf8();
                return Found::Marker { kind: *kind, length, bold };
            }
            None => found = Found::Maybe,
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
    fn markers_are_known_however_they_are_set() {
        for (line, kind, rest) in [
            ("Thought: hm", Kind::Thought, " hm"),
            ("  Action: x", Kind::Action, " x"),
            ("Action Input: {}", Kind::Input, " {}"),
            ("**Action Input:** {}", Kind::Input, "** {}"),
            ("**Action**: x", Kind::Action, " x"),
            ("### Final Answer: 1", Kind::Answer, " 1"),
            ("Final answer：是", Kind::Answer, "是"),
            ("行动：x", Kind::Action, "x"),
            ("**行动输入**：{}", Kind::Input, "{}"),
            ("最终答案: 好", Kind::Answer, " 好"),
            ("OBSERVATION: x", Kind::Observation, " x"),
            ("观察结果：x", Kind::Observation, "x"),
            ("Thought 2: x", Kind::Thought, " x"),
            ("- Action: x", Kind::Action, " x"),
        ] {
            let Found::Marker { kind: found, length, bold } = read(line) else { panic!("{line}: no marker") };
            assert_eq!((found, &line[length..], bold), (kind, rest, line.contains('*')), "{line}");
            // While the line arrives, it is never taken to hold none.
            for (end, _) in line.char_indices().take_while(|(end, _)| *end < length) {
                assert_eq!(read(&line[..end]), Found::Maybe, "{:?}", &line[..end]);
            }
        }
    }

    #[test]
    fn other_lines_hold_none() {
        for line in [
            "Thoughts on this: x",
            "Actions: x",
            "action: x",
            "The Action: x",
            "I think",
            "Final",
            "Final Answers",
            "行为：x",
            "{\"Action\": 1}",
        ] {
            let whole = read(&format!("{line}\n"));
            assert_eq!(whole, Found::No, "{line}");
        }
        assert_eq!(read(&" ".repeat(70)), Found::No);
    }
}
