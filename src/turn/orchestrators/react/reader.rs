//! A streaming parser of answers in the ReAct format: thoughts, calls and the final answer.

use uuid::Uuid;

use super::call::{WrittenCall, named};
use super::input::{JsonInput, read_json};
use super::marker::{self, MarkerKind, MarkerMatch};
use crate::chat::{ToolCall, ToolSpec};

/// The maximum number of calls of one answer; further ones are ignored.
const MOST_CALLS: usize = 32;
/// The number of bytes without a marker that are held back before they are shown as the answer.
const HELD: usize = 300;

/// A piece of an answer that can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReactPiece {
    Thought(String),
    Text(String),
    Call {
        id: String,
        name: String,
    },
    /// The shown text was not the answer; everything shown so far is void.
    Void,
}

/// A complete parsed answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReactAnswer {
    pub thought: String,
    /// The final answer; empty if there are calls.
    pub answer: String,
    pub calls: Vec<ToolCall>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    /// No marker has arrived.
    #[default]
    Open,
    Thought,
    Action,
    Input,
    Answer,
    /// The rest is invented: the result of a call that has not run, or an answer without that result.
    Over,
}

/// Parses one answer. A marker may arrive in any number of pieces.
#[derive(Default)]
pub struct ReactReader<'a> {
    tools: &'a [ToolSpec],
    section: Section,
    /// The beginning of a line, which may become a marker.
    held: String,
    in_line: bool,
    /// The current section has no text yet; the value says whether its marker is bold.
    fresh: Option<bool>,
    /// The whole text, for an answer that does not follow the format.
    raw: String,
    /// The end of the first marker in `raw`, if no text precedes it.
    body: usize,
    /// The number of bytes of `raw` that were shown before any marker.
    shown: usize,
    thought: String,
    answer: String,
    /// The text after the last `Action:`, until its tool is known.
    action: Option<String>,
    calls: Vec<WrittenCall>,
}

impl<'a> ReactReader<'a> {
    /// Creates a parser; `tools` are those of the prompt.
    pub fn new(tools: &'a [ToolSpec]) -> Self {
        Self { tools, ..Self::default() }
    }

    /// Returns true if the rest of the answer is ignored.
    pub fn is_over(&self) -> bool {
        self.section == Section::Over
    }

    /// Takes the next delta.
    pub fn push(&mut self, delta: &str) -> Vec<ReactPiece> {
        let mut pieces = Vec::new();
        for part in delta.split_inclusive('\n') {
            if self.is_over() {
                break;
            }
            self.raw.push_str(part);
            if self.in_line || self.section == Section::Answer {
                self.feed(part, &mut pieces);
            } else {
                self.held.push_str(part);
                self.read_line(&mut pieces);
            }
            self.in_line &= !part.ends_with('\n');
        }
        self.show_open(HELD, &mut pieces);
        pieces
    }

    /// Ends the answer. `is_cut` means that the service cut the answer at its length limit; a last call that may be incomplete
    /// cannot run then.
    pub fn finish(mut self, is_cut: bool) -> (ReactAnswer, Vec<ReactPiece>) {
        let mut pieces = Vec::new();
        let held = std::mem::take(&mut self.held);
        self.feed(&held, &mut pieces);
        self.end_action(&mut pieces);
        if matches!(self.section, Section::Action | Section::Input)
            && let Some(last) = self.calls.last_mut()
        {
            last.is_cut = is_cut;
        }
        let thought = self.thought.trim().to_owned();
        if !self.calls.is_empty() {
            let calls = self.calls.into_iter().map(|call| call.finish(self.tools)).collect();
            return (ReactAnswer { thought, answer: String::new(), calls }, pieces);
        }
        if self.section == Section::Open {
            self.show_open(0, &mut pieces);
            return (ReactAnswer { answer: self.raw.trim().to_owned(), ..ReactAnswer::default() }, pieces);
        }
        let answer = self.answer.trim();
        if !answer.is_empty() {
            return (ReactAnswer { answer: answer.to_owned(), thought, calls: Vec::new() }, pieces);
        }
        // There is neither a call nor a marked answer, so the whole text is the answer.
        let text = self.raw[self.body..].trim();
        let answer = ["Final Answer:", "Final Answer：", "最终答案：", "最终答案:"]
            .iter()
            .find_map(|mark| text.rsplit_once(mark))
            .map_or(text, |(before, answer)| if answer.trim().is_empty() { before } else { answer })
            .trim();
        if !answer.is_empty() {
            pieces.push(ReactPiece::Text(answer.to_owned()));
        }
        (ReactAnswer { answer: answer.to_owned(), ..ReactAnswer::default() }, pieces)
    }

