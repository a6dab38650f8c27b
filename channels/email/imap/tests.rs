//! Tests that read a mailbox from a scripted, faulty server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::testing::{ScriptedImapServer, ServerReply, WatchFixture};
use crate::email::account::Account;
use crate::email::config::{DoneAction, Tls};
use crate::settings::{ByteSize, HumanDuration};

/// A reply of the server, and the expected result.
type Case<A> = (fn() -> ServerReply, A);

fn no_fault(_: &str) -> ServerReply {
    ServerReply::Normal
}

/// Replies `answer` to the first `times` commands that begin with `start`.
fn at_first(
    start: &'static str,
    times: u32,
    answer: impl Fn() -> ServerReply + Send + Sync + 'static,
) -> impl Fn(&str) -> ServerReply + Send + Sync {
    let left = AtomicU32::new(times);
    move |command| {
        let hit = command.starts_with(start)
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if hit { answer() } else { ServerReply::Normal }
    }
}

fn fixture_of(server: &ScriptedImapServer) -> Arc<WatchFixture> {
    Arc::new(WatchFixture::new(server))
}

async fn fails(server: Arc<ScriptedImapServer>, change: impl FnOnce(&mut WatchFixture)) -> String {
    let mut fixture = WatchFixture::new(&server);
    change(&mut fixture);
    let end = tokio::time::timeout(Duration::from_secs(20), fixture.run(CancellationToken::new()));
    let error = end.await.unwrap().unwrap_err().to_string();
    assert!(!error.contains("canary-word"), "{error}");
    error
}

#[tokio::test]
async fn a_first_start_takes_new_mail_and_marks_it_after_the_commit() {
    let server = ScriptedImapServer::start(no_fault);
    server.deliver_at("old", " 1-Jan-2001 12:00:00 +0800");
    let fixture = fixture_of(&server);
    let _running = fixture.start();
    fixture.log.until(1, "IDLE").await;
    assert_eq!(fixture.cursor().await, "1:1");
    server.deliver("new");
    server.deliver("stranger");
    fixture.log.until(1, "kept 1:3").await;
    let order = fixture.log.of(&["started", "ID ", "SELECT", "take", "UID FETCH 2 (UID BODY", "UID STORE"]);
    let wanted = [
        r#"ID ("name" "daoyou""#,
        r#"SELECT "INBOX""#,
        "started",
        "UID FETCH 2 (UID BODY.PEEK[]<0.",
        "take 1:2",
        r"UID STORE 2 +FLAGS.SILENT (\Seen)",
        "take 1:3",
    ];
    assert!(
        order.len() == wanted.len() && order.iter().zip(wanted).all(|(line, start)| line.starts_with(start)),
        "{order:#?}"
    );
    assert_eq!(fixture.cursor().await, "1:3");
    assert!(!server.state().mails[0].seen && !server.state().mails[2].seen);
}

#[tokio::test]
async fn older_mail_is_taken_as_far_back_as_the_backlog() {
    let server = ScriptedImapServer::start(no_fault);
    server.deliver_at("ancient", " 1-Jan-2001 12:00:00 +0800");
    server.deliver("fresh");
    let mut fixture = WatchFixture::new(&server);
    fixture.config.backlog = HumanDuration::from_secs(3_600);
    let fixture = Arc::new(fixture);
    let _running = fixture.start();
    fixture.log.until(1, "IDLE").await;
    assert_eq!(fixture.log.of(&["take"]).len(), 1);
    assert!(server.state().mails[1].seen && !server.state().mails[0].seen);
    assert_eq!(fixture.cursor().await, "1:2");
}

/// A mail that arrives between the start and the opening of the mailbox is new, however long that takes.
#[tokio::test]
async fn the_time_of_the_first_start_counts() {
    let server = ScriptedImapServer::start(at_first("LOGIN", 1, || ServerReply::Close("")));
    let fixture = WatchFixture::new(&server);
    assert!(fixture.run(CancellationToken::new()).await.is_err());
    let began: Timestamp = fixture.inbox.note_of("email", "since", "INBOX").parse().unwrap();
    assert!(began.duration_since(Timestamp::now()).as_secs().abs() < 60, "{began}");

    let server = ScriptedImapServer::start(no_fault);
    let fixture = fixture_of(&server);
    fixture.store_note("since", "2026-03-01T00:00:00Z").await;
    server.deliver_at("old", "28-Feb-2026 23:59:59 +0000");
    server.deliver("meanwhile");
    let _running = fixture.start();
    fixture.log.until(1, "IDLE").await;
    assert_eq!(
        (fixture.log.of(&["take"]), fixture.cursor().await),
        (vec!["take 1:2: 59 bytes".to_owned()], "1:2".to_owned())
    );
}

