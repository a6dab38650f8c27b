//! Renders a turn on a screen: takes events and messages, and returns the text to print.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use unicode_width::UnicodeWidthStr;

use super::config::Thinking;
use super::layout::{AnsiColour, ScreenRow, TextPosition, TextStyle, wrap};
use super::markdown::MarkdownStyle;
use super::markdown_stream::MarkdownStream;
use super::screen::{Screen, TerminalStyle};
use super::spinner::{frame, span};
use super::texts::TerminalTexts;
use super::tool_calls::{OpenCalls, fold, line, whole_seconds};
use super::tool_output::plain_text;
use crate::clean::{Cleaner, clean, clean_line};
use crate::event::TurnEvent;
use crate::message::{Attachment, OutboundMessage, SessionKey};
use crate::settings::ByteSize;
use crate::text::{Language, fill, thousands};

/// The maximum number of characters of thoughts on the screen.
const MAX_THINKING_CHARS: usize = 1_000;
/// The maximum number of bytes of a turn's thoughts that are kept for `/thinking`.
const MAX_THOUGHTS: usize = 256 << 10;
const MAX_RESULT_COLUMNS: usize = 160;
/// The maximum number of bytes of streamed text that are kept, to recognize a reply that is already on the screen.
const MAX_STREAMED: usize = 4 << 20;

/// The number of columns of a call that even the narrowest screen shows.
const MIN_CALL: usize = 8;

const BOT: &str = "Bot> ";

/// Returns the text of a message followed by the paths of its files, which are on this machine.
fn with_files(message: &OutboundMessage) -> Cow<'_, str> {
    if message.attachments.is_empty() {
        return Cow::Borrowed(&message.content);
    }
    let line = |file: &Attachment| format!("- {} ({})", clean_line(&file.path), ByteSize(file.size));
    let lines: Vec<String> = message.attachments.iter().map(line).collect();
    Cow::Owned(format!("{}\n\n{}", message.content.trim_end(), lines.join("\n")))
}

/// Renders one conversation.
pub(super) struct Painter {
    style: TerminalStyle,
    pub texts: &'static TerminalTexts,
    screen: Screen,
    at: DrawState,
    cleaner: Cleaner,
    /// The answer streamed since the last tool call.
    streamed: String,
    flow: Option<MarkdownStream>,
    /// How thoughts are shown.
    pub thinking: Thinking,
    /// All thoughts of this turn, or of the last one.
    thoughts: String,
    thought_chars: usize,
    /// The current thought, the end of its final part, and its start time.
    thought: String,
    thought_place: TextPosition,
    thinks_since: Option<Instant>,
    calls: OpenCalls,
    /// The call in the last printed row, on a screen without cursor movement.
    below: Option<String>,
    /// The start time of the running turn.
    began: Option<Instant>,
    used: TurnUsage,
}

/// The usage of a turn so far.
#[derive(Default)]
struct TurnUsage {
    input: u64,
    output: u64,
    cached: u64,
    cost: Option<String>,
}

/// The kind of the last output, which determines the position of the cursor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DrawState {
    LineStart,
    Thinking,
    /// Inside folded thoughts.
    Folded,
    Text,
}

impl Painter {
    pub(super) fn new(style: TerminalStyle, language: Language, thinking: Thinking) -> Self {
        Self {
            style,
            texts: TerminalTexts::of(language),
            screen: Screen::new(style),
            at: DrawState::LineStart,
            cleaner: Cleaner::default(),
            streamed: String::new(),
            flow: None,
            thinking,
            thoughts: String::new(),
            thought_chars: 0,
            thought: String::new(),
            thought_place: TextPosition::default(),
            thinks_since: None,
            calls: OpenCalls::default(),
            below: None,
            began: None,
            used: TurnUsage::default(),
        }
    }

    /// Starts a turn.
    pub(super) fn begin(&mut self) {
        self.began = Some(Instant::now());
        self.thoughts.clear();
    }

    /// Returns the thoughts of the last turn for display.
    pub(super) fn last_thoughts(&self) -> Vec<String> {
        let thoughts = clean(&self.thoughts);
        let lines: Vec<String> = thoughts.trim().lines().map(str::to_owned).collect();
        if lines.is_empty() { vec![self.texts.no_thoughts.to_owned()] } else { lines }
    }

