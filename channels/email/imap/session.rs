//! A connection that is logged in, and what is asked on it.

use std::io;
use std::time::{Duration, Instant};

use imap::types::{Fetch, Flag};
use imap::{Client, Session};
use jiff::Timestamp;

use super::connect::{dial, lost};
use super::error::Trouble;
use super::fetch_part::{self, End};
use super::login::Access;
use super::mailbox_name::{encode, escape};
use super::stream::{Closer, Limit, Stream};

/// As much of a mail as is asked for at once. What the parser holds, and what an answer may weigh, follows from it.
const PART: u32 = 512 * 1_024;
/// The longest header that is read.
const MOST_HEADER: u32 = 64 * 1_024;
/// What an answer may weigh beside what was asked for.
const BESIDE: u64 = 256 * 1_024;
/// What a list of mails may weigh: some two million of them.
const MOST_LIST: u64 = 16 * 1_024 * 1_024;
/// How long one answer may take altogether.
const TOTAL: Duration = Duration::from_secs(120);
/// The same, for what a server may have to look for.
const TOTAL_LIST: Duration = Duration::from_secs(300);

/// A connection that is logged in.
pub struct Link {
    session: Session<Stream>,
    stream: Stream,
    silence: Duration,
    pub can: Can,
}

/// What the server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Can {
    /// RFC 2177.
    pub idle: bool,
    /// RFC 6851.
    pub moves: bool,
    /// RFC 4315.
    pub uidplus: bool,
    /// RFC 2971.
    pub id: bool,
}

/// What is said of a mailbox that was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    pub validity: Option<u32>,
    /// The UID that the next mail gets.
    pub next: Option<u32>,
    pub read_only: bool,
}

impl Opened {
    fn read(answer: &[u8]) -> Self {
        let mut opened = Self::default();
        for line in answer.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line).to_ascii_uppercase();
            let number = |code: &str| {
                let (_, rest) = line.split_once(code)?;
                rest.split(']').next()?.trim().parse().ok()
            };
            // Codes stand directly behind the state (RFC 3501, section 7.1); text behind them means nothing.
            if line.starts_with("* OK [UIDVALIDITY ") {
                opened.validity = number("[UIDVALIDITY ");
            } else if line.starts_with("* OK [UIDNEXT ") {
                opened.next = number("[UIDNEXT ");
            } else if !line.starts_with('*') && line.contains(" OK [READ-ONLY]") {
                opened.read_only = true;
            }
        }
        opened
    }
}

/// What is known of a mail before it is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// As the server says; not always true.
    pub size: u64,
    /// Absent where the server says nothing that is a date.
    pub received_at: Option<Timestamp>,
}

/// What came of fetching a mail.
#[derive(Debug, PartialEq, Eq)]
pub enum Fetched {
    Whole(Vec<u8>),
    /// It is larger than was said, and than is wanted.
    TooLarge,
    /// It is gone.
    Vanished,
}

/// How waiting for mail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idled {
    /// Something arrived.
    News,
    /// It is time to look whether the server is still there.
    Quiet,
}

impl Link {
    /// Connects and logs in.
    ///
    /// `silence` is the longest time without a byte from the server, wherever something is asked of it.
    ///
    /// # Errors
    /// No connection, or no login.
    pub fn open(access: &Access, silence: Duration, closer: &Closer) -> Result<Self, Trouble> {
        let limit = Limit { bytes: BESIDE, silence, total: TOTAL };
        let stream = dial(&access.server, access.tls.clone(), limit, closer)?;
        let mut client = Client::new(stream.clone());
        stream.arm(limit);
        let can = client.capabilities().map_err(|error| trouble(&error, &stream))?;
        stream.arm(limit);
        let session = access.log_in(client, &can, &stream)?;
        let mut link = Self { session, stream, silence, can: Can::default() };
        // Many servers offer more to those whom they know.
        let can = link.ask(BESIDE, Session::capabilities)?;
        link.can = Can {
            idle: can.has_str("IDLE"),
            moves: can.has_str("MOVE"),
            uidplus: can.has_str("UIDPLUS"),
            id: can.has_str("ID"),
        };
        link.introduce()?;
        Ok(link)
    }

    /// 163.com and 126.com open no mailbox to who has not said what he is.
    fn introduce(&mut self) -> Result<(), Trouble> {
        if !self.can.id {
            return Ok(());
        }
        let id =
            format!("ID (\"name\" \"daoyou\" \"version\" \"{}\" \"vendor\" \"daoyou\")", env!("CARGO_PKG_VERSION"));
        match self.ask(BESIDE, |session| session.run_command_and_read_response(&id)) {
            // Nothing depends on it elsewhere.
            Err(Trouble::Denied(_)) => Ok(()),
            said => said.map(|_| ()),
        }
    }

