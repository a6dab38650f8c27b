//! Reads an answer in the ReAct format while it arrives: what is thought, what is called, what the user is told.

use uuid::Uuid;

use super::call::{Written, named};
use super::input::{Json, read_json};
use super::marker::{self, Found, Kind};
use crate::chat::{ToolCall, ToolSpec};

/// The most calls of one answer; what follows is not read.
const MOST_CALLS: usize = 32;
/// How many bytes without a marker are held back before they are shown as the answer.
const HELD: usize = 300;

/// A piece of an answer that can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Thought(String),
    Text(String),
    Call {
        id: String,
        name: String,
    },
    /// What was shown as text was none: what was shown so far is void.
    Void,
}

/// An answer that was read to its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Read {
    pub thought: String,
    /// Empty where there are calls.
    pub answer: String,
    pub calls: Vec<ToolCall>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    /// No marker has come.
    #[default]
    Open,
    Thought,
    Action,
    Input,
    Answer,
    /// What follows was made up: the result of a call that has not run, or an answer without it.
    Over,
}

/// One answer. A marker may arrive in any number of pieces.
pub struct Reader<'a> {
    tools: &'a [ToolSpec],
    section: Section,
    /// What is not yet known to be a marker or not: the beginning of a line.
    held: String,
    in_line: bool,
    /// The part that has just begun has no text yet; its marker may be in bold.
    fresh: Option<bool>,
    /// All that came, for an answer that turns out not to keep to the format.
    raw: String,
    /// Where in `raw` the first marker ends, if nothing stands before it.
    body: usize,
    /// How much of `raw` was shown as text before any marker.
    shown: usize,
    thought: String,
    answer: String,
    /// What stands behind the last `Action:`, until it is known what it calls.
    action: Option<String>,
    calls: Vec<Written>,
}

impl<'a> Reader<'a> {
    /// `tools` are those that the model was told of.
    pub fn new(tools: &'a [ToolSpec]) -> Self {
        Self {
            tools,
            section: Section::Open,
            held: String::new(),
            in_line: false,
            fresh: None,
            raw: String::new(),
            body: 0,
            shown: 0,
            thought: String::new(),
            answer: String::new(),
            action: None,
            calls: Vec::new(),
        }
    }

    /// Whether nothing that still comes can count.
    pub fn is_over(&self) -> bool {
        self.section == Section::Over
    }

    /// Takes the next piece of the answer.
    pub fn push(&mut self, delta: &str) -> Vec<Piece> {
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

    /// The answer is complete. `is_cut` when the service ended it at its length limit: then a last call that may not be
    /// whole is none that can run.
    pub fn finish(mut self, is_cut: bool) -> (Read, Vec<Piece>) {
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
            return (Read { thought, answer: String::new(), calls }, pieces);
        }
        if self.section == Section::Open {
            self.show_open(0, &mut pieces);
            return (Read { answer: self.raw.trim().to_owned(), ..Read::default() }, pieces);
        }
        let answer = self.answer.trim();
        if !answer.is_empty() {
            return (Read { answer: answer.to_owned(), thought, calls: Vec::new() }, pieces);
        }
        // Neither a call nor an answer by its marker: then what was said is the answer.
        let said = self.raw[self.body..].trim();
        let answer = ["Final Answer:", "Final Answer：", "最终答案：", "最终答案:"]
            .iter()
            .find_map(|mark| said.rsplit_once(mark))
            .map_or(said, |(before, answer)| if answer.trim().is_empty() { before } else { answer })
            .trim();
        if !answer.is_empty() {
            pieces.push(Piece::Text(answer.to_owned()));
        }
        (Read { answer: answer.to_owned(), ..Read::default() }, pieces)
    }

