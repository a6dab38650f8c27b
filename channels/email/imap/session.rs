//! A logged-in IMAP connection and its commands.

use std::io;
use std::time::{Duration, Instant};

use imap::types::{Capabilities, Fetch, Flag};
use imap::{Client, Session};
use jiff::Timestamp;
use tokio::runtime::Handle;

use super::connect::connect;
use super::error::ImapError;
use super::fetch_part::{PartOutcome, read_part};
use super::login::ImapAccess;
use super::mailbox_name::{encode, escape, quote};
use super::stream::{ConnectionCloser, ImapStream, ResponseLimit};
use crate::email::account::{Account, Login};

/// The number of bytes of a mail per request. It bounds the response and the parser's memory.
const PART_SIZE: u32 = 512 * 1_024;
/// Longest header that is read, in bytes.
const MAX_HEADER: u32 = 64 * 1_024;
/// The maximum number of bytes of a response besides the requested data.
const OVERHEAD: u64 = 256 * 1_024;
/// The maximum number of bytes of a list of UIDs: about two million UIDs.
const MAX_SEARCH: u64 = 16 * 1_024 * 1_024;
/// Longest total time of a response.
const TOTAL: Duration = Duration::from_secs(120);
/// The longest total time of a response that may need a search on the server.
const TOTAL_SEARCH: Duration = Duration::from_secs(300);

/// A logged-in connection.
pub struct ImapSession {
    inner: Session<ImapStream>,
    stream: ImapStream,
    silence: Duration,
    capabilities: Capabilities,
}

/// The state of a mailbox as reported by SELECT or EXAMINE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectedMailbox {
    pub uid_validity: Option<u32>,
    /// The UID of the next mail.
    pub uid_next: Option<u32>,
    pub read_only: bool,
}

impl SelectedMailbox {
    fn parse(response: &[u8]) -> Self {
        let mut selected = Self::default();
        for line in response.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line).to_ascii_uppercase();
            let number = |code: &str| {
                let (_, rest) = line.split_once(code)?;
                rest.split(']').next()?.trim().parse().ok()
            };
            // A response code directly follows the status (RFC 3501, section 7.1); any text after it is ignored.
            if line.starts_with("* OK [UIDVALIDITY ") {
                selected.uid_validity = number("[UIDVALIDITY ");
            } else if line.starts_with("* OK [UIDNEXT ") {
                selected.uid_next = number("[UIDNEXT ");
            } else if !line.starts_with('*') && line.contains(" OK [READ-ONLY]") {
                selected.read_only = true;
            }
        }
        selected
    }
}

/// The size and date of a mail, known before the mail is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailSummary {
    /// The size that the server reports; not always correct.
    pub size: u64,
    /// `None` if the server reports no valid date.
    pub received_at: Option<Timestamp>,
}

/// The result of fetching a mail.
#[derive(Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    Whole(Vec<u8>),
    /// The mail is larger than the limit, whatever size was reported.
    TooLarge,
    /// The mail no longer exists.
    Vanished,
}

impl ImapSession {
    /// Connects and logs in; blocks the thread. `silence` is the longest time without a byte of a response. After a refused
    /// token, fetches a new one and retries once, because a token can expire at any time.
    ///
    /// # Errors
    /// The connection or the login failed.
    pub fn connect(
        account: &Account,
        handle: &Handle,
        silence: Duration,
        closer: &ConnectionCloser,
    ) -> Result<Self, ImapError> {
        let open = || Self::open(&handle.block_on(ImapAccess::resolve(account))?, silence, closer);
        match (open(), &account.imap.login) {
            (Err(ImapError::Login(_)), Login::Token(command)) => {
                handle.block_on(command.forget());
                open()
            }
            (opened, _) => opened,
        }
    }