    /// Opens a mailbox.
    ///
    /// # Errors
    /// [`Trouble::Denied`] where there is none of that name.
    pub fn select(&mut self, mailbox: &str) -> Result<Opened, Trouble> {
        self.open_mailbox("SELECT", mailbox)
    }

    /// Opens a mailbox in which nothing is to be changed.
    ///
    /// # Errors
    /// As [`Link::select`].
    pub fn examine(&mut self, mailbox: &str) -> Result<Opened, Trouble> {
        self.open_mailbox("EXAMINE", mailbox)
    }

    fn open_mailbox(&mut self, verb: &str, mailbox: &str) -> Result<Opened, Trouble> {
        let command = format!("{verb} {}", quoted(mailbox));
        // The crate's own reading stops the thread where a server warns meanwhile (an untagged NO).
        let (answer, _) = self.ask(BESIDE, |session| session.run(&command))?;
        Ok(Opened::read(&answer))
    }

    /// The UIDs of the mails that match, in order (RFC 3501, section 6.4.4).
    pub fn search(&mut self, query: &str) -> Result<Vec<u32>, Trouble> {
        let limit = Limit { bytes: MOST_LIST, silence: self.silence, total: TOTAL_LIST };
        let command = format!("UID SEARCH {query}");
        let answer = self.ask_within(limit, |session| session.run_command_and_read_response(&command))?;
        let mut found = found(&answer);
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Size and time of a mail; `None` where it is gone.
    pub fn about(&mut self, uid: u32) -> Result<Option<About>, Trouble> {
        self.fetch(uid, "(UID RFC822.SIZE INTERNALDATE)", 0, |fetch| About {
            size: fetch.size.map_or(0, u64::from),
            received_at: fetch.internal_date().and_then(|at| Timestamp::from_second(at.timestamp()).ok()),
        })
    }

    /// A mail's header, as far as is of use; `None` where it is gone.
    pub fn header(&mut self, uid: u32) -> Result<Option<Vec<u8>>, Trouble> {
        let query = format!("(UID BODY.PEEK[HEADER]<0.{MOST_HEADER}>)");
        self.fetch(uid, &query, MOST_HEADER, |fetch| fetch.header().unwrap_or_default().to_vec())
    }

    /// A mail, in parts: its size as the server says it is a hint, and `most` a bound.
    pub fn whole(&mut self, uid: u32, size: u64, most: u64) -> Result<Fetched, Trouble> {
        let mut mail = Vec::with_capacity(usize::try_from(size.min(most)).unwrap_or(0));
        // Servers may give less than was asked for; none that means well gives crumbs.
        for _ in 0..most / u64::from(PART) * 2 + 16 {
            let before = mail.len();
            match self.part(uid, &mut mail)? {
                End::Found => {}
                End::Missing => return Ok(Fetched::Vanished),
                End::Denied => return Err(Trouble::Denied(self.stream.explanation())),
            }
            let got = (mail.len() - before) as u64;
            if mail.len() as u64 > most {
                return Ok(Fetched::TooLarge);
            }
            // More than a part: the server knows no parts, and this is all.
            if got == 0 || got > u64::from(PART) || (got < u64::from(PART) && mail.len() as u64 >= size) {
                return Ok(Fetched::Whole(mail));
            }
        }
        Err(Trouble::Garbled("the server sends a mail in crumbs".to_owned()))
    }

    /// What comes next of a mail.
    fn part(&mut self, uid: u32, mail: &mut Vec<u8>) -> Result<End, Trouble> {
        let most = u64::from(PART) + BESIDE;
        self.stream.arm(Limit { bytes: most, silence: self.silence, total: TOTAL });
        let command = format!("UID FETCH {uid} (UID BODY.PEEK[]<{}.{PART}>)", mail.len());
        self.session.run_command(&command).map_err(|error| trouble(&error, &self.stream))?;
        fetch_part::read(&self.stream, uid, most, mail).map_err(|error| self.lost(&error))
    }

    /// Marks a mail as read.
    pub fn mark_seen(&mut self, uid: u32) -> Result<(), Trouble> {
        self.tell(&format!("UID STORE {uid} +FLAGS.SILENT (\\Seen)"))
    }

    /// Moves a mail to another mailbox, which is made where it is not there. Where the server can do no better the old one
    /// stays, marked as deleted: whoever expunges would remove what others marked, too.
    pub fn move_to(&mut self, uid: u32, mailbox: &str) -> Result<(), Trouble> {
        match self.try_move(uid, mailbox) {
            Err(Trouble::Denied(_)) if self.create(mailbox).is_ok() => self.try_move(uid, mailbox),
            moved => moved,
        }
    }

    fn try_move(&mut self, uid: u32, mailbox: &str) -> Result<(), Trouble> {
        let name = quoted(mailbox);
        if self.can.moves {
            return self.tell(&format!("UID MOVE {uid} {name}"));
        }
        self.tell(&format!("UID COPY {uid} {name}"))?;
        self.tell(&format!("UID STORE {uid} +FLAGS.SILENT (\\Deleted)"))?;
        if self.can.uidplus {
            self.tell(&format!("UID EXPUNGE {uid}"))?;
        }
        Ok(())
    }

    fn create(&mut self, mailbox: &str) -> Result<(), Trouble> {
        self.tell(&format!("CREATE {}", quoted(mailbox)))
    }

    /// Lays a mail into a mailbox, marked as read; the mailbox is made where it is not there.
    pub fn append(&mut self, mailbox: &str, mail: &[u8]) -> Result<(), Trouble> {
        match self.try_append(mailbox, mail) {
            Err(Trouble::Denied(_)) if self.create(mailbox).is_ok() => self.try_append(mailbox, mail),
            appended => appended,
        }
    }

    fn try_append(&mut self, mailbox: &str, mail: &[u8]) -> Result<(), Trouble> {
        let name = escape(&encode(mailbox));
        let limit = Limit { bytes: BESIDE, silence: self.silence, total: TOTAL_LIST };
        self.ask_within(limit, |session| session.append(&name, mail).flag(Flag::Seen).finish()).map(|_| ())
    }

    /// Whether the server is still there.
    pub fn noop(&mut self) -> Result<(), Trouble> {
        self.tell("NOOP")
    }

    /// Whether the server told of a mail since this was last asked: a search that it told so in does not name it.
    pub fn take_news(&self) -> bool {
        self.stream.take_news()
    }

    /// Waits until a mail arrives (RFC 2177): at most `quiet` without a word from the server, and at most `longest`.
    ///
    /// Written here because the crate's own takes anything that comes before the continuation for the command's end.
    ///
    /// # Errors
    /// [`Trouble::Denied`] where the server does not idle after all.
    pub fn idle(&mut self, quiet: Duration, longest: Duration, patience: Duration) -> Result<Idled, Trouble> {
        let answer = Limit { bytes: BESIDE, silence: patience, total: patience };
        self.stream.arm(answer);
        self.session.run_command("IDLE").map_err(|error| trouble(&error, &self.stream))?;
        let mut news = false;
        loop {
            match self.line()? {
                Line::Continue => break,
                Line::Arrived => news = true,
                Line::Other => {}
                Line::Ended(_) => return Err(Trouble::Denied(self.stream.explanation())),
            }
        }
        let end = Instant::now() + longest;
        while !news {
            let wait = quiet.min(end.saturating_duration_since(Instant::now()));
            self.stream.arm(Limit { bytes: BESIDE, silence: wait, total: wait });
            match self.line_or_quiet()? {
                None => break,
                Some(Line::Arrived) => news = true,
                Some(Line::Ended(_)) => return Err(Trouble::Garbled("the server ended IDLE by itself".to_owned())),
                Some(Line::Continue | Line::Other) => {}
            }
        }
        self.stream.arm(answer);
        self.stream.write_line("DONE").map_err(|error| self.lost(&error))?;
        loop {
            match self.line()? {
                Line::Ended(true) => return Ok(if news { Idled::News } else { Idled::Quiet }),
                Line::Ended(false) => return Err(Trouble::Garbled(self.stream.last_line())),
                Line::Arrived => news = true,
                Line::Continue | Line::Other => {}
            }
        }
    }

    fn line_or_quiet(&self) -> Result<Option<Line>, Trouble> {
        match self.stream.read_line() {
            Ok(line) => self.classify(&line).map(Some),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn line(&self) -> Result<Line, Trouble> {
        let line = self.stream.read_line().map_err(|error| self.lost(&error))?;
        self.classify(&line)
    }

    fn classify(&self, line: &[u8]) -> Result<Line, Trouble> {
        let text = String::from_utf8_lossy(line).to_ascii_uppercase();
        let mut words = text.split_ascii_whitespace();
        Ok(match (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next()) {
            ("+", ..) => Line::Continue,
            ("*", "BYE", _) => return Err(hung_up(&self.stream)),
            ("*", _, Some("EXISTS" | "RECENT")) => Line::Arrived,
            ("*", ..) => Line::Other,
            (_, "OK", _) => Line::Ended(true),
            (_, "NO" | "BAD", _) => Line::Ended(false),
            _ => Line::Other,
        })
    }

    fn lost(&self, error: &io::Error) -> Trouble {
        if self.stream.bye().is_some() { hung_up(&self.stream) } else { lost(error) }
    }

    /// What `read` makes of the mail; `None` where there is none.
    fn fetch<A>(
        &mut self,
        uid: u32,
        query: &str,
        asked: u32,
        read: impl Fn(&Fetch<'_>) -> A,
    ) -> Result<Option<A>, Trouble> {
        let fetches = self.ask(u64::from(asked) + BESIDE, |session| session.uid_fetch(uid.to_string(), query))?;
        Ok(fetches.iter().find(|fetch| fetch.uid == Some(uid)).map(read))
    }

    /// Gives an order whose answer holds nothing of interest.
    fn tell(&mut self, command: &str) -> Result<(), Trouble> {
        self.ask(BESIDE, |session| session.run_command_and_check_ok(command))
    }

    fn ask<A>(
        &mut self,
        bytes: u64,
        command: impl FnOnce(&mut Session<Stream>) -> imap::Result<A>,
    ) -> Result<A, Trouble> {
        self.ask_within(Limit { bytes, silence: self.silence, total: TOTAL }, command)
    }

    fn ask_within<A>(
        &mut self,
        limit: Limit,
        command: impl FnOnce(&mut Session<Stream>) -> imap::Result<A>,
    ) -> Result<A, Trouble> {
        self.stream.arm(limit);
        let answer = command(&mut self.session);
        // What else the server told is asked for when it is needed.
        drop(self.session.take_all_unsolicited());
        answer.map_err(|error| trouble(&error, &self.stream))
    }
}

/// A mailbox's name as commands want it.
fn quoted(mailbox: &str) -> String {
    format!("\"{}\"", escape(&encode(mailbox)))
}

/// The numbers of all `* SEARCH` lines.
fn found(answer: &[u8]) -> Vec<u32> {
    let lines = answer.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines
        .filter_map(|line| line.get(..8).filter(|start| start.eq_ignore_ascii_case("* SEARCH")).map(|_| &line[8..]))
        .flat_map(str::split_ascii_whitespace)
        // Behind the numbers may stand `(MODSEQ 5)` (RFC 7162, section 3.1.5).
        .map_while(|word| word.parse().ok())
        .collect()
}

enum Line {
    Continue,
    Arrived,
    Other,
    /// The command is at its end, and well or not.
    Ended(bool),
}

fn hung_up(stream: &Stream) -> Trouble {
    Trouble::Lost(match stream.bye() {
        Some(bye) => format!("the server hung up: {bye}"),
        None => "the server closed the connection".to_owned(),
    })
}

/// What an error of the protocol's means for the connection.
pub fn trouble(error: &imap::Error, stream: &Stream) -> Trouble {
    match error {
        imap::Error::No(_) | imap::Error::Bad(_) | imap::Error::Append => Trouble::Denied(stream.explanation()),
        imap::Error::Validate(error) => Trouble::Denied(error.to_string()),
        _ if stream.bye().is_some() => hung_up(stream),
        imap::Error::Io(error) => lost(error),
        imap::Error::ConnectionLost => hung_up(stream),
        // Among them is `Bye` without a BYE: that is how the crate calls a line that it cannot read.
        _ => Trouble::Garbled(format!("the server's answer cannot be understood, at: {}", stream.last_line())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opening_a_mailbox_says_is_read() {
        let answer = "* FLAGS (\\Seen)\r\n* NO [ALERT] nearly full\r\n* OK [UIDVALIDITY 4294967295] UIDs valid\r\n\
                      * OK [uidnext 7] Predicted\r\na4 OK [READ-ONLY] Select completed.\r\n";
        let wanted = Opened { validity: Some(u32::MAX), next: Some(7), read_only: true };
        assert_eq!(Opened::read(answer.as_bytes()), wanted);
        assert_eq!(Opened::read(b"* OK hello [UIDVALIDITY 3]\r\na1 OK done\r\n"), Opened::default());
    }

    #[test]
    fn the_numbers_of_a_search_are_read() {
        for (answer, wanted) in [
            ("* SEARCH 5 3 11\r\n* 4 EXISTS\r\na2 OK\r\n", vec![5, 3, 11]),
            ("* SEARCH\r\na2 OK\r\n", vec![]),
            ("* SEARCH 2 (MODSEQ 917162500)\r\n", vec![2]),
        ] {
            assert_eq!(found(answer.as_bytes()), wanted);
        }
    }

    #[test]
    fn names_are_quoted() {
        for (name, wanted) in [("INBOX", r#""INBOX""#), ("a\"b\\c", r#""a\"b\\c""#), ("测试", r#""&bUuL1Q-""#)] {
            assert_eq!(quoted(name), wanted);
        }
    }
}