    /// Discards the streamed part of a turn that a restarted gateway continues, because the gateway streams the answer again.
    pub(super) fn forget_streamed(&mut self) {
        self.streamed.clear();
        self.calls.take();
    }

    /// Renders an event of the running turn.
    pub(super) fn event(&mut self, event: &TurnEvent) -> String {
        match event {
            TurnEvent::Started => String::new(),
            TurnEvent::Thinking { delta } => self.thinking(delta),
            TurnEvent::Text { delta } => self.text(delta),
            TurnEvent::ToolCall { id, name, arguments, args_complete } => {
                self.call(id, line(name, arguments.as_ref()), *args_complete || arguments.is_some())
            }
            TurnEvent::ToolResult { id, name, content, success, duration_ms } => {
                self.result(id, name, content, *success, Duration::from_millis(*duration_ms))
            }
            TurnEvent::Restart => {
                self.streamed.clear();
                self.calls.forget_incomplete();
                self.lines(&[ScreenRow::of(TextStyle::DIM, self.texts.starts_anew)])
            }
            TurnEvent::Usage { input_tokens, output_tokens, cached_tokens } => {
                self.used.input += input_tokens;
                self.used.output += output_tokens;
                self.used.cached += cached_tokens;
                String::new()
            }
            TurnEvent::Error { message } => self.failure(message),
            TurnEvent::Done { input_tokens, output_tokens, cost, .. } => {
                let TurnUsage { cached, .. } = self.used;
                let (input, output, cost) = (*input_tokens, *output_tokens, cost.clone());
                self.used = TurnUsage { input, output, cached, cost };
                String::new()
            }
        }
    }

    /// Returns true if the spinner is shown, so that the caller must call [`tick`](Self::tick).
    pub(super) fn is_spinning(&self) -> bool {
        // While an answer is streamed, its last row changes, and the spinner is not shown.
        let is_free = self.at == DrawState::LineStart || self.at == DrawState::Folded;
        self.style.cursor && is_free && (self.began.is_some() || !self.calls.is_empty())
    }

    /// Renders the next frame of the spinner.
    pub(super) fn tick(&mut self) -> String {
        let Some(began) = self.began.filter(|_| self.is_spinning()) else { return String::new() };
        let row = self.spinning(began);
        self.screen.put(&[], Some(row))
    }

    /// Renders the reply of the running turn. If the reply was streamed, renders only the part that is not on the screen yet.
    pub(super) fn reply(&mut self, content: &str, failed: bool) -> String {
        if !self.style.live {
            return self.bare(content);
        }
        let (streamed, reply) = (std::mem::take(&mut self.streamed), content.trim());
        let rest = reply.strip_prefix(streamed.trim_start()).or_else(|| reply.strip_prefix(streamed.trim()));
        if !streamed.trim().is_empty()
            && let Some(rest) = rest
        {
            return self.rest(&clean(rest));
        }
        let settled = self.settle();
        settled + &self.whole(content, failed, BOT)
    }

    /// Renders a message that does not answer this terminal; the current output continues below it.
    pub(super) fn message(&mut self, message: &OutboundMessage, here: &SessionKey) -> String {
        let content = with_files(message);
        if !self.style.live {
            return self.bare(&content);
        }
        self.below = None;
        let lifted = match self.at {
            DrawState::LineStart => self.screen.lift(),
            DrawState::Text if self.flow.is_some() => self.screen.lift(),
            DrawState::Text | DrawState::Thinking | DrawState::Folded => self.settle(),
        };
        let from = clean_line(message.context.job.as_deref().unwrap_or(message.session.as_str()));
        let lead = if message.session == *here { BOT.to_owned() } else { format!("Bot ({from})> ") };
        lifted + &self.whole(&content, message.error.is_some(), &lead)
    }

    /// Ends the conversation, possibly in the middle of a turn.
    pub(super) fn leave(&mut self) -> String {
        self.settle()
    }

