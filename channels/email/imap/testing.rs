//! A scripted IMAP server with one mailbox and injected faults, and an intake that records its mails.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::settings::{ImapTimings, WatchSettings};
use crate::channel::StartError;
use crate::conformance::{ScriptedAnswer as Accepting, ScriptedInbox};
use crate::email::account::Account;
use crate::email::config::{EmailConfig, Tls};
use crate::email::mail::{FetchedContent, FetchedMail, Intake, IntakeOutcome};
use crate::email::texts::NoticeTexts;
use crate::inbox::{AcceptExtras, Inbox, Refusal};
use crate::settings::Secret;
use crate::text::Language;

/// The events in order: the commands to the server, and the outcomes of mails.
pub struct EventLog {
    lines: Mutex<Vec<String>>,
    changed: watch::Sender<()>,
}

impl EventLog {
    fn push(&self, line: String) {
        self.lines.lock().unwrap().push(line);
        self.changed.send_replace(());
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Returns the lines that begin with one of `words`.
    pub fn of(&self, words: &[&str]) -> Vec<String> {
        self.lines().into_iter().filter(|line| words.iter().any(|word| line.starts_with(word))).collect()
    }

    /// Completes when `count` lines begin with `start`.
    pub async fn until(&self, count: usize, start: &str) {
        let mut changed = self.changed.subscribe();
        let reached = async {
            while self.of(&[start]).len() < count {
                changed.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), reached).await.is_err() {
            panic!("{count} × {start:?} did not come:\n{}", self.lines().join("\n"));
        }
    }
}

#[derive(Clone)]
pub struct StoredMail {
    pub uid: u32,
    /// The date in the format of INTERNALDATE.
    pub date: String,
    pub text: Vec<u8>,
    pub seen: bool,
}

pub struct MailboxState {
    pub validity: u32,
    pub next: u32,
    pub mails: Vec<StoredMail>,
    pub capabilities: &'static str,
}

/// The server's reaction to a command.
pub enum ServerReply {
    Normal,
    /// This text; `{}` stands for the command's tag.
    Text(String),
    /// No reply; the connection stays open.
    Hang,
    /// This text; then the server closes the connection.
    Close(&'static str),
}

type Fault = Box<dyn Fn(&str) -> ServerReply + Send + Sync>;

pub struct ScriptedImapServer {
    pub port: u16,
    pub log: Arc<EventLog>,
    state: Mutex<MailboxState>,
    changed: watch::Sender<()>,
    fault: Fault,
    greeting: &'static str,
}

impl ScriptedImapServer {
    pub fn start(fault: impl Fn(&str) -> ServerReply + Send + Sync + 'static) -> Arc<Self> {
        Self::greeting("* OK ready\r\n", fault)
    }

