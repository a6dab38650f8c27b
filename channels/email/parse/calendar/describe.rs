//! Describes an invitation as text.

use jiff::tz::TimeZone;

use super::ical::{CalendarEvent, CalendarObject, CalendarProperty, DateOrTime, parse_date_or_time};
use super::recurrence::describe_recurrence;
use crate::sanitize::{sanitize_line, sanitize_text, truncate};
use crate::text::beginning;

/// Longest line of the description in bytes.
const MAX_LINE: usize = 500;
/// Longest notes in bytes.
const MAX_NOTES: usize = 5_000;
/// Largest number of named attendees.
const MAX_ATTENDEES: usize = 30;

/// Describes the invitation, change or cancellation in an iCalendar object; returns `None` if it contains no event.
pub fn describe(text: &str) -> Option<String> {
    let calendar = CalendarObject::parse(text)?;
    let events: Vec<String> = calendar.events.iter().map(|event| describe_event(&calendar.method, event)).collect();
    Some(events.join("\n\n"))
}

fn describe_event(method: &str, event: &CalendarEvent) -> String {
    let line = |name: &str| {
        event.first(name).map(|property| shorten(&sanitize_line(&property.text()))).filter(|text| !text.is_empty())
    };
    let mut out =
        format!("{}: {}", action(method, event), line("SUMMARY").unwrap_or_else(|| "(without a title)".to_owned()));
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            out.push_str(&format!("\n{name}: {value}"));
        }
    };
    add("When", event.first("DTSTART").map(|start| describe_time(start, event)));
    add("Due", event.first("DUE").map(|due| describe_time(due, event)));
    add("Repeats", event.first("RRULE").map(|rule| describe_recurrence(&shorten(&sanitize_line(&rule.value)))));
    add("Only the one of", event.first("RECURRENCE-ID").map(|of| describe_time(of, &CalendarEvent::default())));
    add("Where", line("LOCATION"));
    add("Link", line("URL"));
    add("Organiser", event.first("ORGANIZER").map(describe_person));
    let attendees: Vec<String> = event.all("ATTENDEE").take(MAX_ATTENDEES).map(describe_person).collect();
    let more = event.all("ATTENDEE").count().saturating_sub(MAX_ATTENDEES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    add("Invited", (!attendees.is_empty()).then(|| attendees.join(", ") + &more));
    let notes = event.first("DESCRIPTION").map(|property| {
        let mut notes = sanitize_text(&property.text()).trim().to_owned();
        truncate(&mut notes, MAX_NOTES);
        notes
    });
    add("Notes", notes.filter(|notes| !notes.is_empty()));
    out
}

/// Returns the sender's action on the event (RFC 5546, section 1.4).
fn action(method: &str, event: &CalendarEvent) -> &'static str {
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

/// Describes the time of an event: `2026-03-03 10:00–11:00 (Asia/Shanghai, UTC+08:00)`.
fn describe_time(start: &CalendarProperty, event: &CalendarEvent) -> String {
    let Some((from, first)) = parse_date_or_time(&start.value) else { return shorten(&sanitize_line(&start.value)) };
    let end = event.first("DTEND").and_then(|end| Some((parse_date_or_time(&end.value)?, end)));
    let mut out = from;
    match (&first, end) {
        // The end of an all-day event is the day after the last day (RFC 5545, section 3.6.1).
        (DateOrTime::Date(first), Some(((_, DateOrTime::Date(end)), _))) => {
            if let Ok(last) = end.yesterday()
                && last > *first
            {
                out.push_str(&format!(" to {last}"));
            }
        }
        (DateOrTime::Time { at, .. }, Some(((to, DateOrTime::Time { at: end, .. }), _))) => {
            if at.date() == end.date() {
                out.push_str(&format!("–{}", end.strftime("%H:%M")));
            } else {
                out.push_str(&format!(" to {to}"));
            }
        }
        _ => {
            if let Some(duration) = event.first("DURATION") {
                let duration = sanitize_line(duration.value.trim().trim_start_matches(['P', 'T']));
                out.push_str(&format!(", for {}", shorten(&duration)));
            }
        }
    }
    match first {
        DateOrTime::Date(_) => out + ", all day",
        DateOrTime::Time { is_utc: true, .. } => out + " (UTC)",
        DateOrTime::Time { at, .. } => match start.param("TZID") {
            Some(zone) => {
                let zone = shorten(&sanitize_line(zone));
                let known = TimeZone::get(&zone)
                    .ok()
                    .and_then(|known| known.to_timestamp(at).ok().map(|time| known.to_offset(time)));
                match known {
                    Some(offset) => format!("{out} ({zone}, UTC{offset})"),
                    None => format!("{out} ({zone})"),
                }
            }
            None => out + " (local time)",
        },
    }
}

/// Describes a person: name, address and response.
fn describe_person(property: &CalendarProperty) -> String {
    let value = property.value.trim();
    let is_mail = value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("mailto:"));
    let address = sanitize_line(if is_mail { &value[7..] } else { value });
    let name = property.param("CN").map(sanitize_line).filter(|name| !name.is_empty() && *name != address);
    let mut out = match name {
        Some(name) => format!("{name} <{address}>"),
        None => address,
    };
    let answer = match property.param("PARTSTAT").map(str::to_ascii_uppercase).as_deref() {
        Some("ACCEPTED") => " (accepted)",
        Some("DECLINED") => " (declined)",
        Some("TENTATIVE") => " (perhaps)",
        _ => "",
    };
    truncate(&mut out, MAX_LINE);
    out + answer
}

fn shorten(text: &str) -> String {
    beginning(text, MAX_LINE).to_owned()
}