    /// Ends the turn.
    pub(super) fn end(&mut self) -> String {
        let mut ended = self.settle();
        for call in self.calls.take() {
            let after = format!(" {}", self.texts.no_result);
            let row = self.call_row("● ", &call.line, TextStyle::coloured(AnsiColour::Yellow), &after);
            ended += &self.screen.put(&[row], None);
        }
        let used = std::mem::take(&mut self.used);
        if let Some(began) = self.began.filter(|_| used.input + used.output > 0) {
            let rows = self.wrapped(TextStyle::DIM, &self.usage_line(&used, began.elapsed()), &ScreenRow::default());
            ended += &self.screen.put(&rows, None);
        }
        self.began = None;
        self.streamed.clear();
        self.thought_chars = 0;
        if self.style.live {
            ended.push('\n');
        }
        ended
    }

    /// Renders an error of the terminal itself.
    pub(super) fn fault(&mut self, message: &str) -> String {
        let rows = self.wrapped(TextStyle::coloured(AnsiColour::Red), message, &ScreenRow::default());
        self.lines(&rows)
    }

    /// Renders a hint of the terminal itself.
    pub(super) fn hint(&mut self, message: &str) -> String {
        let rows = self.wrapped(TextStyle::DIM, message, &ScreenRow::default());
        self.lines(&rows)
    }

    /// Renders the result of a terminal command.
    pub(super) fn output(&mut self, lines: &[String]) -> String {
        let rows: Vec<ScreenRow> =
            lines.iter().flat_map(|line| self.wrapped(TextStyle::PLAIN, line, &ScreenRow::default())).collect();
        self.lines(&rows)
    }