    pub fn greeting(greeting: &'static str, fault: impl Fn(&str) -> ServerReply + Send + Sync + 'static) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = MailboxState { validity: 1, next: 1, mails: Vec::new(), capabilities: "IDLE ID UIDPLUS MOVE" };
        let server = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            log: Arc::new(EventLog { lines: Mutex::default(), changed: watch::Sender::new(()) }),
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            fault: Box::new(fault),
            greeting,
        });
        let own = Arc::clone(&server);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let own = Arc::clone(&own);
                // The thread ends with the connection.
                thread::spawn(move || drop(own.serve(&socket.unwrap())));
            }
        });
        server
    }

    pub fn state(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap()
    }

    /// Delivers a mail.
    pub fn deliver(&self, name: &str) {
        self.deliver_at(name, "21-Nov-2099 12:00:00 +0000");
    }

    pub fn deliver_at(&self, name: &str, date: &str) {
        let mut state = self.state();
        let uid = state.next;
        state.next += 1;
        let text = format!("Message-ID: <{name}@test>\r\nSubject: {name}\r\n\r\nHello\r\n").into_bytes();
        state.mails.push(StoredMail { uid, date: date.to_owned(), text, seen: false });
        drop(state);
        self.changed.send_replace(());
    }

    fn serve(&self, socket: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(socket.try_clone()?).lines();
        let mut out = socket;
        out.write_all(self.greeting.as_bytes())?;
        // The number of mails that the client knows of.
        let mut announced = 0;
        while let Some(line) = lines.next().transpose()? {
            let (tag, command) = line.split_once(' ').unwrap_or((&line, ""));
            self.log.push(command.to_owned());
            match (self.fault)(command) {
                ServerReply::Normal if command == "IDLE" => {
                    out.write_all(b"+ idling\r\n")?;
                    socket.set_read_timeout(Some(Duration::from_millis(5)))?;
                    let done = loop {
                        let there = self.state().mails.len();
                        if there != announced {
                            announced = there;
                            out.write_all(format!("* {there} EXISTS\r\n").as_bytes())?;
                            socket.set_read_timeout(None)?;
                            break lines.next().transpose()?;
                        }
                        match lines.next().transpose() {
                            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                            done => break done?,
                        }
                    };
                    socket.set_read_timeout(None)?;
                    if done.as_deref() != Some("DONE") {
                        return Ok(());
                    }
                    out.write_all(format!("{tag} OK idled\r\n").as_bytes())?;
                }
                ServerReply::Normal => {
                    if ["SELECT", "UID SEARCH"].iter().any(|word| command.starts_with(word)) {
                        announced = self.state().mails.len();
                    }
                    out.write_all(&self.answer(tag, command))?;
                }
                ServerReply::Text(text) => out.write_all(text.replace("{}", tag).as_bytes())?,
                ServerReply::Hang => {}
                ServerReply::Close(text) => return out.write_all(text.as_bytes()),
            }
        }
        Ok(())
    }

    fn answer(&self, tag: &str, command: &str) -> Vec<u8> {
        let mut state = self.state();
        let words: Vec<&str> = command.split(' ').collect();
        let mut out = Vec::new();
        match words.as_slice() {
            ["CAPABILITY"] => out = format!("* CAPABILITY IMAP4rev1 {}\r\n", state.capabilities).into_bytes(),
            ["SELECT" | "EXAMINE", _] => {
                out = format!(
                    "* {} EXISTS\r\n* OK [UIDVALIDITY {}] valid\r\n* OK [UIDNEXT {}] next\r\n",
                    state.mails.len(),
                    state.validity,
                    state.next
                )
                .into_bytes();
            }
            ["UID", "SEARCH", "UID", range, rest @ ..] => {
                let (from, to) = range.split_once(':').unwrap();
                let last = state.mails.last().map_or(0, |mail| mail.uid);
                let (from, to): (u32, u32) = (from.parse().unwrap(), to.parse().unwrap_or(last));
                let (from, to) = (from.min(to), from.max(to));
                out.extend(b"* SEARCH");
                for mail in state.mails.iter().filter(|mail| (from..=to).contains(&mail.uid)) {
                    if !(rest == ["UNSEEN"] && mail.seen) {
                        out.extend(format!(" {}", mail.uid).bytes());
                    }
                }
                out.extend(b"\r\n");
            }
            ["UID", "FETCH", uid, ..] => {
                let uid: u32 = uid.parse().unwrap();
                if let Some(mail) = state.mails.iter().find(|mail| mail.uid == uid) {
                    out = fetch_response(mail, command);
                }
            }
            ["UID", "STORE", uid, ..] => {
                let uid: u32 = uid.parse().unwrap();
                state.mails.iter_mut().filter(|mail| mail.uid == uid).for_each(|mail| mail.seen = true);
            }
            _ => {}
        }
        out.extend(format!("{tag} OK done\r\n").bytes());
        out
    }
}

fn fetch_response(mail: &StoredMail, command: &str) -> Vec<u8> {
    let StoredMail { uid, date, text, .. } = mail;
    let size = text.len();
    if !command.contains("BODY") {
        return format!("* 1 FETCH (UID {uid} RFC822.SIZE {size} INTERNALDATE \"{date}\")\r\n").into_bytes();
    }
    let (what, rest) = command.split_once("BODY.PEEK").unwrap().1.split_once('<').unwrap();
    let (from, count) = rest.split_once('>').unwrap().0.split_once('.').unwrap();
    let end = if what == "[HEADER]" { text.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4 } else { size };
    let from = from.parse::<usize>().unwrap().min(end);
    let part = &text[from..(from + count.parse::<usize>().unwrap()).min(end)];
    let mut out = format!("* 1 FETCH (UID {uid} BODY{what}<{from}> {{{}}}\r\n", part.len()).into_bytes();
    out.extend(part);
    out.extend(b")\r\n");
    out
}

/// An intake that accepts mails and logs their sizes.
pub struct RecordingIntake {
    log: Arc<EventLog>,
    inbox: Arc<ScriptedInbox>,
    known: Mutex<HashSet<Vec<u8>>>,
    /// The number of mails that are refused first.
    pub refusals: AtomicU32,
}

impl RecordingIntake {
    pub fn know(&self, mail: &[u8]) {
        self.known.lock().unwrap().insert(message_id(mail));
    }
}

fn message_id(mail: &[u8]) -> Vec<u8> {
    mail.split(|byte| *byte == b'\n').next().unwrap().trim_ascii().to_vec()
}