    /// Classifies the held-back line.
    fn read_line(&mut self, pieces: &mut Vec<ReactPiece>) {
        let found = match marker::read(&self.held) {
            MarkerMatch::Maybe if self.held.ends_with('\n') => MarkerMatch::No,
            MarkerMatch::Marker { kind, .. } if !self.may_begin(kind) => MarkerMatch::No,
            found => found,
        };
        match found {
            MarkerMatch::Maybe => {}
            MarkerMatch::No => {
                let line = std::mem::take(&mut self.held);
                self.in_line = true;
                self.feed(&line, pieces);
            }
            MarkerMatch::Marker { kind, length, bold } => {
                let line = std::mem::take(&mut self.held);
                self.in_line = true;
                if self.section == Section::Open {
                    self.leave_open(line.len() - length, line.len(), pieces);
                }
                self.begin(kind, pieces);
                self.fresh = Some(bold);
                self.feed(&line[length..], pieces);
            }
        }
    }

    /// Returns true if a marker of this kind may begin a section here.
    fn may_begin(&self, kind: MarkerKind) -> bool {
        match self.section {
            Section::Open => kind != MarkerKind::Observation,
            // An argument may contain any text except a result.
            Section::Input if kind != MarkerKind::Observation => {
                self.calls.last().is_none_or(|call| !matches!(read_json(&call.input), JsonInput::Cut))
            }
            _ => true,
        }
    }

    fn begin(&mut self, kind: MarkerKind, pieces: &mut Vec<ReactPiece>) {
        if kind == MarkerKind::Input {
            return self.begin_input(pieces);
        }
        self.end_action(pieces);
        self.section = match kind {
            MarkerKind::Thought | MarkerKind::Input => Section::Thought,
            MarkerKind::Action if self.calls.len() < MOST_CALLS => {
                self.action = Some(String::new());
                Section::Action
            }
            MarkerKind::Action => Section::Over,
            MarkerKind::Observation | MarkerKind::Answer if !self.calls.is_empty() => Section::Over,
            MarkerKind::Observation => Section::Thought,
            MarkerKind::Answer => Section::Answer,
        };
    }

    fn begin_input(&mut self, pieces: &mut Vec<ReactPiece>) {
        match (self.section, self.action.take()) {
            // `Action: Final Answer`, `Action Input: 42`
            (Section::Action, Some(action)) if is_final_answer(&action) && self.calls.is_empty() => {
                self.section = Section::Answer;
            }
            (Section::Action, Some(action)) if is_no_action(&action) => self.section = Section::Thought,
            (Section::Action, Some(action)) => {
                self.call(WrittenCall::of_line(&action, self.tools), pieces);
                self.section = Section::Input;
            }
            // The call has begun already.
            (Section::Action, None) => {
                if let Some(call) = self.calls.last_mut() {
                    call.input.clear();
                }
                self.section = Section::Input;
            }
            // `Thought: I need the list. Action: list_dir`
            _ => match self.thought.rsplit_once("Action:").filter(|_| self.calls.len() < MOST_CALLS) {
                Some((_, action)) if self.section == Section::Thought && !action.trim().is_empty() => {
                    self.call(WrittenCall::of_line(action, self.tools), pieces);
                    self.section = Section::Input;
                }
                _ => self.section = Section::Thought,
            },
        }
    }

