//! An iCalendar object's lines (RFC 5545, section 3.1), as far as an invitation needs them.

/// Events beyond these are left out.
const MAX_EVENTS: usize = 10;
/// Lines and their lengths beyond these are passed over.
const MAX_PROPERTIES: usize = 300;
const MAX_LINE: usize = 10_000;

/// `NAME;PARAM=VALUE:VALUE`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Property {
    pub name: String,
    params: Vec<(String, String)>,
    pub value: String,
}

impl Property {
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

    /// The value as text (RFC 5545, section 3.3.11).
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

/// Properties of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event(Vec<Property>);

impl Event {
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Property> {
        self.0.iter().filter(move |property| property.name == name)
    }

    pub fn first(&self, name: &str) -> Option<&Property> {
        self.0.iter().find(|property| property.name == name)
    }
}

/// What is wanted of whom, and the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    /// In upper case: `REQUEST`, `CANCEL`; empty where there is none.
    pub method: String,
    pub events: Vec<Event>,
}

impl Calendar {
    /// Reads an object; without an event it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut calendar = Self::default();
        // The names of the components that are open.
        let mut open: Vec<String> = Vec::new();
        for line in unfold(text) {
            let Some(property) = Property::parse(&line) else { continue };
            let is_event =
                |open: &[String]| open.last().is_some_and(|name| matches!(name.as_str(), "VEVENT" | "VTODO"));
            match property.name.as_str() {
                "BEGIN" if open.len() < 10 => {
                    open.push(property.value.trim().to_ascii_uppercase());
                    if is_event(&open) && calendar.events.len() < MAX_EVENTS {
                        calendar.events.push(Event::default());
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

/// Lines as they were before they were folded.
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
