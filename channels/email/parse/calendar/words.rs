//! An invitation in words.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use super::object::{Calendar, Event, Property};
use super::repeats;
use crate::email::parse::clean::{clean_line, clean_text, cut_to};

const MAX_LINE: usize = 500;
const MAX_NOTES: usize = 5_000;
/// Of those invited, as many are named.
const MAX_PEOPLE: usize = 30;

/// Says what an iCalendar object invites to, changes or cancels; `None` if it is none.
pub fn describe(text: &str) -> Option<String> {
    let calendar = Calendar::parse(text)?;
    let events: Vec<String> = calendar.events.iter().map(|event| describe_event(&calendar.method, event)).collect();
    Some(events.join("\n\n"))
}

fn describe_event(method: &str, event: &Event) -> String {
    let line = |name: &str| {
        event.first(name).map(|property| limited(&clean_line(&property.text()))).filter(|text| !text.is_empty())
    };
    let mut out =
        format!("{}: {}", what(method, event), line("SUMMARY").unwrap_or_else(|| "(without a title)".to_owned()));
    let mut say = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            out.push_str(&format!("\n{name}: {value}"));
        }
    };
    say("When", event.first("DTSTART").map(|start| when(start, event)));
    say("Due", event.first("DUE").map(|due| when(due, event)));
    say("Repeats", event.first("RRULE").map(|rule| repeats::in_words(&limited(&clean_line(&rule.value)))));
    say("Only the one of", event.first("RECURRENCE-ID").map(|of| when(of, &Event::default())));
    say("Where", line("LOCATION"));
    say("Link", line("URL"));
    say("Organiser", event.first("ORGANIZER").map(person));
    let people: Vec<String> = event.all("ATTENDEE").take(MAX_PEOPLE).map(person).collect();
    let more = event.all("ATTENDEE").count().saturating_sub(MAX_PEOPLE);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    say("Invited", (!people.is_empty()).then(|| people.join(", ") + &more));
    let notes = event.first("DESCRIPTION").map(|property| {
        let mut notes = clean_text(&property.text()).trim().to_owned();
        cut_to(&mut notes, MAX_NOTES);
        notes
    });
    say("Notes", notes.filter(|notes| !notes.is_empty()));
    out
}

/// What is to be done with the event (RFC 5546, section 1.4).
fn what(method: &str, event: &Event) -> &'static str {
    let is = |name: &str, value: &str| {
        event.first(name).is_some_and(|property| property.value.trim().eq_ignore_ascii_case(value))
    };
    let is_changed = event
        .first("SEQUENCE")
        .and_then(|property| property.value.trim().parse::<u32>().ok())
        .is_some_and(|number| number > 0);
    match method {
        "CANCEL" => "Cancelled",
        _ if is("STATUS", "CANCELLED") => "Cancelled",
        "REQUEST" if is_changed => "Invitation, changed",
        "REQUEST" => "Invitation",
        "REPLY" => "Answer to an invitation",
        "COUNTER" => "Another time is proposed",
        "DECLINECOUNTER" => "Another time was declined",
        _ => "Event",
    }
}

/// `2026-03-03 10:00–11:00 (Asia/Shanghai, UTC+08:00)`
fn when(start: &Property, event: &Event) -> String {
    let Some((from, first)) = moment(&start.value) else { return limited(&clean_line(&start.value)) };
    let end = event.first("DTEND").and_then(|end| Some((moment(&end.value)?, end)));
    let mut said = from;
    match (&first, end) {
        // The end of whole days is the day after the last (RFC 5545, section 3.6.1).
        (Moment::Day(first), Some(((_, Moment::Day(end)), _))) => {
            if let Ok(last) = end.yesterday()
                && last > *first
            {
                said.push_str(&format!(" to {last}"));
            }
        }
        (Moment::Time { at, .. }, Some(((to, Moment::Time { at: end, .. }), _))) => {
            if at.date() == end.date() {
                said.push_str(&format!("–{}", clock(end.time())));
            } else {
                said.push_str(&format!(" to {to}"));
            }
        }
        _ => {
            if let Some(duration) = event.first("DURATION") {
                said.push_str(&format!(
                    ", for {}",
                    limited(&clean_line(duration.value.trim().trim_start_matches(['P', 'T'])))
                ));
            }
        }
    }
    match first {
        Moment::Day(_) => said + ", all day",
        Moment::Time { is_utc: true, .. } => said + " (UTC)",
        Moment::Time { at, .. } => match start.param("TZID") {
            Some(zone) => {
                let zone = limited(&clean_line(zone));
                let known = TimeZone::get(&zone)
                    .ok()
                    .and_then(|known| known.to_timestamp(at).ok().map(|time| known.to_offset(time)));
                match known {
                    Some(offset) => format!("{said} ({zone}, UTC{offset})"),
                    None => format!("{said} ({zone})"),
                }
            }
            None => said + " (local time)",
        },
    }
}

/// A day, or a time of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Day(Date),
    Time { at: DateTime, is_utc: bool },
}

/// Reads `20260303` or `20260303T100000Z`, also as it is shown.
pub fn moment(value: &str) -> Option<(String, Moment)> {
    let value = value.trim();
    let number = |range: std::ops::Range<usize>| value.get(range)?.parse::<i16>().ok();
    let small = |range: std::ops::Range<usize>| value.get(range)?.parse::<i8>().ok();
    let date = Date::new(number(0..4)?, small(4..6)?, small(6..8)?).ok()?;
    let Some(rest) = value.get(8..).filter(|rest| !rest.is_empty()) else {
        return Some((format!("{date} ({})", weekday(date)), Moment::Day(date)));
    };
    if !rest.starts_with(['T', 't']) {
        return None;
    }
    let seconds = small(13..15).unwrap_or(0).min(59);
    let time = Time::new(small(9..11)?, small(11..13)?, seconds, 0).ok()?;
    let is_utc = value.ends_with(['Z', 'z']);
    Some((format!("{date} ({}) {}", weekday(date), clock(time)), Moment::Time { at: date.to_datetime(time), is_utc }))
}

fn clock(time: Time) -> String {
    format!("{:02}:{:02}", time.hour(), time.minute())
}

fn weekday(date: Date) -> &'static str {
    use jiff::civil::Weekday::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday, Wednesday};
    match date.weekday() {
        Monday => "Monday",
        Tuesday => "Tuesday",
        Wednesday => "Wednesday",
        Thursday => "Thursday",
        Friday => "Friday",
        Saturday => "Saturday",
        Sunday => "Sunday",
    }
}

/// Name, address, and what somebody said.
fn person(property: &Property) -> String {
    let value = property.value.trim();
    let is_mail = value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("mailto:"));
    let address = clean_line(if is_mail { &value[7..] } else { value });
    let name = property.param("CN").map(clean_line).filter(|name| !name.is_empty() && *name != address);
    let mut said = match name {
        Some(name) => format!("{name} <{address}>"),
        None => address,
    };
    let answer = match property.param("PARTSTAT").map(str::to_ascii_uppercase).as_deref() {
        Some("ACCEPTED") => " (accepted)",
        Some("DECLINED") => " (declined)",
        Some("TENTATIVE") => " (perhaps)",
        _ => "",
    };
    cut_to(&mut said, MAX_LINE);
    said + answer
}

fn limited(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_LINE)].to_owned()
}
