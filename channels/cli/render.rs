//! What a turn looks like on a screen: events and messages in, text to print out.

use serde_json::Value;
use unicode_width::UnicodeWidthChar;

use super::console::Style;
use crate::event::TurnEvent;
use crate::message::OutboundMessage;

// What is shown, not what is kept.
const MAX_THINKING_CHARS: usize = 1_000;
const MAX_ARGUMENT_COLUMNS: usize = 100;
const MAX_RESULT_LINES: usize = 3;
const MAX_RESULT_COLUMNS: usize = 160;
/// How much streamed text is remembered, in bytes, to know a reply that stands on the screen already.
const MAX_STREAMED: usize = 4 << 20;
/// After how many characters a control string that does not end is taken for ended.
const MAX_CONTROL_STRING: usize = 256;

const BOT: &str = "Bot> ";

#[derive(Clone, Copy)]
enum Colour {
    Dim,
    Red,
    Green,
    Yellow,
    Bold,
}

/// Draws one conversation.
pub(super) struct Painter {
    style: Style,
    at: At,
    cleaner: Cleaner,
    /// The answer as streamed since the last tool call.
    streamed: String,
    thought_chars: usize,
}

/// Where the last thing drawn ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    LineStart,
    Thinking,
    Text,
}

impl Painter {
    pub(super) fn new(style: Style) -> Self {
        Self { style, at: At::LineStart, cleaner: Cleaner::default(), streamed: String::new(), thought_chars: 0 }
    }

    /// Draws an event of the turn that runs.
    pub(super) fn event(&mut self, event: &TurnEvent) -> String {
        match event {
            TurnEvent::Started | TurnEvent::Done { .. } | TurnEvent::ToolCall { arguments: None, .. } => String::new(),
            TurnEvent::Thinking { delta } => self.thinking(delta),
            TurnEvent::Text { delta } => self.text(delta),
            TurnEvent::ToolCall { name, arguments: Some(arguments), .. } => {
                let line = format!("● {}({})", clean(name), cut(&clean(&brief(arguments)), MAX_ARGUMENT_COLUMNS));
                self.block(&self.paint(Colour::Yellow, &line))
            }
            TurnEvent::ToolResult { content, success, .. } => {
                let colour = if *success { Colour::Dim } else { Colour::Red };
                let folded = fold(&clean(content));
                self.block(&self.paint(colour, &folded))
            }
            TurnEvent::Restart => self.block(&self.paint(Colour::Dim, "(the answer starts anew)")),
            TurnEvent::Error { message } => {
                let line = self.block(&self.paint(Colour::Red, &clean(message)));
                self.streamed.clone_from(message);
                line
            }
        }
    }

    /// Draws a message; of one that was streamed, what is not on the screen yet.
    pub(super) fn message(&mut self, message: &OutboundMessage) -> String {
        self.reply(&message.content, message.error.is_some())
    }

    pub(super) fn reply(&mut self, content: &str, failed: bool) -> String {
        if !self.style.live {
            return format!("{}\n", clean(content).trim_end());
        }
        let streamed = self.streamed.trim();
        if !streamed.is_empty()
            && let Some(rest) = content.trim().strip_prefix(streamed)
        {
            let close = if self.at == At::LineStart && rest.is_empty() { "" } else { "\n" };
            let rest = clean(rest);
            self.at = At::LineStart;
            self.streamed.clear();
            return format!("{rest}{close}");
        }
        let text = clean(content);
        let text = if failed { self.paint(Colour::Red, text.trim_end()) } else { text.trim_end().to_owned() };
        format!("{}\n{}{text}\n", self.close_line(), self.bot())
    }

    /// The turn is over.
    pub(super) fn end(&mut self) -> String {
        let close = self.close_line();
        *self = Self::new(self.style);
        if self.style.live { format!("{close}\n") } else { close }
    }

    /// A line of the program's own: something was refused or failed.
    pub(super) fn fault(&mut self, words: &str) -> String {
        let line = self.paint(Colour::Red, &clean(words));
        format!("{}{line}\n", self.close_line())
    }

    /// A line of the program's own.
    pub(super) fn hint(&mut self, words: &str) -> String {
        let line = self.paint(Colour::Dim, words);
        format!("{}{line}\n", self.close_line())
    }