    /// Appends `text` to the current section.
    fn feed(&mut self, text: &str, pieces: &mut Vec<ReactPiece>) {
        let text = match self.fresh {
            Some(bold) => match self.first_text(text, bold) {
                Some(text) => text,
                None => return,
            },
            None => text.to_owned(),
        };
        match self.section {
            Section::Open | Section::Over => {}
            Section::Thought => {
                self.thought.push_str(&text);
                pieces.push(ReactPiece::Thought(text));
            }
            Section::Answer => {
                self.answer.push_str(&text);
                pieces.push(ReactPiece::Text(text));
            }
            Section::Action => self.feed_action(&text, pieces),
            Section::Input => {
                if let Some(call) = self.calls.last_mut() {
                    call.input.push_str(&text);
                }
            }
        }
    }

    /// Returns the first text of a section without the closing bold marker and leading space, once enough text has arrived.
    fn first_text(&mut self, text: &str, bold: bool) -> Option<String> {
        self.held.push_str(text);
        let start = self.held.trim_start();
        if bold && "**".starts_with(start) && start.len() < 2 && !self.held.ends_with('\n') {
            return None;
        }
        let start = if bold { start.strip_prefix("**").unwrap_or(start).trim_start() } else { start };
        let first = (!start.is_empty()).then(|| start.to_owned());
        self.fresh = first.is_none().then_some(false);
        self.held.clear();
        first
    }

    fn feed_action(&mut self, text: &str, pieces: &mut Vec<ReactPiece>) {
        let Some(action) = &mut self.action else {
            // The tool's name is known, so this is an input without its marker.
            if let Some(call) = self.calls.last_mut() {
                call.input.push_str(text);
            }
            return;
        };
        action.push_str(text);
        if text.ends_with('\n')
            && let Some(call) = named(action, self.tools)
        {
            self.action = None;
            self.call(call, pieces);
        }
    }

    /// Ends an action without an input.
    fn end_action(&mut self, pieces: &mut Vec<ReactPiece>) {
        let Some(action) = self.action.take() else { return };
        if is_no_action(&action) || is_final_answer(&action) {
            return;
        }
        match WrittenCall::alone(&action, self.tools) {
            Some(call) => self.call(call, pieces),
            None => {
                self.thought.push_str(&action);
                pieces.push(ReactPiece::Thought(action));
            }
        }
    }

    fn call(&mut self, mut call: WrittenCall, pieces: &mut Vec<ReactPiece>) {
        call.id = format!("call_{}", Uuid::new_v4().simple());
        pieces.push(ReactPiece::Call { id: call.id.clone(), name: call.name.clone() });
        self.calls.push(call);
    }

    /// Handles the first marker: `rest` bytes follow it in the text; its line has `line` bytes.
    fn leave_open(&mut self, rest: usize, line: usize, pieces: &mut Vec<ReactPiece>) {
        self.section = Section::Thought;
        let before = self.raw[..self.raw.len() - line].to_owned();
        if self.shown > 0 {
            pieces.push(ReactPiece::Void);
        }
        if before.trim().is_empty() {
            self.body = self.raw.len() - rest;
        } else {
            self.thought.push_str(&before);
            pieces.push(ReactPiece::Thought(before));
        }
    }

    /// Shows the text before any marker if it is longer than `held` bytes.
    fn show_open(&mut self, held: usize, pieces: &mut Vec<ReactPiece>) {
        let known = self.raw.len() - self.held.len();
        if self.section == Section::Open && known > self.shown && (self.shown > 0 || known > held) {
            pieces.push(ReactPiece::Text(self.raw[self.shown..known].to_owned()));
            self.shown = known;
        }
    }
}

fn is_final_answer(action: &str) -> bool {
    let action = action.trim();
    action.eq_ignore_ascii_case("final answer") || matches!(action, "最终答案" | "最终回答")
}

fn is_no_action(action: &str) -> bool {
    let action = action.trim().trim_end_matches(['.', '。']);
    ["", "none", "n/a", "无", "none needed", "no action", "不需要", "无需"]
        .iter()
        .any(|word| action.eq_ignore_ascii_case(word))
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