/// The positions in the mailbox of one account say nothing about that of another.
#[tokio::test]
async fn another_account_begins_with_a_first_start() {
    let server = ScriptedImapServer::start(no_fault);
    let fixture = fixture_of(&server);
    fixture.store_cursor("1:1").await;
    fixture.store_note("account", "former@example.test").await;
    for name in ["one", "two"] {
        server.deliver_at(name, "28-Apr-2026 12:00:00 +0000");
    }
    let _running = fixture.start();
    fixture.log.until(1, "IDLE").await;
    assert!(fixture.log.of(&["take"]).is_empty(), "{:?}", fixture.log.of(&["take"]));
    assert_eq!(fixture.cursor().await, "1:2");
    assert_eq!(fixture.inbox.note_of("email", "account", "INBOX"), "assistant@example.test");
    server.deliver("new");
    fixture.log.until(1, "take 1:3").await;
}

#[tokio::test]
async fn each_spelling_of_inbox_is_the_same_mailbox() {
    for stored in ["INBOX", "inbox"] {
        let server = ScriptedImapServer::start(no_fault);
        let mut fixture = WatchFixture::new(&server);
        fixture.mailbox = stored.to_owned();
        fixture.store_cursor("1:1").await;
        fixture.mailbox = "inbox".to_owned();
        let fixture = Arc::new(fixture);
        for name in ["one", "two"] {
            server.deliver_at(name, "28-Apr-2026 12:00:00 +0000");
        }
        let _running = fixture.start();
        fixture.log.until(1, "IDLE").await;
        assert_eq!(fixture.log.of(&["take"]), ["take 1:2: 47 bytes"], "{stored}");
        assert_eq!(fixture.cursor().await, "1:2");
    }
}

