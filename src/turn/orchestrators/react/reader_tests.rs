use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, required: &[&str]| ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({"type": "object", "required": required,
                           "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}),
    };
    vec![tool("list_dir", &["path"]), tool("read_file", &["path"]), tool("write_file", &["path", "content"])]
}

/// Returns the parsed answer and the shown thoughts for a text that arrives in pieces of `size` characters.
fn read_in(size: usize, text: &str, is_cut: bool) -> (ReactAnswer, String) {
    let tools = tools();
    let mut reader = ReactReader::new(&tools);
    let mut pieces = Vec::new();
    for chunk in text.chars().collect::<Vec<_>>().chunks(size) {
        pieces.extend(reader.push(&chunk.iter().collect::<String>()));
    }
    let (read, rest) = reader.finish(is_cut);
    pieces.extend(rest);
    let mut thought = String::new();
    let (mut answer, mut called) = (String::new(), Vec::new());
    for piece in pieces {
        match piece {
            ReactPiece::Thought(text) => thought += &text,
            ReactPiece::Text(text) => answer += &text,
            ReactPiece::Call { id, name } => called.push((id, name)),
            ReactPiece::Void => {
                thought.clear();
                answer.clear();
            }
        }
    }
    let calls: Vec<_> = read.calls.iter().map(|call| (call.id.clone(), call.name.clone())).collect();
    assert_eq!(called, calls, "what was shown of the calls is what they are: {text}");
    if !calls.is_empty() {
        assert_eq!(answer, "", "beside calls nothing is shown as the answer: {text}");
    } else {
        assert_eq!(answer.trim(), read.answer, "{text}");
    }
    (read, thought.trim().to_owned())
}

/// `thought | name arguments, … | answer`
fn written(read: &ReactAnswer) -> String {
    let calls: Vec<_> = read.calls.iter().map(|call| format!("{} {}", call.name, call.arguments)).collect();
    format!("{} | {} | {}", read.thought, calls.join(", "), read.answer)
}

const TABLE: &[(&str, &str)] = &[
    // The format as the prompt describes it.
    ("Thought: I look.\nAction: list_dir\nAction Input: {\"path\": \".\"}", "I look. | list_dir {\"path\":\".\"} | "),
    ("Thought: I know.\nFinal Answer: It is 4.", "I know. |  | It is 4."),
    (
        "Final Answer: first\n\nsecond\n- third: Thought: x\nAction: none",
        " |  | first\n\nsecond\n- third: Thought: x\nAction: none",
    ),
    // Text that the model invents is cut off.
    (
        "Action: list_dir\nAction Input: {\"path\": \".\"}\nObservation: a.txt\nThought: done\nFinal Answer: a.txt",
        " | list_dir {\"path\":\".\"} | ",
    ),
    ("Action: list_dir\nAction Input: .\nFinal Answer: surely nothing", " | list_dir {\"path\":\".\"} | "),
    // No marker at all.
    ("Just an answer.\nIn two lines.", " |  | Just an answer.\nIn two lines."),
    ("", " |  | "),
    ("<b>Action</b> is a word, Action: too", " |  | <b>Action</b> is a word, Action: too"),
    // Variants that models write.
    (
        "**Thought:** I look.\n**Action:** `list_dir`\n**Action Input:** {\"path\": \".\"}",
        "I look. | list_dir {\"path\":\".\"} | ",
    ),
    ("**Final Answer:** **yes**, it is", " |  | **yes**, it is"),
    ("Final Answer: **yes**, it is", " |  | **yes**, it is"),
    ("思考：看一下。\n行动：list_dir\n行动输入：{\"path\": \"笔记\"}", "看一下。 | list_dir {\"path\":\"笔记\"} | "),
    ("思考：够了。\n最终答案：共三个文件。\n第二行", "够了。 |  | 共三个文件。\n第二行"),
    (
        "Thought: x\nAction: read_file\nAction Input:\n```json\n{\"path\": \"a\"}\n```\n",
        "x | read_file {\"path\":\"a\"} | ",
    ),
    ("Action: read_file(\"a.txt\")", " | read_file {\"path\":\"a.txt\"} | "),
    ("Action: Read File\nAction Input: a.txt", " | read_file {\"path\":\"a.txt\"} | "),
    ("Action: read_file[a.txt]\n", " | read_file {\"path\":\"a.txt\"} | "),
    ("Action: read_file\n{\"path\": \"a\"}", " | read_file {\"path\":\"a\"} | "),
    ("Action:\nread_file\nAction Input: a", " | read_file {\"path\":\"a\"} | "),
    ("Action: I will use list_dir now.\nAction Input: .", " | list_dir {\"path\":\".\"} | "),
    (
        "Action:\n```json\n{\"action\": \"read_file\", \"action_input\": {\"path\": \"a\"}}\n```",
        " | read_file {\"path\":\"a\"} | ",
    ),
    (
        "I look first. Action: list_dir\nAction Input: .",
        "I look first. Action: list_dir | list_dir {\"path\":\".\"} | ",
    ),
    ("I look first.\nAction: list_dir\nAction Input: .", "I look first. | list_dir {\"path\":\".\"} | "),
    (
        "Action: list_dir\nAction Input: a\nAction: list_dir\nAction Input: b\nThought: and\nAction: read_file\nAction Input: c",
        "and | list_dir {\"path\":\"a\"}, list_dir {\"path\":\"b\"}, read_file {\"path\":\"c\"} | ",
    ),
    // A marker within an argument is text.
    (
        "Action: write_file\nAction Input: {\"path\": \"a\", \"content\": \"one\nThought: two\nAction: three\"}\nObservation: ok",
        " | write_file {\"content\":\"one\\nThought: two\\nAction: three\",\"path\":\"a\"} | ",
    ),
    ("Action: write_file\nAction Input: {\"path\": \"a\nObservation: ok", " | write_file {\"path\": \"a | "),
    // A call that cannot run stays a call, so that the model gets the error.
    ("Action: search\nAction Input: cats", " | search {\"input\":\"cats\"} | "),
    ("Thought: x\nAction: search\n", "x | search {} | "),
    ("Action: write_file\nAction Input: a.txt", " | write_file a.txt | "),
    // No action is intended.
    ("Thought: enough.\nAction: None\nFinal Answer: 4", "enough. |  | 4"),
    ("Thought: enough.\nAction: None\nAction Input: None\nFinal Answer: 4", "enough.\nNone |  | 4"),
    ("Action: Final Answer\nAction Input: 42", " |  | 42"),
    ("Thought: I know it. Final Answer: 4", " |  | 4"),
    ("Thought: It is 4.", " |  | It is 4."),
    ("Thought: It is 4.\nFinal Answer:", " |  | It is 4."),
    ("Plan:\nThought: easy\nIt is 4.", " |  | Plan:\nThought: easy\nIt is 4."),
    ("Steps:\nAction: buy milk\nthen go", " |  | Steps:\nAction: buy milk\nthen go"),
    ("Thought: a\nObservation: b\nFinal Answer: c", "a\nb |  | c"),
];