    /// Clears the screen if the cursor can be moved.
    pub(super) fn clear(&self) -> &'static str {
        if self.style.cursor { "\x1b[2J\x1b[3J\x1b[H" } else { "" }
    }

    fn thinking(&mut self, delta: &str) -> String {
        if self.thoughts.len() + delta.len() <= MAX_THOUGHTS {
            self.thoughts += delta;
        }
        match self.thinking {
            Thinking::Show => self.push_thinking(delta),
            Thinking::Hide => String::new(),
            Thinking::Fold if self.at == DrawState::Folded => String::new(),
            Thinking::Fold => {
                let settled = self.settle();
                self.at = DrawState::Folded;
                self.thinks_since = Some(Instant::now());
                settled + &self.tick()
            }
        }
    }

    fn push_thinking(&mut self, delta: &str) -> String {
        let mut shown = String::new();
        if self.thought_chars > MAX_THINKING_CHARS {
            return shown;
        }
        if self.at != DrawState::Thinking {
            shown = self.settle();
            self.at = DrawState::Thinking;
            self.cleaner = Cleaner::default();
            if self.style.cursor {
                self.thought = self.texts.thinking.to_owned();
                self.thought_place = TextPosition::default();
            } else {
                shown += &self.paint(TextStyle::DIM, self.texts.thinking);
            }
        }
        let left = MAX_THINKING_CHARS - self.thought_chars;
        let text = self.cleaner.clean(delta);
        let mut visible: String = text.chars().take(left).collect();
        self.thought_chars += text.chars().count();
        if self.thought_chars > MAX_THINKING_CHARS {
            visible.push('…');
        }
        if !self.style.cursor {
            return shown + &self.paint(TextStyle::DIM, &visible);
        }
        self.thought += &visible;
        let mut rows = self.thought_place.rest_of(self.wrapped(TextStyle::DIM, &self.thought, &ScreenRow::default()));
        let live = rows.pop();
        self.thought_place = self.thought_place.and(&rows);
        shown + &self.screen.put(&rows, live)
    }

    fn text(&mut self, delta: &str) -> String {
        let mut shown = String::new();
        if self.at != DrawState::Text {
            // Some answers begin with line feeds; the spinner stays until other text arrives.
            if delta.trim().is_empty() && self.streamed.is_empty() {
                return shown;
            }
            shown = self.settle();
            self.at = DrawState::Text;
            self.cleaner = Cleaner::default();
            // Text that continues below other output belongs to the same answer.
            let lead = if self.streamed.is_empty() { BOT } else { "" };
            shown += if lead.is_empty() { "" } else { "\n" };
            if self.style.cursor {
                self.flow = Some(MarkdownStream::new(self.markdown_style(), ScreenRow::of(TextStyle::BOT, lead)));
            } else {
                shown += &self.paint(TextStyle::BOT, lead);
            }
        }
        if self.streamed.len() + delta.len() <= MAX_STREAMED {
            self.streamed += delta;
        }
        let text = self.cleaner.clean(delta);
        match &mut self.flow {
            Some(flow) => {
                flow.resize(self.screen.width());
                let step = flow.push(&text);
                shown + &self.screen.put(&step.rows, step.live)
            }
            None => shown + &text,
        }
    }

    /// Renders a failure without the text at its start that was already streamed.
    fn failure(&mut self, message: &str) -> String {
        let streamed = std::mem::take(&mut self.streamed);
        let rest = message.trim().strip_prefix(streamed.trim()).unwrap_or(message);
        let rows = self.wrapped(TextStyle::coloured(AnsiColour::Red), clean(rest).trim(), &ScreenRow::default());
        self.streamed = message.to_owned();
        self.lines(&rows)
    }

    fn call(&mut self, id: &str, line: String, is_complete: bool) -> String {
        self.streamed.clear();
        self.calls.note(id, line, is_complete);
        if !self.style.cursor {
            return self.draw_next_call();
        }
        let settled = self.settle();
        self.began.get_or_insert_with(Instant::now);
        settled + &self.tick()
    }

    /// Prints the row of a complete call, on a screen without cursor movement.
    fn draw_next_call(&mut self) -> String {
        let Some((id, line)) = self.calls.next_to_draw().map(|call| (call.id.clone(), call.line.clone())) else {
            return String::new();
        };
        let row = self.call_row("● ", &line, TextStyle::coloured(AnsiColour::Yellow), "");
        let drawn = self.lines(&[row]);
        self.below = Some(id);
        drawn
    }

    fn result(&mut self, id: &str, name: &str, content: &str, success: bool, took: Duration) -> String {
        let call = self.calls.end(id);
        let is_call_above = !self.style.cursor && (call.is_none() || self.below.as_deref() == Some(id));
        let mut rows = Vec::new();
        if !is_call_above {
            let line = call.map_or_else(|| format!("{}()", clean_line(name)), |call| call.line);
            let dot = TextStyle::coloured(if success { AnsiColour::Green } else { AnsiColour::Red });
            let after = if took.as_secs() > 0 { format!(" {}", span(took)) } else { String::new() };
            rows.push(self.call_row("● ", &line, dot, &after));
        }
        let text_style = if success { TextStyle::DIM } else { TextStyle::coloured(AnsiColour::Red) };
        let columns = self.limit(MAX_RESULT_COLUMNS);
        let folded = fold(&plain_text(content, success, columns), columns, self.texts);
        rows.extend(folded.iter().map(|line| ScreenRow::of(text_style, line)));
        let drawn = self.lines(&rows);
        drawn + &if self.style.cursor { self.tick() } else { self.draw_next_call() }
    }

    /// Returns the row of a tool call followed by `after`.
    fn call_row(&self, dot: &str, line: &str, text_style: TextStyle, after: &str) -> ScreenRow {
        let mut row = ScreenRow::of(text_style, dot);
        row.push(TextStyle::coloured(AnsiColour::Yellow), line);
        let mut row = row.cut(self.limit(MAX_RESULT_COLUMNS).saturating_sub(after.width()).max(MIN_CALL));
        row.push(TextStyle::DIM, after);
        row
    }

    fn spinning(&self, began: Instant) -> ScreenRow {
        let Some((call, others)) = self.calls.oldest() else {
            let (elapsed, what) = match self.thinks_since {
                Some(since) => (since.elapsed(), format!("{} ", self.texts.is_thinking)),
                None => (began.elapsed(), String::new()),
            };
            return ScreenRow::of(TextStyle::DIM, &format!("{} {what}{}", frame(elapsed), whole_seconds(elapsed)));
        };
        let others = if others > 0 { format!(" +{others}") } else { String::new() };
        let after = format!("{others} {}", whole_seconds(call.began.elapsed()));
        let dot = format!("{} ", frame(began.elapsed()));
        self.call_row(&dot, &call.line, TextStyle::coloured(AnsiColour::Yellow), after.trim_end())
    }

    /// Renders the rest of a streamed reply.
    fn rest(&mut self, rest: &str) -> String {
        let is_open = self.at != DrawState::LineStart;
        if let Some(flow) = &mut self.flow {
            let step = flow.push(rest);
            let pushed = self.screen.put(&step.rows, step.live);
            return pushed + &self.settle();
        }
        self.at = DrawState::LineStart;
        let close = if is_open || !rest.is_empty() { "\n" } else { "" };
        format!("{}{rest}{close}", self.screen.lift())
    }

    /// Renders a complete message on its own lines.
    fn whole(&mut self, content: &str, failed: bool, lead: &str) -> String {
        let text = clean(content);
        let text = text.trim_end();
        let lead = ScreenRow::of(TextStyle::BOT, lead);
        let rows = if failed {
            self.wrapped(TextStyle::coloured(AnsiColour::Red), text, &lead)
        } else if self.style.cursor {
            self.markdown(text, lead)
        } else {
            return format!("\n{}{text}\n", lead.paint(self.style.colour));
        };
        format!("\n{}", self.screen.put(&rows, None))
    }

    /// Renders only the reply, for output without a prompt.
    fn bare(&mut self, content: &str) -> String {
        let text = clean(content);
        if self.style.colour {
            let rows = self.markdown(text.trim_end(), ScreenRow::default());
            return self.screen.put(&rows, None);
        }
        format!("{}\n", text.trim_end())
    }

    /// Prints rows that interrupt the answer.
    fn lines(&mut self, rows: &[ScreenRow]) -> String {
        let settled = self.settle();
        settled + &self.screen.put(rows, None)
    }

    /// Ends the current row, so that other rows can follow.
    fn settle(&mut self) -> String {
        self.below = None;
        let at = std::mem::replace(&mut self.at, DrawState::LineStart);
        if let Some(mut flow) = self.flow.take() {
            let rows = flow.finish();
            // The final rows are on the screen; `put` removes the live one.
            return self.screen.put(&rows, None);
        }
        match at {
            DrawState::LineStart => self.screen.lift(),
            // The last row of the thought stays on the screen.
            DrawState::Thinking if self.style.cursor => self.screen.keep(),
            DrawState::Folded => {
                let took = span(self.thinks_since.take().map(|since| since.elapsed()).unwrap_or_default());
                let row = ScreenRow::of(TextStyle::DIM, &fill(self.texts.thought_for, &[&took]));
                self.screen.put(&[row], None)
            }
            DrawState::Thinking | DrawState::Text => "\n".to_owned(),
        }
    }

    fn wrapped(&self, text_style: TextStyle, text: &str, lead: &ScreenRow) -> Vec<ScreenRow> {
        // The terminal's own lines contain names from outside.
        let text = &clean(text);
        if self.style.cursor {
            return wrap(&ScreenRow::of(text_style, text), lead, &ScreenRow::default(), self.screen.width());
        }
        let mut row = lead.clone();
        row.push(text_style, text);
        vec![row]
    }

    /// Returns the duration and the usage of a turn.
    fn usage_line(&self, used: &TurnUsage, took: Duration) -> String {
        let numbers = [span(took), thousands(used.input), thousands(used.output)];
        let mut line = fill(self.texts.usage, &numbers.each_ref().map(String::as_str));
        if used.cached > 0 {
            line += &format!(" · {}", fill(self.texts.cached, &[&thousands(used.cached)]));
        }
        if let Some(cost) = &used.cost {
            line += &format!(" · {}", clean_line(cost));
        }
        line
    }

    /// Renders a whole Markdown text.
    fn markdown(&self, text: &str, lead: ScreenRow) -> Vec<ScreenRow> {
        let mut flow = MarkdownStream::new(self.markdown_style(), lead);
        let mut rows = flow.push(text).rows;
        rows.extend(flow.finish());
        rows
    }

    fn markdown_style(&self) -> MarkdownStyle {
        MarkdownStyle { width: self.screen.width(), in_colour: self.style.colour }
    }

    fn limit(&self, columns: usize) -> usize {
        if self.style.cursor { columns.min(self.screen.width()) } else { columns }
    }

    fn paint(&self, text_style: TextStyle, text: &str) -> String {
        if self.style.colour { text_style.paint(text) } else { text.to_owned() }
    }
}

#[cfg(test)]
#[path = "painter_tests.rs"]
mod tests;
