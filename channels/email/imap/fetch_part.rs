//! Reads a part of a mail directly into its buffer. Own code because the `imap` crate would check after each line whether
//! the response is complete, and would hold everything twice.

use std::io;

use super::error::display_line;
use super::stream::{ImapStream, literal};

/// Longest response without its literals, in bytes.
const MAX_FRAME: usize = 64 * 1_024;

/// The result of fetching a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartOutcome {
    /// The part was appended.
    Found,
    /// The mail does not exist.
    Missing,
    /// The server refused the command.
    Rejected,
}

/// Reads the response to `UID FETCH uid (UID BODY.PEEK[]<…>)`, and appends the part to `into`.
///
/// # Errors
/// The connection is lost, the server sends a literal of more than `max` bytes, or the response is malformed
/// (`InvalidData`).
pub fn read_part(stream: &ImapStream, uid: u32, max: u64, into: &mut Vec<u8>) -> io::Result<PartOutcome> {
    let mut outcome = PartOutcome::Missing;
    loop {
        let before = into.len();
        let mut frame = String::new();
        loop {
            let line = stream.read_line()?;
            frame.push_str(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']));
            if frame.len() > MAX_FRAME {
                return Err(invalid_data("the server sends a response without end"));
            }
            let Some(size) = literal(&line) else { break };
            if size > max {
                return Err(invalid_data("the server sent more than it was asked for"));
            }
            let from = into.len();
            stream.read_into(size, into)?;
            // Literals of other items were not requested.
            if from > before || !frame.contains("BODY[]") {
                into.truncate(from);
            }
        }
        let mut words = frame.split_ascii_whitespace();
        match (words.next().unwrap_or_default(), words.nth(1)) {
            ("*", Some(word)) if word.eq_ignore_ascii_case("FETCH") => match parse_fetch(&frame) {
                Some((found, quoted)) if found == uid && outcome == PartOutcome::Missing => {
                    into.extend_from_slice(quoted.as_bytes());
                    outcome = PartOutcome::Found;
                }
                // An unsolicited FETCH reports changed flags.
                _ => into.truncate(before),
            },
            ("*" | "+", _) => into.truncate(before),
            _ => return parse_completion(&frame, outcome),
        }
    }
}

fn parse_completion(frame: &str, outcome: PartOutcome) -> io::Result<PartOutcome> {
    match frame.split_ascii_whitespace().nth(1).unwrap_or_default().to_ascii_uppercase().as_str() {
        "OK" => Ok(outcome),
        "NO" | "BAD" => Ok(PartOutcome::Rejected),
        _ => Err(invalid_data(&format!(
            "the server's answer cannot be understood, at: {}",
            display_line(frame.as_bytes())
        ))),
    }
}

/// Parses the UID of a FETCH response, and the part if it is so short that it is a quoted string.
fn parse_fetch(frame: &str) -> Option<(u32, String)> {
    let (mut bare, mut quoted, mut is_section) = (String::new(), String::new(), false);
    let mut chars = frame.chars();
    while let Some(c) = chars.next() {
        if c != '"' {
            bare.push(c);
            continue;
        }
        is_section |= bare.trim_end().rsplit(' ').next().is_some_and(|word| word.contains("BODY[]"));
        let mut text = String::new();
        while let Some(c) = chars.next().filter(|c| *c != '"') {
            text.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
        }
        if is_section && quoted.is_empty() {
            quoted = text;
        }
    }
    let words = bare.split(|c: char| c.is_ascii_whitespace() || c == '(' || c == ')');
    let uid = words.skip_while(|word| !word.eq_ignore_ascii_case("UID")).nth(1)?;
    Some((uid.parse().ok()?, quoted))
}

fn invalid_data(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::email::imap::stream::ResponseLimit;

    fn read_response(text: &str) -> (Result<PartOutcome, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.accept().unwrap().0.write_all(text.as_bytes()).unwrap();
        let wait = Duration::from_secs(5);
        let stream = ImapStream::new(socket, ResponseLimit { bytes: 1_000, silence: wait, total: wait });
        let mut into = b"so far ".to_vec();
        let outcome = read_part(&stream, 7, 20, &mut into).map_err(|error| error.to_string());
        (outcome, String::from_utf8(into).unwrap())
    }

    #[test]
    fn a_part_is_found_among_unsolicited_responses() {
        for (text, end, into) in [
            ("* 1 FETCH (UID 7 BODY[]<0> {5}\r\nab\r\nc)\r\na1 OK\r\n", PartOutcome::Found, "so far ab\r\nc"),
            ("* 1 FETCH (BODY[]<0> {3}\r\nabc UID 7)\r\na1 OK\r\n", PartOutcome::Found, "so far abc"),
            (
                "* 9 EXISTS\r\n* 1 FETCH (UID 7 BODY[]<0> {8}\r\na1 OK x\n)\r\n* 1 FETCH (UID 7 FLAGS (\\Seen))\r\na1 OK\r\n",
                PartOutcome::Found,
                "so far a1 OK x\n",
            ),
            ("* 1 FETCH (UID 8 BODY[]<0> {3}\r\nabc)\r\na1 OK\r\n", PartOutcome::Missing, "so far "),
            ("* 1 FETCH (UID 7 BODY[]<0> \"a\\\"b UID 9\")\r\na1 OK\r\n", PartOutcome::Found, "so far a\"b UID 9"),
            ("* 1 FETCH (UID 7 BODY[]<40> \"\")\r\na1 OK\r\n", PartOutcome::Found, "so far "),
            ("* 1 FETCH (UID 7 BODY[]<40> NIL)\r\na1 OK\r\n", PartOutcome::Found, "so far "),
            ("a1 OK nothing\r\n", PartOutcome::Missing, "so far "),
            ("a1 NO gone\r\n", PartOutcome::Rejected, "so far "),
        ] {
            assert_eq!(read_response(text), (Ok(end), into.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_malformed_response_is_an_error() {
        for (text, wanted) in [
            ("* 1 FETCH (UID 7 BODY[]<0> {21}\r\n", "more than it was asked for"),
            ("* 1 FETCH (UID 7 BODY[]<0> {99999999999999999999}\r\n", "end of file"),
            ("220 what\r\n", "cannot be understood"),
            ("\r\n", "cannot be understood"),
            ("* 1 FETCH (UID 7 BODY[]<0> {9}\r\nabc", "end of file"),
        ] {
            let error = read_response(text).0.unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