#[tokio::test]
async fn a_missing_mailbox_for_stored_mails_is_created_or_reported() {
    for (create, expected) in [("{} OK done\r\n", Ok(())), ("{} NO bad name\r\n", Err("bad name"))] {
        let server = ScriptedImapServer::start(move |command| match command.split(' ').next() {
            Some("EXAMINE") => ServerReply::Text("{} NO no such mailbox\r\n".to_owned()),
            Some("CREATE") => ServerReply::Text(create.to_owned()),
            _ => ServerReply::Normal,
        });
        let account = Arc::new(Account::new(&WatchFixture::new(&server).config).unwrap());
        let ensured = super::ensure_mailbox(&account, "a/b").await;
        assert_eq!(ensured.as_ref().map_err(String::as_str), expected.as_ref().map_err(|reason| *reason));
        assert_eq!(server.log.of(&["CREATE"]), [r#"CREATE "a/b""#]);
    }
}

#[tokio::test]
async fn a_refused_mail_is_offered_again_and_stays_unread() {
    let server = ScriptedImapServer::start(no_fault);
    let fixture = fixture_of(&server);
    fixture.store_cursor("1:0").await;
    fixture.intake.refusals.store(2, Ordering::SeqCst);
    server.deliver("one");
    server.deliver("two");
    let _running = fixture.start();
    fixture.log.until(1, "take 1:2").await;
    let order: Vec<_> =
        fixture.log.of(&["take", "UID STORE"]).iter().map(|line| line.chars().take(11).collect::<String>()).collect();
    // The second mail may be marked by now or not.
    assert_eq!(order[..5], ["take 1:1: 4", "take 1:1: 4", "take 1:1: 4", "UID STORE 1", "take 1:2: 4"]);
    let reason = "impaired INBOX: no mail is taken: the message could not be stored: disk";
    assert_eq!(fixture.log.of(&["started", "impaired"]), ["started", reason, "started"]);
}

#[tokio::test]
async fn after_renumbering_no_mail_is_answered_twice_and_no_old_mail() {
    let server = ScriptedImapServer::start(no_fault);
    let fixture = fixture_of(&server);
    fixture.store_cursor("1:70").await;
    server.state().validity = 2;
    server.deliver("known");
    server.deliver_at("old", "28-Feb-2026 23:59:59 +0000");
    server.deliver("missed");
    fixture.intake.know(&server.state().mails[0].text);
    let _running = fixture.start();
    fixture.log.until(1, "IDLE").await;
    assert_eq!(fixture.log.of(&["take"]), ["take 2:3: 53 bytes"]);
    let seen: Vec<bool> = server.state().mails.iter().map(|mail| mail.seen).collect();
    assert_eq!(seen, [true, false, true]);
    assert_eq!(fixture.cursor().await, "2:3");
    // A mail that arrives now is new, whatever its date.
    server.deliver_at("dated back", "01-Jan-2026 12:00:00 +0000");
    fixture.log.until(1, "take 2:4").await;
}

#[tokio::test]
async fn a_mail_accepted_before_a_crash_is_marked_after_it() {
    let server = ScriptedImapServer::start(no_fault);
    let fixture = fixture_of(&server);
    server.deliver("accepted");
    server.deliver("stranger");
    fixture.intake.know(&server.state().mails[0].text);
    fixture.store_cursor("1:2").await;
    let _running = fixture.start();
    fixture.log.until(1, "IDLE").await;
    let seen: Vec<bool> = server.state().mails.iter().map(|mail| mail.seen).collect();
    assert_eq!(seen, [true, false]);
    assert!(fixture.log.of(&["take"]).is_empty());
}

#[tokio::test]
async fn a_lost_connection_is_reestablished() {
    for leave in ["* BYE shutting down\r\n", "", "+ idling\r\n* BYE kicked\r\n", "+ idling\r\n"] {
        let server = ScriptedImapServer::start(at_first("IDLE", 1, move || ServerReply::Close(leave)));
        let fixture = fixture_of(&server);
        let _running = fixture.start();
        fixture.log.until(1, "IDLE").await;
        server.deliver("new");
        fixture.log.until(1, "take 1:1").await;
        assert_eq!(fixture.log.of(&["started", "SELECT"]).len(), 3, "{leave:?}");
    }
}

#[tokio::test]
async fn an_account_that_stays_unreachable_fails_the_watch() {
    let selects = AtomicU32::new(0);
    let server = ScriptedImapServer::start(move |command| match command {
        "IDLE" => ServerReply::Close("* BYE going down\r\n"),
        _ if command.starts_with("SELECT") && selects.fetch_add(1, Ordering::SeqCst) > 0 => ServerReply::Close(""),
        _ => ServerReply::Normal,
    });
    let error = fails(Arc::clone(&server), |_| {}).await;
    assert!(error.contains("INBOX"), "{error}");
    assert_eq!((server.log.of(&["SELECT"]).len(), server.log.of(&["started"]).len()), (6, 1));
    assert_eq!(server.log.of(&["impaired"]), [format!("impaired {error}")], "while it is tried again");
}

#[tokio::test]
async fn unmarked_mails_are_marked_later_even_if_the_first_fails_again() {
    let stores = AtomicU32::new(0);
    let server = ScriptedImapServer::start(move |command| {
        if !command.starts_with("UID STORE") {
            return ServerReply::Normal;
        }
        // Refuses the first two, closes the connection at the next two, then replies normally.
        match stores.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => ServerReply::Text("{} NO not now\r\n".to_owned()),
            2 | 3 => ServerReply::Close(""),
            _ => ServerReply::Normal,
        }
    });
    server.deliver("before");
    let fixture = fixture_of(&server);
    fixture.store_cursor("1:1").await;
    server.state().mails[0].seen = true;
    for name in ["one", "two", "three"] {
        server.deliver(name);
    }
    let _running = fixture.start();
    fixture.log.until(1, "IDLE").await;
    let seen: Vec<bool> = server.state().mails.iter().map(|mail| mail.seen).collect();
    assert_eq!((seen, fixture.log.of(&["SELECT"]).len()), (vec![true; 4], 3), "{:#?}", fixture.log.of(&["UID STORE"]));
}

#[tokio::test]
async fn a_half_dead_server_is_noticed() {
    // The server starts IDLE and never sends anything again, not even after DONE.
    let silent = || ServerReply::Text("+ idling\r\n* OK Still here\r\n".to_owned());
    for (start, answer) in
        [("IDLE", silent as fn() -> ServerReply), ("IDLE", || ServerReply::Hang), ("UID SEARCH", || ServerReply::Hang)]
    {
        let fault = at_first(start, 1, answer);
        let server = ScriptedImapServer::start(
            move |command| if command.is_empty() { ServerReply::Hang } else { fault(command) },
        );
        let mut fixture = WatchFixture::new(&server);
        let moment = Duration::from_millis(100);
        (fixture.timings.idle_silence, fixture.timings.idle_answer, fixture.timings.silence) =
            (moment, moment, moment * 10);
        let fixture = Arc::new(fixture);
        let _running = fixture.start();
        fixture.log.until(2, "SELECT").await;
        server.deliver("new");
        fixture.log.until(1, "take 1:").await;
    }
}

/// RFC 2177, section 3: a client must renew IDLE within half an hour, or it is logged out.
#[tokio::test]
async fn idle_is_renewed_in_time() {
    let server = ScriptedImapServer::start(no_fault);
    let mut fixture = WatchFixture::new(&server);
    assert!(fixture.timings.longest_idle < Duration::from_secs(29 * 60));
    (fixture.timings.idle_silence, fixture.timings.longest_idle) = (Duration::from_secs(60), Duration::from_millis(50));
    let fixture = Arc::new(fixture);
    let _running = fixture.start();
    fixture.log.until(4, "IDLE").await;
    assert_eq!(fixture.log.of(&["SELECT"]).len(), 1, "on the same connection");
    server.deliver("new");
    fixture.log.until(1, "take 1:").await;
}

#[tokio::test]
async fn a_server_that_refuses_idle_is_polled() {
    for no_idle in ["{} NO not now\r\n", "{} BAD what\r\n", "* 1 EXISTS\r\n{} OK done already\r\n"] {
        let server =
            ScriptedImapServer::start(at_first("IDLE", u32::MAX, move || ServerReply::Text(no_idle.to_owned())));
        let mut fixture = WatchFixture::new(&server);
        fixture.config.poll_interval = HumanDuration::from_millis(20);
        let fixture = Arc::new(fixture);
        let _running = fixture.start();
        fixture.log.until(4, "UID SEARCH").await;
        server.deliver("new");
        fixture.log.until(1, "take 1:1").await;
        assert_eq!(fixture.log.of(&["IDLE", "SELECT"]).len(), 2, "{no_idle}");
    }
}

#[tokio::test]
async fn a_mail_that_arrives_during_a_search_is_taken() {
    let server = ScriptedImapServer::start(at_first("UID SEARCH", 1, || {
        ServerReply::Text("* SEARCH\r\n* 1 EXISTS\r\n{} OK\r\n".to_owned())
    }));
    let fixture = fixture_of(&server);
    fixture.store_cursor("1:0").await;
    server.deliver("meanwhile");
    let _running = fixture.start();
    fixture.log.until(1, "take 1:1").await;
    assert!(fixture.log.of(&["take", "IDLE"])[0].starts_with("take"));
}

#[tokio::test]
async fn a_server_that_announces_mail_without_end_is_asked_with_pauses() {
    let server = ScriptedImapServer::start(at_first("IDLE", u32::MAX, || {
        ServerReply::Text("+ idling\r\n* 1 EXISTS\r\n".to_owned())
    }));
    server.deliver("old");
    let mut fixture = WatchFixture::new(&server);
    fixture.timings.retry = (Duration::from_millis(200), Duration::from_secs(1));
    let fixture = Arc::new(fixture);
    let since = std::time::Instant::now();
    let _running = fixture.start();
    fixture.log.until(3, "IDLE").await;
    assert!(since.elapsed() >= Duration::from_millis(400), "{:?}", since.elapsed());
    server.deliver("new");
    fixture.log.until(1, "take 1:2").await;
    assert_eq!(fixture.log.of(&["SELECT"]).len(), 1);
}

#[tokio::test]
async fn a_mail_is_found_only_if_it_has_the_message_id() {
    // The server ignores the query.
    let server = ScriptedImapServer::start(at_first("UID SEARCH HEADER", u32::MAX, || {
        ServerReply::Text("* SEARCH 1 2\r\n{} OK done\r\n".to_owned())
    }));
    server.deliver("one");
    server.deliver("two");
    let account = Arc::new(Account::new(&WatchFixture::new(&server).config).unwrap());
    for (id, is_there) in [("<one@test>", true), ("<two@test>", true), ("<three@test>", false)] {
        let header = super::find(&account, &["INBOX".to_owned()], id).await.unwrap();
        let header = header.map(|header| String::from_utf8(header).unwrap());
        assert_eq!(header.as_ref().is_some_and(|header| header.contains(id)), is_there, "{id}: {header:?}");
        assert_eq!(header.is_some(), is_there, "{id}");
    }
}

#[tokio::test]
async fn a_vanished_mail_is_no_error() {
    let server = ScriptedImapServer::start(at_first("UID SEARCH", 1, || {
        ServerReply::Text("* SEARCH 5 3 4\r\n* 1 EXPUNGE\r\n{} OK\r\n".to_owned())
    }));
    server.state().next = 5;
    server.deliver("there");
    let fixture = fixture_of(&server);
    fixture.store_cursor("1:0").await;
    let _running = fixture.start();
    fixture.log.until(1, "take 1:5").await;
    assert!(fixture.inbox.notices().is_empty());
}

#[tokio::test]
async fn a_mail_that_cannot_be_fetched_is_skipped_with_a_notice() {
    // Covers a refusal, more bytes than requested, a useless response, and an unparsable line.
    let flood = || ServerReply::Text(format!("* 1 FETCH (UID 1 BODY[]<0> {{900000000}}\r\n{}", "x".repeat(2_000_000)));
    let cases: [Case<usize>; 4] = [
        (|| ServerReply::Text("{} NO broken on disk\r\n".to_owned()), 1),
        (flood, 4),
        (|| ServerReply::Text("* 1 FETCH (UID one)\r\n{} OK\r\n".to_owned()), 1),
        (|| ServerReply::Text("what\r\n".to_owned()), 4),
    ];
    for (answer, connections) in cases {
        let server = ScriptedImapServer::start(at_first("UID FETCH 1 (UID BODY", 3, answer));
        let fixture = fixture_of(&server);
        fixture.store_cursor("1:0").await;
        server.deliver("broken");
        server.deliver("whole");
        let _running = fixture.start();
        fixture.log.until(1, "take 1:2").await;
        let notices = fixture.inbox.notices();
        assert!(notices.len() == 1 && notices[0].contains("INBOX (UID 1)"), "{notices:?}");
        assert_eq!(fixture.log.of(&["SELECT"]).len(), connections);
        assert!(!server.state().mails[0].seen);
    }
}

#[tokio::test]
async fn large_mails_are_fetched_in_parts_or_by_header_only() {
    let server = ScriptedImapServer::start(no_fault);
    let mut fixture = WatchFixture::new(&server);
    fixture.config.max_size = ByteSize(1_500_000);
    let fixture = Arc::new(fixture);
    fixture.store_cursor("1:0").await;
    for size in [524_288, 1_499_999, 1_500_001] {
        server.deliver("large");
        server.state().mails.last_mut().unwrap().text.resize(size, b'\n');
    }
    let _running = fixture.start();
    fixture.log.until(3, "take").await;
    let wanted = ["take 1:1: 524288 bytes", "take 1:2: 1499999 bytes", "take 1:3: too large, 1500001 bytes"];
    assert_eq!(fixture.log.of(&["take"]), wanted);
    assert!(fixture.log.of(&["UID FETCH 3 (UID BODY"]).iter().all(|line| line.contains("[HEADER]")));
}

#[tokio::test]
async fn mails_are_moved_by_the_best_command_of_the_server() {
    let copied = [r#"UID COPY 1 "&XfJ7VFkN-/a""#, r"UID STORE 1 +FLAGS.SILENT (\Deleted)", "UID EXPUNGE 1"];
    let cases: [(&str, &[&str]); 3] = [
        ("IDLE MOVE UIDPLUS", &[r#"UID MOVE 1 "&XfJ7VFkN-/a""#]),
        ("IDLE UIDPLUS", &copied),
        // Never EXPUNGE: it would remove mails that other clients marked.
        ("IDLE", &copied[..2]),
    ];
    for (capabilities, wanted) in cases {
        let server = ScriptedImapServer::start(no_fault);
        server.state().capabilities = capabilities;
        let mut fixture = WatchFixture::new(&server);
        (fixture.config.done, fixture.config.move_to) = (DoneAction::Move, "已答复/a".to_owned());
        let fixture = Arc::new(fixture);
        fixture.store_cursor("1:0").await;
        server.deliver("one");
        let _running = fixture.start();
        fixture.log.until(1, "IDLE").await;
        assert_eq!(
            fixture.log.of(&["UID MOVE", "UID COPY", "UID STORE", "UID EXPUNGE", "EXPUNGE"]),
            wanted,
            "{capabilities}"
        );
    }
}

#[tokio::test]
async fn nothing_is_sent_in_plain_text() {
    let starttls = |fixture: &mut WatchFixture| fixture.config.imap_tls = Tls::Starttls;
    let injected = || ServerReply::Text("{} OK go on\r\n* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\n".to_owned());
    let cases: [Case<&str>; 3] = [
        (injected, "went on in plain"),
        (|| ServerReply::Text("{} BAD what\r\n".to_owned()), "offers no STARTTLS"),
        (|| ServerReply::Close(""), "closed the connection"),
    ];
    for (answer, wanted) in cases {
        let server = ScriptedImapServer::start(at_first("STARTTLS", 1, answer));
        let error = fails(Arc::clone(&server), starttls).await;
        assert!(error.contains(wanted), "{error}");
        assert_eq!(server.log.lines(), ["STARTTLS"]);
    }
    let server = ScriptedImapServer::greeting("* PREAUTH welcome\r\n", no_fault);
    assert!(fails(Arc::clone(&server), starttls).await.contains("logged in already"));
    assert!(server.log.lines().is_empty());
}

#[tokio::test]
async fn a_refused_login_names_its_reason() {
    let login = |text: &'static str| {
        ScriptedImapServer::start(at_first("LOGIN", 9, move || ServerReply::Text(text.to_owned())))
    };
    let error = fails(login("{} NO [AUTHENTICATIONFAILED] bad canary-word\r\n"), |_| {}).await;
    assert!(error.contains("the login of assistant@example.test was refused: "), "{error}");
    // The displayed text ends within the password.
    let long = format!("{{}} NO {} canary-word\r\n", "x".repeat(188));
    let echo = ScriptedImapServer::start(at_first("LOGIN", 9, move || ServerReply::Text(long.clone())));
    let error = fails(echo, |_| {}).await;
    assert!(error.ends_with("x (hidden)"), "{error}");
    let error = fails(login("{} NO [UNAVAILABLE] later\r\n"), |_| {}).await;
    assert!(error.contains("at the moment"), "{error}");
    let closed = ScriptedImapServer::start(no_fault);
    closed.state().capabilities = "LOGINDISABLED";
    assert!(fails(Arc::clone(&closed), |_| {}).await.contains("LOGINDISABLED"));
    assert!(closed.log.of(&["LOGIN"]).is_empty());
    let missing =
        ScriptedImapServer::start(at_first("SELECT", 1, || ServerReply::Text("{} NO 没有这个文件夹\r\n".to_owned())));
    assert!(fails(missing, |_| {}).await.ends_with("cannot be opened: 没有这个文件夹"));
    let busy = ScriptedImapServer::greeting("* BYE too many connections\r\n", no_fault);
    assert!(fails(busy, |_| {}).await.contains("too many connections"));
    let other = ScriptedImapServer::greeting("220 smtp.example.test ESMTP\r\n", no_fault);
    assert!(fails(other, |_| {}).await.contains("not an IMAP server"));
}

#[tokio::test]
async fn a_refused_token_is_replaced_once() {
    let server = ScriptedImapServer::start(|command| match command {
        "AUTHENTICATE XOAUTH2" => ServerReply::Text("+ \r\n".to_owned()),
        // The challenge is the base64 of `{"status":"400"}`.
        "" => ServerReply::Text("+ eyJzdGF0dXMiOiI0MDAifQ==\r\na2 NO refused\r\n".to_owned()),
        _ => ServerReply::Normal,
    });
    server.state().capabilities = "AUTH=XOAUTH2";
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let command = format!("echo x >> {}; echo token", runs.display());
    let error = fails(Arc::clone(&server), |fixture| {
        fixture.config.token_command = Some(["sh", "-c", &command].map(str::to_owned).to_vec());
    })
    .await;
    assert!(error.contains("was refused") && error.contains("status 400"), "{error}");
    assert_eq!(std::fs::read_to_string(runs).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_watch_ends_at_shutdown() {
    for hang in ["IDLE", "UID SEARCH", "LOGIN"] {
        let server = ScriptedImapServer::start(at_first(hang, 9, || ServerReply::Hang));
        let fixture = fixture_of(&server);
        let (shutdown, own) = (CancellationToken::new(), Arc::clone(&fixture));
        let running = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { own.run(shutdown).await }
        });
        fixture.log.until(1, hang).await;
        shutdown.cancel();
        let end = tokio::time::timeout(Duration::from_secs(4), running).await;
        assert!(end.unwrap().unwrap().is_ok(), "{hang}");
    }
}