    /// Looks at the line that is held back.
    fn read_line(&mut self, pieces: &mut Vec<Piece>) {
        let found = match marker::read(&self.held) {
            Found::Maybe if self.held.ends_with('\n') => Found::No,
            Found::Marker { kind, .. } if !self.may_begin(kind) => Found::No,
            found => found,
        };
        match found {
            Found::Maybe => {}
            Found::No => {
                let line = std::mem::take(&mut self.held);
                self.in_line = true;
                self.feed(&line, pieces);
            }
            Found::Marker { kind, length, bold } => {
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

    /// Whether a marker counts where it stands.
    fn may_begin(&self, kind: Kind) -> bool {
        match self.section {
            Section::Open => kind != Kind::Observation,
            // A text within an argument may hold anything; but a result is never part of one.
            Section::Input if kind != Kind::Observation => {
                self.calls.last().is_none_or(|call| !matches!(read_json(&call.input), Json::Cut))
            }
            _ => true,
        }
    }

    fn begin(&mut self, kind: Kind, pieces: &mut Vec<Piece>) {
        if kind == Kind::Input {
            return self.begin_input(pieces);
        }
        self.end_action(pieces);
        self.section = match kind {
            Kind::Thought | Kind::Input => Section::Thought,
            Kind::Action if self.calls.len() < MOST_CALLS => {
                self.action = Some(String::new());
                Section::Action
            }
            Kind::Action => Section::Over,
            Kind::Observation | Kind::Answer if !self.calls.is_empty() => Section::Over,
            Kind::Observation => Section::Thought,
            Kind::Answer => Section::Answer,
        };
    }

    fn begin_input(&mut self, pieces: &mut Vec<Piece>) {
        match (self.section, self.action.take()) {
            // `Action: Final Answer`, `Action Input: 42`
            (Section::Action, Some(action)) if is_final_answer(&action) && self.calls.is_empty() => {
                self.section = Section::Answer;
            }
            (Section::Action, Some(action)) if is_no_action(&action) => self.section = Section::Thought,
            (Section::Action, Some(action)) => {
                self.call(Written::of_line(&action, self.tools), pieces);
                self.section = Section::Input;
            }
            // Its call has begun.
            (Section::Action, None) => {
                if let Some(call) = self.calls.last_mut() {
                    call.input.clear();
                }
                self.section = Section::Input;
            }
            // `Thought: I need the list. Action: list_dir`
            _ => match self.thought.rsplit_once("Action:").filter(|_| self.calls.len() < MOST_CALLS) {
                Some((_, action)) if self.section == Section::Thought && !action.trim().is_empty() => {
                    self.call(Written::of_line(action, self.tools), pieces);
                    self.section = Section::Input;
                }
                _ => self.section = Section::Thought,
            },
        }
    }

    /// Gives `text` to the part that it stands in.
    fn feed(&mut self, text: &str, pieces: &mut Vec<Piece>) {
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
                pieces.push(Piece::Thought(text));
            }
            Section::Answer => {
                self.answer.push_str(&text);
                pieces.push(Piece::Text(text));
            }
            Section::Action => self.feed_action(&text, pieces),
            Section::Input => {
                if let Some(call) = self.calls.last_mut() {
                    call.input.push_str(&text);
                }
            }
        }
    }

    /// What a part begins with, once that is known: without the bold's end, and the space before it.
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

    fn feed_action(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        let Some(action) = &mut self.action else {
            // Its name is known: this is an input without its marker.
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

    /// An action ends without an input behind it.
    fn end_action(&mut self, pieces: &mut Vec<Piece>) {
        let Some(action) = self.action.take() else { return };
        if is_no_action(&action) || is_final_answer(&action) {
            return;
        }
        match Written::alone(&action, self.tools) {
            Some(call) => self.call(call, pieces),
            None => {
                self.thought.push_str(&action);
                pieces.push(Piece::Thought(action));
            }
        }
    }

    fn call(&mut self, mut call: Written, pieces: &mut Vec<Piece>) {
        call.id = format!("call_{}", Uuid::new_v4().simple());
        pieces.push(Piece::Call { id: call.id.clone(), name: call.name.clone() });
        self.calls.push(call);
    }

    /// The first marker has come, `rest` bytes before the end of what came; its line has `line`.
    fn leave_open(&mut self, rest: usize, line: usize, pieces: &mut Vec<Piece>) {
        self.section = Section::Thought;
        let before = self.raw[..self.raw.len() - line].to_owned();
        if self.shown > 0 {
            pieces.push(Piece::Void);
        }
        if before.trim().is_empty() {
            self.body = self.raw.len() - rest;
        } else {
            self.thought.push_str(&before);
            pieces.push(Piece::Thought(before));
        }
    }

    /// Shows what came before any marker, when it is more than `held` bytes.
    fn show_open(&mut self, held: usize, pieces: &mut Vec<Piece>) {
        let known = self.raw.len() - self.held.len();
        if self.section == Section::Open && known > self.shown && (self.shown > 0 || known > held) {
            pieces.push(Piece::Text(self.raw[self.shown..known].to_owned()));
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