    /// Empties the screen, where there is one.
    pub(super) fn clear(&self) -> &'static str {
        if self.style.ansi { "\x1b[2J\x1b[3J\x1b[H" } else { "" }
    }

    fn thinking(&mut self, delta: &str) -> String {
        let mut shown = String::new();
        if self.at != At::Thinking {
            if self.thought_chars > MAX_THINKING_CHARS {
                return shown;
            }
            shown = self.close_line();
            self.at = At::Thinking;
            self.cleaner = Cleaner::default();
            shown += &self.paint(Colour::Dim, "thinking: ");
        }
        if self.thought_chars > MAX_THINKING_CHARS {
            return shown;
        }
        let left = MAX_THINKING_CHARS - self.thought_chars;
        let text = self.cleaner.clean(delta);
        let mut words: String = text.chars().take(left).collect();
        self.thought_chars += text.chars().count();
        if self.thought_chars > MAX_THINKING_CHARS {
            words.push('…');
        }
        shown + &self.paint(Colour::Dim, &words)
    }

    fn text(&mut self, delta: &str) -> String {
        let mut shown = String::new();
        if self.at != At::Text {
            shown = format!("{}\n{}", self.close_line(), self.bot());
            self.at = At::Text;
            self.cleaner = Cleaner::default();
        }
        if self.streamed.len() + delta.len() <= MAX_STREAMED {
            self.streamed += delta;
        }
        shown + &self.cleaner.clean(delta)
    }

    /// Lines of their own, after which the answer starts anew.
    fn block(&mut self, lines: &str) -> String {
        self.streamed.clear();
        format!("{}{lines}\n", self.close_line())
    }

    fn close_line(&mut self) -> String {
        let open = self.at != At::LineStart;
        self.at = At::LineStart;
        if open { "\n".into() } else { String::new() }
    }

    fn bot(&self) -> String {
        self.paint(Colour::Bold, &self.paint(Colour::Green, BOT))
    }

    fn paint(&self, colour: Colour, text: &str) -> String {
        if !self.style.ansi || text.is_empty() {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Bold => 1,
            Colour::Dim => 2,
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Arguments as `key=value, …`.
fn brief(arguments: &Value) -> String {
    match arguments {
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// The first lines of a result, and how many more there are.
fn fold(text: &str) -> String {
    let mut lines = text.trim().lines();
    let mut folded = match lines.next() {
        Some(first) => format!("  └ {}", cut(first, MAX_RESULT_COLUMNS)),
        None => "  └ (no output)".to_owned(),
    };
    for line in lines.by_ref().take(MAX_RESULT_LINES - 1) {
        folded += &format!("\n    {}", cut(line, MAX_RESULT_COLUMNS));
    }
    match lines.count() {
        0 => folded,
        more => format!("{folded}\n    … {more} more lines"),
    }
}

/// At most `columns` wide, on one line.
fn cut(text: &str, columns: usize) -> String {
    let mut width = 0;
    let mut kept = String::new();
    for c in text.chars().map(|c| if c == '\n' || c == '\t' { ' ' } else { c }) {
        width += c.width().unwrap_or(0);
        if width > columns {
            kept.push('…');
            break;
        }
        kept.push(c);
    }
    kept
}

/// `text` without what would command the terminal.
fn clean(text: &str) -> String {
    Cleaner::default().clean(text)
}

/// Takes escape sequences and control characters out of text that may come in pieces: what a model or a tool wrote
/// must not move the cursor, rename the window or fill the clipboard. Line feeds and tabs stay.
#[derive(Default)]
struct Cleaner {
    within: Within,
}

#[derive(Clone, Copy, Default)]
enum Within {
    #[default]
    Text,
    Escape,
    /// `ESC [ … letter`
    Sequence,
    /// `ESC ] …` up to BEL, `ESC \` or a line's end; how much of it passed.
    String(usize),
}

impl Cleaner {
    fn clean(&mut self, text: &str) -> String {
        text.chars().filter(|c| self.keeps(*c)).collect()
    }

    fn keeps(&mut self, c: char) -> bool {
        let (next, keep) = match (self.within, c) {
            (_, '\x1b') => (Within::Escape, false),
            (_, '\u{9b}') => (Within::Sequence, false),
            (_, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => (Within::String(0), false),
            (_, '\n') => (Within::Text, true),
            (Within::Text, c) => (Within::Text, c == '\t' || !c.is_control()),
            (Within::Escape, '[') => (Within::Sequence, false),
            (Within::Escape, ']' | 'P' | 'X' | '^' | '_') => (Within::String(0), false),
            (Within::Escape, ' '..='/') => (Within::Escape, false),
            (Within::Sequence, '@'..='~') | (Within::Escape, _) => (Within::Text, false),
            (Within::Sequence, c) if c.is_ascii() => (Within::Sequence, false),
            // No sequence holds such a character: it was cut off.
            (Within::Sequence, _) => (Within::Text, true),
            (Within::String(_), '\x07' | '\u{9c}') | (Within::String(MAX_CONTROL_STRING..), _) => (Within::Text, false),
            (Within::String(passed), _) => (Within::String(passed + 1), false),
        };
        self.within = next;
        keep && (c == '\n' || c == '\t' || !c.is_control())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const LIVE: Style = Style { live: true, ansi: false };

    fn text(delta: &str) -> TurnEvent {
        TurnEvent::Text { delta: delta.into() }
    }

    fn call(arguments: Option<Value>) -> TurnEvent {
        TurnEvent::ToolCall { id: "1".into(), name: "read_file".into(), arguments }
    }

    fn draw(style: Style, events: &[TurnEvent], reply: &str) -> String {
        let mut painter = Painter::new(style);
        let drawn: String = events.iter().map(|event| painter.event(event)).collect();
        drawn + &painter.reply(reply, false)
    }

    #[test]
    fn a_reply_is_printed_once_however_it_came() {
        let table: &[(&[TurnEvent], &str, &str)] = &[
            (&[], "Hello", "\nBot> Hello\n"),
            (&[text("Hel"), text("lo")], "Hello", "\nBot> Hello\n"),
            (&[text("Hel")], "Hello", "\nBot> Hello\n"),
            (&[text("Hello ")], "Hello", "\nBot> Hello \n"),
            (&[text("Something else")], "Hello", "\nBot> Something else\n\nBot> Hello\n"),
            (
                &[text("Wait."), call(None), call(Some(json!({"path": "a.txt"}))), text("Done.")],
                "Done.",
                "\nBot> Wait.\n● read_file(path=\"a.txt\")\n\nBot> Done.\n",
            ),
            (
                &[text("Hel"), TurnEvent::Restart, text("Hello")],
                "Hello",
                "\nBot> Hel\n(the answer starts anew)\n\nBot> Hello\n",
            ),
            (&[TurnEvent::Thinking { delta: "hm".into() }, text("Hello")], "Hello", "thinking: hm\n\nBot> Hello\n"),
            (&[TurnEvent::Error { message: "No model.".into() }], "No model.", "No model.\n"),
        ];
        for (events, reply, expected) in table {
            assert_eq!(draw(LIVE, events, reply), *expected, "{events:?}");
        }
    }

    #[test]
    fn results_are_folded_and_thoughts_are_bounded() {
        let result = |content: &str| TurnEvent::ToolResult {
            id: "1".into(),
            name: "exec".into(),
            content: content.into(),
            success: true,
        };
        let mut painter = Painter::new(LIVE);
        assert_eq!(painter.event(&result("")), "  └ (no output)\n");
        assert_eq!(painter.event(&result("a\nb\nc\nd\ne")), "  └ a\n    b\n    c\n    … 2 more lines\n");
        assert_eq!(painter.event(&result(&"中".repeat(200))).chars().filter(|c| *c == '中').count(), 80);
        let thoughts = "x".repeat(MAX_THINKING_CHARS * 2);
        let shown = painter.event(&TurnEvent::Thinking { delta: thoughts.clone() });
        assert!(shown.ends_with("x…") && shown.len() < MAX_THINKING_CHARS + 20);
        assert_eq!(painter.event(&TurnEvent::Thinking { delta: thoughts }), "");
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        let wild = "a\x1b[31mb\x1b]0;title\x07c\rd";
        let events = [call(Some(json!({}))), text(wild)];
        assert_eq!(
            draw(Style { live: true, ansi: true }, &events, wild),
            "\x1b[33m● read_file()\x1b[0m\n\n\x1b[1m\x1b[32mBot> \x1b[0m\x1b[0mabcd\n",
        );
        assert_eq!(draw(Style::PLAIN, &[], "a\x1b[31mb\n\n"), "ab\n");
    }

    proptest! {
        #[test]
        fn cleaned_text_commands_nothing_wherever_it_is_split(
            pieces in proptest::collection::vec("[a-z\\[\\]0-9;中\x1b\x07\u{9b}\u{9d}\u{9c}\r\n\t]{0,12}", 0..8),
        ) {
            let mut cleaner = Cleaner::default();
            let split: String = pieces.iter().map(|piece| cleaner.clean(piece)).collect();
            prop_assert_eq!(&split, &clean(&pieces.concat()));
            prop_assert!(!split.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