#[test]
fn answers_are_parsed() {
    for (text, expected) in TABLE {
        assert_eq!(written(&read_in(usize::MAX, text, false).0), *expected, "{text:?}");
    }
}

#[test]
fn a_long_answer_without_markers_is_streamed() {
    let tools = tools();
    let mut reader = ReactReader::new(&tools);
    let long = "word ".repeat(200);
    assert_eq!(reader.push(&long), [ReactPiece::Text(long.clone())]);
    assert_eq!(reader.push("more"), [ReactPiece::Text("more".to_owned())]);
    let pieces = reader.push("\nAction: list_dir\n");
    assert!(
        matches!(
            &pieces[..],
            [ReactPiece::Text(_), ReactPiece::Void, ReactPiece::Thought(_), ReactPiece::Call { .. }]
                | [ReactPiece::Void, ReactPiece::Thought(_), ReactPiece::Call { .. }]
        ),
        "{pieces:?}"
    );
}

#[test]
fn a_call_that_was_cut_off_cannot_run() {
    for (text, expected) in [
        ("Action: list_dir\nAction Input: {\"path\": \".\"}", " | list_dir {\"path\":\".\"} | "),
        ("Action: list_dir\nAction Input: /ho", " | list_dir /ho (cut off) | "),
        ("Action: list_dir\nAction Input: {\"path\": \"/ho", " | list_dir {\"path\": \"/ho (cut off) | "),
        ("Action: list_dir", " | list_dir  (cut off) | "),
        ("Action: list_dir\nAction Input: .\nObservation: a.t", " | list_dir {\"path\":\".\"} | "),
    ] {
        assert_eq!(written(&read_in(usize::MAX, text, true).0), expected, "{text:?}");
    }
}

#[test]
fn the_number_of_calls_is_bounded() {
    let (read, _) = read_in(usize::MAX, &"Action: list_dir\nAction Input: .\n".repeat(MOST_CALLS + 5), false);
    assert_eq!(read.calls.len(), MOST_CALLS);
}

proptest! {
    #[test]
    fn any_split_is_read_the_same(
        lines in prop::collection::vec(prop::sample::select(vec![
            "Thought: hm", "**Thought:** hm", "Action: list_dir", "Action:", "Action: buy milk", "Action Input: {\"path\": \".\"}",
            "Action Input: {\"path\": ", "Observation: x", "Final Answer: 4", "**Final Answer:** ", "行动：read_file", "行动输入：a", "words",
            "", "Final", "**", "Action: None", "Action: Final Answer", "```",
        ]), 0..8),
        size in 1usize..9,
    ) {
        let text = lines.join("\n");
        let (whole, shown) = read_in(usize::MAX, &text, false);
        let (pieces, shown_in_pieces) = read_in(size, &text, false);
        prop_assert_eq!(written(&whole), written(&pieces));
        prop_assert_eq!(shown, shown_in_pieces);
    }
}
