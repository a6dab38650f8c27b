//! A part of a mail, read straight into its place. The crate would look at each of its lines again whether the answer is at its
//! end, and hold all of it twice.

use std::io;

use super::error::shown;
use super::stream::{Stream, literal};

/// The longest answer, without what it carries.
const MOST_FRAME: usize = 64 * 1_024;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The part is there.
    Found,
    /// There is no such mail.
    Missing,
    /// The server said no.
    Denied,
}

/// Reads the answer to `UID FETCH uid (UID BODY.PEEK[]<…>)`, and puts the part behind what is in `into`.
///
/// # Errors
/// The connection is lost, or the server sends more than `most` bytes or what is no such answer (`InvalidData`).
pub fn read(stream: &Stream, uid: u32, most: u64, into: &mut Vec<u8>) -> io::Result<End> {
    let mut end = End::Missing;
    loop {
        let before = into.len();
        let mut frame = String::new();
        loop {
            let line = stream.read_line()?;
            frame.push_str(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']));
            if frame.len() > MOST_FRAME {
                return Err(wrong("the server sends an answer without end"));
            }
            let Some(size) = literal(&line) else { break };
            if size > most {
                return Err(wrong("the server sent more than it was asked for"));
            }
            let from = into.len();
            stream.read_into(size, into)?;
            // Of other things that come as literals nobody asked for any.
            if from > before || !frame.contains("BODY[]") {
                into.truncate(from);
            }
        }
        let mut words = frame.split_ascii_whitespace();
        match (words.next().unwrap_or_default(), words.nth(1)) {
            ("*", Some(word)) if word.eq_ignore_ascii_case("FETCH") => match of_uid(&frame) {
                Some((found, quoted)) if found == uid && end == End::Missing => {
                    into.extend_from_slice(quoted.as_bytes());
                    end = End::Found;
                }
                // Somebody changed a mail's flags meanwhile.
                _ => into.truncate(before),
            },
            ("*" | "+", _) => into.truncate(before),
            _ => return ended(&frame, end),
        }
    }
}

fn ended(frame: &str, end: End) -> io::Result<End> {
    match frame.split_ascii_whitespace().nth(1).unwrap_or_default().to_ascii_uppercase().as_str() {
        "OK" => Ok(end),
        "NO" | "BAD" => Ok(End::Denied),
        _ => Err(wrong(&format!("the server's answer cannot be understood, at: {}", shown(frame.as_bytes())))),
    }
}

/// Whose answer it is, and the part where that is so small that it came as a quoted string.
fn of_uid(frame: &str) -> Option<(u32, String)> {
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

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::email::imap::stream::Limit;

    fn answer(text: &str) -> (Result<End, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.accept().unwrap().0.write_all(text.as_bytes()).unwrap();
        let wait = Duration::from_secs(5);
        let stream = Stream::new(socket, Limit { bytes: 1_000, silence: wait, total: wait });
        let mut into = b"so far ".to_vec();
        let end = read(&stream, 7, 20, &mut into).map_err(|error| error.to_string());
        (end, String::from_utf8(into).unwrap())
    }

    #[test]
    fn a_part_is_found_among_what_else_comes() {
        for (text, end, into) in [
            ("* 1 FETCH (UID 7 BODY[]<0> {5}\r\nab\r\nc)\r\na1 OK\r\n", End::Found, "so far ab\r\nc"),
            ("* 1 FETCH (BODY[]<0> {3}\r\nabc UID 7)\r\na1 OK\r\n", End::Found, "so far abc"),
            (
                "* 9 EXISTS\r\n* 1 FETCH (UID 7 BODY[]<0> {8}\r\na1 OK x\n)\r\n* 1 FETCH (UID 7 FLAGS (\\Seen))\r\na1 OK\r\n",
                End::Found,
                "so far a1 OK x\n",
            ),
            ("* 1 FETCH (UID 8 BODY[]<0> {3}\r\nabc)\r\na1 OK\r\n", End::Missing, "so far "),
            ("* 1 FETCH (UID 7 BODY[]<0> \"a\\\"b UID 9\")\r\na1 OK\r\n", End::Found, "so far a\"b UID 9"),
            ("* 1 FETCH (UID 7 BODY[]<40> \"\")\r\na1 OK\r\n", End::Found, "so far "),
            ("* 1 FETCH (UID 7 BODY[]<40> NIL)\r\na1 OK\r\n", End::Found, "so far "),
            ("a1 OK nothing\r\n", End::Missing, "so far "),
            ("a1 NO gone\r\n", End::Denied, "so far "),
        ] {
            assert_eq!(answer(text), (Ok(end), into.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_answer_is_a_fault() {
        for (text, wanted) in [
            ("* 1 FETCH (UID 7 BODY[]<0> {21}\r\n", "more than it was asked for"),
            ("* 1 FETCH (UID 7 BODY[]<0> {99999999999999999999}\r\n", "end of file"),
            ("220 what\r\n", "cannot be understood"),
            ("\r\n", "cannot be understood"),
            ("* 1 FETCH (UID 7 BODY[]<0> {9}\r\nabc", "end of file"),
        ] {
            let error = answer(text).0.unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