#[async_trait]
impl Intake for RecordingIntake {
    async fn take(&self, mail: FetchedMail) -> Result<IntakeOutcome, Refusal> {
        let what = match &mail.content {
            FetchedContent::Whole(bytes) => format!("{} bytes", bytes.len()),
            FetchedContent::TooLarge { size, .. } => format!("too large, {size} bytes"),
        };
        self.log.push(format!("take {}: {what}", mail.cursor.position));
        if self.refusals.load(Ordering::SeqCst) > 0 {
            self.refusals.fetch_sub(1, Ordering::SeqCst);
            return Err(Refusal::Store { reason: "disk".to_owned(), retry_after: Duration::from_millis(1) });
        }
        let (FetchedContent::Whole(bytes) | FetchedContent::TooLarge { header: bytes, .. }) = &mail.content;
        let is_ours = !String::from_utf8_lossy(bytes).contains("Subject: stranger");
        let position = mail.cursor.position.clone();
        self.inbox.skip(AcceptExtras::from(mail.cursor), "taken").await?;
        self.log.push(format!("kept {position}"));
        if is_ours {
            self.know(bytes);
        }
        Ok(if is_ours { IntakeOutcome::Accepted } else { IntakeOutcome::Skipped })
    }

    async fn known(&self, header: &[u8]) -> Result<Option<IntakeOutcome>, Refusal> {
        Ok(self.known.lock().unwrap().contains(&message_id(header)).then_some(IntakeOutcome::Accepted))
    }
}

/// A watch of the scripted server's mailbox.
pub struct WatchFixture {
    pub log: Arc<EventLog>,
    pub inbox: Arc<ScriptedInbox>,
    pub intake: Arc<RecordingIntake>,
    pub config: EmailConfig,
    pub timings: ImapTimings,
    /// The mailbox, as the configuration names it.
    pub mailbox: String,
}

impl WatchFixture {
    pub fn new(server: &ScriptedImapServer) -> Self {
        let log = Arc::clone(&server.log);
        let inbox = ScriptedInbox::new(|_| Accepting::Hold);
        let intake = RecordingIntake {
            log: Arc::clone(&log),
            inbox: Arc::clone(&inbox),
            known: Mutex::default(),
            refusals: AtomicU32::new(0),
        };
        let config = EmailConfig {
            address: "assistant@example.test".to_owned(),
            imap_host: "127.0.0.1".to_owned(),
            imap_port: Some(server.port),
            imap_tls: Tls::None,
            imap_password: Some(Secret::new("canary-word")),
            smtp_host: "127.0.0.1".to_owned(),
            ..EmailConfig::default()
        };
        let moment = Duration::from_millis(1);
        let timings =
            ImapTimings { reconnect: (moment, moment * 10), retry: (moment, moment * 10), ..ImapTimings::default() };
        Self { log, inbox, intake: Arc::new(intake), config, timings, mailbox: "INBOX".to_owned() }
    }

    /// Watches until the watch fails.
    pub async fn run(&self, shutdown: CancellationToken) -> Result<(), StartError> {
        let account = Account::new(&self.config).map_err(StartError)?;
        let mut settings = WatchSettings::new(&self.config, &self.mailbox, NoticeTexts::of(Language::En));
        settings.timings = self.timings;
        let log = Arc::clone(&self.log);
        let (intake, inbox) = (Arc::clone(&self.intake), Arc::clone(&self.inbox));
        let report = Arc::new(move |state: Result<(), String>| match state {
            Ok(()) => log.push("started".to_owned()),
            Err(reason) => log.push(format!("impaired {reason}")),
        });
        super::watch(Arc::new(account), settings, intake, inbox, shutdown, report).await
    }

    /// Watches until the guard is dropped.
    pub fn start(self: &Arc<Self>) -> DropGuard {
        let shutdown = CancellationToken::new();
        let (own, token) = (Arc::clone(self), shutdown.clone());
        tokio::spawn(async move { own.run(token).await });
        shutdown.drop_guard()
    }

    pub async fn cursor(&self) -> String {
        self.inbox.cursor("email", "INBOX").await.unwrap().map(|cursor| cursor.position).unwrap_or_default()
    }

    /// Stores the cursor of an earlier run.
    pub async fn store_cursor(&self, position: &str) {
        let (channel, source) = ("email".to_owned(), self.mailbox.clone());
        let cursor = crate::inbox::Cursor { channel, source, position: position.to_owned() };
        self.inbox.skip(AcceptExtras::from(cursor), "before").await.unwrap();
        self.store_note("since", "2026-03-01T00:00:00Z").await;
    }

    /// Stores a note of an earlier run.
    pub async fn store_note(&self, kind: &'static str, value: &str) {
        let (channel, key) = ("email".to_owned(), self.mailbox.clone());
        let note = crate::inbox::Note { channel, kind, key, value: value.to_owned() };
        self.inbox.skip(AcceptExtras { notes: vec![note], ..AcceptExtras::default() }, "before").await.unwrap();
    }
}