    fn open(access: &ImapAccess, silence: Duration, closer: &ConnectionCloser) -> Result<Self, ImapError> {
        let limit = ResponseLimit { bytes: OVERHEAD, silence, total: TOTAL };
        let stream = connect(&access.server, &access.tls, limit, closer)?;
        let mut client = Client::new(stream.clone());
        stream.set_limit(limit);
        let capabilities = client.capabilities().map_err(|error| stream.imap_error(&error))?;
        stream.set_limit(limit);
        let inner = access.log_in(client, &capabilities, &stream)?;
        let mut session = Self { inner, stream, silence, capabilities };
        // Many servers announce more capabilities after the login.
        session.capabilities = session.request(OVERHEAD, Session::capabilities)?;
        session.send_id()?;
        Ok(session)
    }

    /// Returns true if the server announces the extension `name`.
    pub fn supports(&self, name: &str) -> bool {
        self.capabilities.has_str(name)
    }

    /// Sends ID (RFC 2971), because 163.com and 126.com open no mailbox for a client without it.
    fn send_id(&mut self) -> Result<(), ImapError> {
        if !self.supports("ID") {
            return Ok(());
        }
        let id =
            format!("ID (\"name\" \"daoyou\" \"version\" \"{}\" \"vendor\" \"daoyou\")", env!("CARGO_PKG_VERSION"));
        match self.request(OVERHEAD, |inner| inner.run_command_and_read_response(&id)) {
            // Other servers do not require ID.
            Err(ImapError::Rejected(_)) => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Opens a mailbox.
    ///
    /// # Errors
    /// [`ImapError::Rejected`] if the mailbox does not exist.
    pub fn select(&mut self, mailbox: &str) -> Result<SelectedMailbox, ImapError> {
        self.open_mailbox("SELECT", mailbox)
    }

    /// Opens a mailbox read-only.
    ///
    /// # Errors
    /// The errors of [`ImapSession::select`].
    pub fn examine(&mut self, mailbox: &str) -> Result<SelectedMailbox, ImapError> {
        self.open_mailbox("EXAMINE", mailbox)
    }

    fn open_mailbox(&mut self, verb: &str, mailbox: &str) -> Result<SelectedMailbox, ImapError> {
        let command = format!("{verb} {}", quote(mailbox));
        // The parser of the `imap` crate blocks the thread after an untagged NO, which is only a warning.
        let (response, _) = self.request(OVERHEAD, |inner| inner.run(&command))?;
        Ok(SelectedMailbox::parse(&response))
    }

    /// Returns the UIDs of matching mails in ascending order (RFC 3501, section 6.4.4).
    pub fn search(&mut self, query: &str) -> Result<Vec<u32>, ImapError> {
        let limit = ResponseLimit { bytes: MAX_SEARCH, silence: self.silence, total: TOTAL_SEARCH };
        let command = format!("UID SEARCH {query}");
        let response = self.request_within(limit, |inner| inner.run_command_and_read_response(&command))?;
        let mut uids = parse_search(&response);
        uids.sort_unstable();
        uids.dedup();
        Ok(uids)
    }

    /// Returns size and date of a mail; `None` if it no longer exists.
    pub fn fetch_summary(&mut self, uid: u32) -> Result<Option<MailSummary>, ImapError> {
        self.fetch(uid, "(UID RFC822.SIZE INTERNALDATE)", 0, |fetch| MailSummary {
            size: fetch.size.map_or(0, u64::from),
            received_at: fetch.internal_date().and_then(|at| Timestamp::from_second(at.timestamp()).ok()),
        })
    }

    /// Returns the header of a mail, at most [`MAX_HEADER`] bytes; `None` if the mail no longer exists.
    pub fn fetch_header(&mut self, uid: u32) -> Result<Option<Vec<u8>>, ImapError> {
        let query = format!("(UID BODY.PEEK[HEADER]<0.{MAX_HEADER}>)");
        self.fetch(uid, &query, MAX_HEADER, |fetch| fetch.header().unwrap_or_default().to_vec())
    }

    /// Fetches a mail in parts. `size` is the reported size, which is only a hint; `max` is the limit in bytes.
    ///
    /// # Errors
    /// The server rejects the request, or the connection fails. A mail that is missing or too large is not an error.
    pub fn fetch_mail(&mut self, uid: u32, size: u64, max: u64) -> Result<FetchOutcome, ImapError> {
        let mut mail = Vec::with_capacity(usize::try_from(size.min(max)).unwrap_or(0));
        // A server may send less than requested, so the number of parts is limited too.
        for _ in 0..max / u64::from(PART_SIZE) * 2 + 16 {
            let before = mail.len();
            match self.fetch_part(uid, &mut mail)? {
                PartOutcome::Found => {}
                PartOutcome::Missing => return Ok(FetchOutcome::Vanished),
                PartOutcome::Rejected => return Err(ImapError::Rejected(self.stream.explanation())),
            }
            let got = (mail.len() - before) as u64;
            if mail.len() as u64 > max {
                return Ok(FetchOutcome::TooLarge);
            }
            // More bytes than requested: the server ignored the range and sent the whole mail.
            if got == 0 || got > u64::from(PART_SIZE) || (got < u64::from(PART_SIZE) && mail.len() as u64 >= size) {
                return Ok(FetchOutcome::Whole(mail));
            }
        }
        Err(ImapError::Protocol("the server sends a mail in too many parts".to_owned()))
    }

    /// Fetches the next part of a mail.
    fn fetch_part(&mut self, uid: u32, mail: &mut Vec<u8>) -> Result<PartOutcome, ImapError> {
        let max = u64::from(PART_SIZE) + OVERHEAD;
        self.stream.set_limit(ResponseLimit { bytes: max, silence: self.silence, total: TOTAL });
        let command = format!("UID FETCH {uid} (UID BODY.PEEK[]<{}.{PART_SIZE}>)", mail.len());
        self.inner.run_command(&command).map_err(|error| self.stream.imap_error(&error))?;
        read_part(&self.stream, uid, max, mail).map_err(|error| self.stream.io_error(&error))
    }

    /// Marks a mail as read.
    pub fn mark_seen(&mut self, uid: u32) -> Result<(), ImapError> {
        self.run(&format!("UID STORE {uid} +FLAGS.SILENT (\\Seen)"))
    }

    /// Moves a mail to another mailbox, which is created if it is missing. Without MOVE (RFC 6851) and UIDPLUS (RFC 4315), the
    /// original stays, marked as deleted: EXPUNGE would also remove mails that other clients have marked.
    ///
    /// # Errors
    /// The server rejects the copy or the deletion, or the mailbox cannot be created; or the connection fails.
    pub fn move_to(&mut self, uid: u32, mailbox: &str) -> Result<(), ImapError> {
        match self.try_move(uid, mailbox) {
            Err(ImapError::Rejected(_)) if self.create(mailbox).is_ok() => self.try_move(uid, mailbox),
            moved => moved,
        }
    }

    fn try_move(&mut self, uid: u32, mailbox: &str) -> Result<(), ImapError> {
        let name = quote(mailbox);
        if self.supports("MOVE") {
            return self.run(&format!("UID MOVE {uid} {name}"));
        }
        self.run(&format!("UID COPY {uid} {name}"))?;
        self.run(&format!("UID STORE {uid} +FLAGS.SILENT (\\Deleted)"))?;
        if self.supports("UIDPLUS") {
            self.run(&format!("UID EXPUNGE {uid}"))?;
        }
        Ok(())
    }

    fn create(&mut self, mailbox: &str) -> Result<(), ImapError> {
        self.run(&format!("CREATE {}", quote(mailbox)))
    }

    /// Creates a mailbox unless it can be opened.
    ///
    /// # Errors
    /// The server rejects the new mailbox, or the connection fails.
    pub fn ensure(&mut self, mailbox: &str) -> Result<(), ImapError> {
        match self.examine(mailbox) {
            Err(ImapError::Rejected(_)) => self.create(mailbox),
            opened => opened.map(drop),
        }
    }

    /// Stores a mail in a mailbox, marked as read. Creates the mailbox if it is missing.
    ///
    /// # Errors
    /// The server rejects the mail, or the mailbox cannot be created; or the connection fails.
    pub fn append(&mut self, mailbox: &str, mail: &[u8]) -> Result<(), ImapError> {
        match self.try_append(mailbox, mail) {
            Err(ImapError::Rejected(_)) if self.create(mailbox).is_ok() => self.try_append(mailbox, mail),
            appended => appended,
        }
    }

    fn try_append(&mut self, mailbox: &str, mail: &[u8]) -> Result<(), ImapError> {
        let name = escape(&encode(mailbox));
        let limit = ResponseLimit { bytes: OVERHEAD, silence: self.silence, total: TOTAL_SEARCH };
        self.request_within(limit, |inner| inner.append(&name, mail).flag(Flag::Seen).finish()).map(|_| ())
    }

    /// Checks that the server still responds.
    pub fn noop(&mut self) -> Result<(), ImapError> {
        self.run("NOOP")
    }

    /// Returns true if the server announced a mail since the last call. A search does not list a mail that arrives while it runs.
    pub fn take_new_mail(&self) -> bool {
        self.stream.take_new_mail()
    }

    /// Waits until a mail arrives (RFC 2177), the server was silent for `silence`, or `longest` has passed. `answer` is the
    /// time limit for the server to confirm the start and the end. Returns true if the server announced a mail.
    ///
    /// Own code because the `imap` crate takes any response before the continuation as the end of the command.
    ///
    /// # Errors
    /// [`ImapError::Rejected`] if the server refuses IDLE.
    pub fn idle(&mut self, silence: Duration, longest: Duration, answer: Duration) -> Result<bool, ImapError> {
        let answer = ResponseLimit { bytes: OVERHEAD, silence: answer, total: answer };
        self.stream.set_limit(answer);
        self.inner.run_command("IDLE").map_err(|error| self.stream.imap_error(&error))?;
        let mut has_new_mail = false;
        loop {
            match self.read_idle_line()? {
                IdleLine::Continuation => break,
                IdleLine::NewMail => has_new_mail = true,
                IdleLine::Other => {}
                IdleLine::Completed { .. } => return Err(ImapError::Rejected(self.stream.explanation())),
            }
        }
        let end = Instant::now() + longest;
        while !has_new_mail {
            let wait = silence.min(end.saturating_duration_since(Instant::now()));
            self.stream.set_limit(ResponseLimit { bytes: OVERHEAD, silence: wait, total: wait });
            match self.read_idle_line_or_timeout()? {
                None => break,
                Some(IdleLine::NewMail) => has_new_mail = true,
                Some(IdleLine::Completed { .. }) => {
                    return Err(ImapError::Protocol("the server ended IDLE by itself".to_owned()));
                }
                Some(IdleLine::Continuation | IdleLine::Other) => {}
            }
        }
        self.stream.set_limit(answer);
        self.stream.write_line("DONE").map_err(|error| self.stream.io_error(&error))?;
        loop {
            match self.read_idle_line()? {
                IdleLine::Completed { is_ok: true } => return Ok(has_new_mail),
                IdleLine::Completed { is_ok: false } => return Err(ImapError::Protocol(self.stream.last_line())),
                IdleLine::NewMail | IdleLine::Continuation | IdleLine::Other => {}
            }
        }
    }

    fn read_idle_line_or_timeout(&self) -> Result<Option<IdleLine>, ImapError> {
        match self.stream.read_line() {
            Ok(line) => self.parse_idle_line(&line).map(Some),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(self.stream.io_error(&error)),
        }
    }

    fn read_idle_line(&self) -> Result<IdleLine, ImapError> {
        let line = self.stream.read_line().map_err(|error| self.stream.io_error(&error))?;
        self.parse_idle_line(&line)
    }

    fn parse_idle_line(&self, line: &[u8]) -> Result<IdleLine, ImapError> {
        let text = String::from_utf8_lossy(line).to_ascii_uppercase();
        let mut words = text.split_ascii_whitespace();
        Ok(match (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next()) {
            ("+", ..) => IdleLine::Continuation,
            ("*", "BYE", _) => return Err(self.stream.disconnected()),
            ("*", _, Some("EXISTS" | "RECENT")) => IdleLine::NewMail,
            ("*", ..) => IdleLine::Other,
            (_, "OK", _) => IdleLine::Completed { is_ok: true },
            (_, "NO" | "BAD", _) => IdleLine::Completed { is_ok: false },
            _ => IdleLine::Other,
        })
    }

    /// Fetches `query` and converts the response with `read`; returns `None` if the mail no longer exists.
    fn fetch<A>(
        &mut self,
        uid: u32,
        query: &str,
        max_bytes: u32,
        read: impl Fn(&Fetch<'_>) -> A,
    ) -> Result<Option<A>, ImapError> {
        let fetches = self.request(u64::from(max_bytes) + OVERHEAD, |inner| inner.uid_fetch(uid.to_string(), query))?;
        Ok(fetches.iter().find(|fetch| fetch.uid == Some(uid)).map(read))
    }

    /// Runs a command whose response is not needed.
    fn run(&mut self, command: &str) -> Result<(), ImapError> {
        self.request(OVERHEAD, |inner| inner.run_command_and_check_ok(command))
    }

    fn request<A>(
        &mut self,
        bytes: u64,
        command: impl FnOnce(&mut Session<ImapStream>) -> imap::Result<A>,
    ) -> Result<A, ImapError> {
        self.request_within(ResponseLimit { bytes, silence: self.silence, total: TOTAL }, command)
    }

    fn request_within<A>(
        &mut self,
        limit: ResponseLimit,
        command: impl FnOnce(&mut Session<ImapStream>) -> imap::Result<A>,
    ) -> Result<A, ImapError> {
        self.stream.set_limit(limit);
        let result = command(&mut self.inner);
        // The data in unsolicited responses is not needed: it is requested on demand.
        drop(self.inner.take_all_unsolicited());
        result.map_err(|error| self.stream.imap_error(&error))
    }
}

/// Parses the numbers of all `* SEARCH` lines.
fn parse_search(response: &[u8]) -> Vec<u32> {
    let lines = response.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines
        .filter_map(|line| line.get(..8).filter(|start| start.eq_ignore_ascii_case("* SEARCH")).map(|_| &line[8..]))
        // `(MODSEQ 5)` may follow the numbers of a line (RFC 7162, section 3.1.5).
        .flat_map(|line| line.split_ascii_whitespace().map_while(|word| word.parse().ok()))
        .collect()
}

/// A response line during IDLE.
enum IdleLine {
    Continuation,
    NewMail,
    Other,
    /// The tagged response that ends the command.
    Completed {
        is_ok: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_select_response_is_parsed() {
        let response = "* FLAGS (\\Seen)\r\n* NO [ALERT] nearly full\r\n* OK [UIDVALIDITY 4294967295] UIDs valid\r\n\
                      * OK [uidnext 7] Predicted\r\na4 OK [READ-ONLY] Select completed.\r\n";
        let wanted = SelectedMailbox { uid_validity: Some(u32::MAX), uid_next: Some(7), read_only: true };
        assert_eq!(SelectedMailbox::parse(response.as_bytes()), wanted);
        assert_eq!(SelectedMailbox::parse(b"* OK hello [UIDVALIDITY 3]\r\na1 OK done\r\n"), SelectedMailbox::default());
    }

    #[test]
    fn the_numbers_of_a_search_are_parsed() {
        for (response, wanted) in [
            ("* SEARCH 5 3 11\r\n* 4 EXISTS\r\na2 OK\r\n", vec![5, 3, 11]),
            ("* SEARCH\r\na2 OK\r\n", vec![]),
            ("* SEARCH 2 (MODSEQ 917162500)\r\n", vec![2]),
            ("* SEARCH 2 (MODSEQ 9)\r\n* SEARCH 7\r\n", vec![2, 7]),
        ] {
            assert_eq!(parse_search(response.as_bytes()), wanted);
        }
    }
}
