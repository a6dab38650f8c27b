//! Parses iCalendar objects (RFC 5545) to the extent that an invitation needs. Own code because calcard needs three more
//! crates, which is more than the lines of this file save, and drops values that it cannot interpret.

use jiff::civil::{Date, DateTime, Time};

/// Largest number of events; the rest is ignored.
const MAX_EVENTS: usize = 10;
/// Largest number of properties of an event.
const MAX_PROPERTIES: usize = 300;
/// Longest line in bytes; the rest is cut.
const MAX_LINE: usize = 10_000;

/// A property, written `NAME;PARAM=VALUE:VALUE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalendarProperty {
    pub name: String,
    params: Vec<(String, String)>,
    pub value: String,
}

impl CalendarProperty {
    fn parse(line: &str) -> Option<Self> {
        let mut is_quoted = false;
        let colon = line.find(|c| {
            is_quoted ^= c == '"';
            c == ':' && !is_quoted
        })?;
        let (head, value) = (&line[..colon], &line[colon + 1..]);
        let mut is_quoted = false;
        let mut pieces = head.split(|c| {
            is_quoted ^= c == '"';
            c == ';' && !is_quoted
        });
        let name = pieces.next()?.trim().to_ascii_uppercase();
        let params = pieces.take(20).filter_map(|piece| piece.split_once('='));
        let params =
            params.map(|(name, value)| (name.trim().to_ascii_uppercase(), value.trim().trim_matches('"').to_owned()));
        Some(Self { name, params: params.collect(), value: value.to_owned() })
    }

    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Decodes the value as text (RFC 5545, section 3.3.11).
    pub fn text(&self) -> String {
        let mut out = String::with_capacity(self.value.len());
        let mut chars = self.value.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('n' | 'N') => out.push('\n'),
                    Some(c) => out.push(c),
                    None => {}
                },
                c => out.push(c),
            }
        }
        out
    }
}

/// The properties of an event or a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalendarEvent(Vec<CalendarProperty>);

impl CalendarEvent {
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a CalendarProperty> {
        self.0.iter().filter(move |property| property.name == name)
    }

    pub fn first(&self, name: &str) -> Option<&CalendarProperty> {
        self.0.iter().find(|property| property.name == name)
    }
}

/// A calendar object: its method and events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalendarObject {
    /// The method in upper case, such as `REQUEST` or `CANCEL`; empty if there is none.
    pub method: String,
    pub events: Vec<CalendarEvent>,
}

impl CalendarObject {
    /// Parses an object; returns `None` if it contains no event.
    pub fn parse(text: &str) -> Option<Self> {
        let mut calendar = Self::default();
        // The names of the open components.
        let mut open: Vec<String> = Vec::new();
        for line in unfold(text) {
            let Some(property) = CalendarProperty::parse(&line) else { continue };
            let is_event =
                |open: &[String]| open.last().is_some_and(|name| matches!(name.as_str(), "VEVENT" | "VTODO"));
            match property.name.as_str() {
                "BEGIN" if open.len() < 10 => {
                    open.push(property.value.trim().to_ascii_uppercase());
                    if is_event(&open) && calendar.events.len() < MAX_EVENTS {
                        calendar.events.push(CalendarEvent::default());
                    } else if is_event(&open) {
                        break;
                    }
                }
                "END" => {
                    open.pop();
                }
                "METHOD" => calendar.method = property.value.trim().to_ascii_uppercase(),
                _ if is_event(&open) => {
                    if let Some(event) = calendar.events.last_mut().filter(|event| event.0.len() < MAX_PROPERTIES) {
                        event.0.push(property);
                    }
                }
                _ => {}
            }
        }
        (!calendar.events.is_empty()).then_some(calendar)
    }
}

/// Joins folded lines (RFC 5545, section 3.1).
fn unfold(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().map(|line| line.trim_end_matches('\r')).take(20_000) {
        match (line.strip_prefix([' ', '\t']), lines.last_mut()) {
            (Some(more), Some(last)) => {
                let room = MAX_LINE.saturating_sub(last.len());
                last.push_str(&more[..more.floor_char_boundary(room)]);
            }
            _ => lines.push(line[..line.floor_char_boundary(MAX_LINE)].to_owned()),
        }
    }
    lines
}

/// A date, or a date with a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrTime {
    Date(Date),
    Time { at: DateTime, is_utc: bool },
}

/// Parses `20260303` or `20260303T100000Z`. Also returns it as text for display.
pub fn parse_date_or_time(value: &str) -> Option<(String, DateOrTime)> {
    let value = value.trim();
    let number = |range: std::ops::Range<usize>| value.get(range)?.parse::<i16>().ok();
    let small = |range: std::ops::Range<usize>| value.get(range)?.parse::<i8>().ok();
    let date = Date::new(number(0..4)?, small(4..6)?, small(6..8)?).ok()?;
    let day = format!("{date} ({})", date.strftime("%A"));
    let Some(rest) = value.get(8..).filter(|rest| !rest.is_empty()) else {
        return Some((day, DateOrTime::Date(date)));
    };
    if !rest.starts_with(['T', 't']) {
        return None;
    }
    let seconds = small(13..15).unwrap_or(0).min(59);
    let time = Time::new(small(9..11)?, small(11..13)?, seconds, 0).ok()?;
    let is_utc = value.ends_with(['Z', 'z']);
    Some((format!("{day} {}", time.strftime("%H:%M")), DateOrTime::Time { at: date.to_datetime(time), is_utc }))
}
