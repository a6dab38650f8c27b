//! A mailbox, and what a server may do to its reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::testing::{Answer, Server, Watched};
use crate::email::config::{Done, Tls};
use crate::settings::{ByteSize, Span};

/// What a server answers, and what becomes of it.
type Case<A> = (fn() -> Answer, A);

fn usual(_: &str) -> Answer {
    Answer::Usual
}

/// Answers a command that begins with `start` with `answer`, the first `times` times.
fn at_first(
    start: &'static str,
    times: u32,
    answer: impl Fn() -> Answer + Send + Sync + 'static,
) -> impl Fn(&str) -> Answer + Send + Sync {
    let left = AtomicU32::new(times);
    move |command| {
        let hit = command.starts_with(start)
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if hit { answer() } else { Answer::Usual }
    }
}

fn watched(server: &Server) -> Arc<Watched> {
    Arc::new(Watched::new(server))
}

async fn fails(server: Arc<Server>, change: impl FnOnce(&mut Watched)) -> String {
    let mut watched = Watched::new(&server);
    change(&mut watched);
    let end = tokio::time::timeout(Duration::from_secs(20), watched.run(CancellationToken::new()));
    let error = end.await.unwrap().unwrap_err().to_string();
    assert!(!error.contains("canary-word"), "{error}");
    error
}

#[tokio::test]
async fn a_first_start_takes_what_comes_after_it_and_marks_it_behind_the_commit() {
    let server = Server::start(usual);
    server.deliver("old");
    let watched = watched(&server);
    let _running = watched.start();
    watched.log.until(1, "IDLE").await;
    assert_eq!(watched.cursor().await, "1:1");
    server.deliver("new");
    server.deliver("stranger");
    watched.log.until(1, "kept 1:3").await;
    let order = watched.log.of(&["started", "ID ", "SELECT", "take", "UID FETCH 2 (UID BODY", "UID STORE"]);
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
    assert_eq!(watched.cursor().await, "1:3");
    assert!(!server.state().mails[0].seen && !server.state().mails[2].seen);
}

#[tokio::test]
async fn mails_from_before_are_taken_as_far_back_as_the_backlog() {
    let server = Server::start(usual);
    server.deliver_at("ancient", " 1-Jan-2001 12:00:00 +0800");
    server.deliver("fresh");
    let mut watched = Watched::new(&server);
    watched.config.backlog = Span::from_secs(3_600);
    let watched = Arc::new(watched);
    let _running = watched.start();
    watched.log.until(1, "IDLE").await;
    assert_eq!(watched.log.of(&["take"]).len(), 1);
    assert!(server.state().mails[1].seen && !server.state().mails[0].seen);
    assert_eq!(watched.cursor().await, "1:2");
}

#[tokio::test]
async fn a_mail_that_is_not_taken_is_offered_again_and_stays_unread() {
    let server = Server::start(usual);
    let watched = watched(&server);
    watched.read_before("1:0").await;
    watched.taker.refusals.store(2, Ordering::SeqCst);
    server.deliver("one");
    server.deliver("two");
    let _running = watched.start();
    watched.log.until(1, "take 1:2").await;
    let order: Vec<_> =
        watched.log.of(&["take", "UID STORE"]).iter().map(|line| line.chars().take(11).collect::<String>()).collect();
    // Whether the second is marked by now is no matter here.
    assert_eq!(order[..5], ["take 1:1: 4", "take 1:1: 4", "take 1:1: 4", "UID STORE 1", "take 1:2: 4"]);
}

#[tokio::test]
async fn numbers_given_anew_answer_nothing_twice_and_nothing_old() {
    let server = Server::start(usual);
    let watched = watched(&server);
    watched.read_before("1:70").await;
    server.state().validity = 2;
    server.deliver("known");
    server.deliver_at("old", "28-Feb-2026 23:59:59 +0000");
    server.deliver("missed");
    watched.taker.know(&server.state().mails[0].text);
    let _running = watched.start();
    watched.log.until(1, "IDLE").await;
    assert_eq!(watched.log.of(&["take"]), ["take 2:3: 53 bytes"]);
    let seen: Vec<bool> = server.state().mails.iter().map(|mail| mail.seen).collect();
    assert_eq!(seen, [true, false, true]);
    assert_eq!(watched.cursor().await, "2:3");
    // What comes now is new, whatever its date.
    server.deliver_at("dated back", "01-Jan-2026 12:00:00 +0000");
    watched.log.until(1, "take 2:4").await;
}

#[tokio::test]
async fn what_was_accepted_before_a_crash_is_marked_after_it() {
    let server = Server::start(usual);
    let watched = watched(&server);
    server.deliver("accepted");
    server.deliver("stranger");
    watched.taker.know(&server.state().mails[0].text);
    watched.read_before("1:2").await;
    let _running = watched.start();
    watched.log.until(1, "IDLE").await;
    let seen: Vec<bool> = server.state().mails.iter().map(|mail| mail.seen).collect();
    assert_eq!(seen, [true, false]);
    assert!(watched.log.of(&["take"]).is_empty());
}

#[tokio::test]
async fn a_connection_that_ends_is_made_anew() {
    for leave in ["* BYE shutting down\r\n", "", "+ idling\r\n* BYE kicked\r\n", "+ idling\r\n"] {
        let server = Server::start(at_first("IDLE", 1, move || Answer::Leave(leave)));
        let watched = watched(&server);
        let _running = watched.start();
        watched.log.until(1, "IDLE").await;
        server.deliver("new");
        watched.log.until(1, "take 1:1").await;
        assert_eq!(watched.log.of(&["started", "SELECT"]).len(), 3, "{leave:?}");
    }
}

#[tokio::test]
async fn an_account_that_cannot_be_reached_any_more_is_handed_up() {
    let selects = AtomicU32::new(0);
    let server = Server::start(move |command| match command {
        "IDLE" => Answer::Leave("* BYE going down\r\n"),
        _ if command.starts_with("SELECT") && selects.fetch_add(1, Ordering::SeqCst) > 0 => Answer::Leave(""),
        _ => Answer::Usual,
    });
    let error = fails(Arc::clone(&server), |_| {}).await;
    assert!(error.contains("INBOX"), "{error}");
    assert_eq!((server.log.of(&["SELECT"]).len(), server.log.of(&["started"]).len()), (6, 1));
}

#[tokio::test]
async fn what_could_not_be_marked_is_marked_later_whatever_becomes_of_the_first() {
    let stores = AtomicU32::new(0);
    let server = Server::start(move |command| {
        if !command.starts_with("UID STORE") {
            return Answer::Usual;
        }
        // No to each of the three; at the next connection to the first by its end; then as usual.
        match stores.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Answer::Say("{} NO not now\r\n".to_owned()),
            2 | 3 => Answer::Leave(""),
            _ => Answer::Usual,
        }
    });
    server.deliver("before");
    let watched = watched(&server);
    watched.read_before("1:1").await;
    server.state().mails[0].seen = true;
    for name in ["one", "two", "three"] {
        server.deliver(name);
    }
    let _running = watched.start();
    watched.log.until(1, "IDLE").await;
    let seen: Vec<bool> = server.state().mails.iter().map(|mail| mail.seen).collect();
    assert_eq!((seen, watched.log.of(&["SELECT"]).len()), (vec![true; 4], 3), "{:#?}", watched.log.of(&["UID STORE"]));
}

#[tokio::test]
async fn a_server_that_is_only_half_there_is_noticed() {
    // It idles, and says nothing more: also not to DONE.
    let silent = || Answer::Say("+ idling\r\n* OK Still here\r\n".to_owned());
    for (start, answer) in
        [("IDLE", silent as fn() -> Answer), ("IDLE", || Answer::Hang), ("UID SEARCH", || Answer::Hang)]
    {
        let fault = at_first(start, 1, answer);
        let server = Server::start(move |command| if command.is_empty() { Answer::Hang } else { fault(command) });
        let mut watched = Watched::new(&server);
        let moment = Duration::from_millis(100);
        (watched.pace.quiet, watched.pace.patience, watched.pace.silence) = (moment, moment, moment * 10);
        let watched = Arc::new(watched);
        let _running = watched.start();
        watched.log.until(2, "SELECT").await;
        server.deliver("new");
        watched.log.until(1, "take 1:").await;
    }
}

/// RFC 2177, section 3: a client that idles begins anew before half an hour is over, or is logged out.
#[tokio::test]
async fn idling_is_begun_anew_in_time() {
    let server = Server::start(usual);
    let mut watched = Watched::new(&server);
    assert!(watched.pace.longest_idle < Duration::from_secs(29 * 60));
    (watched.pace.quiet, watched.pace.longest_idle) = (Duration::from_secs(60), Duration::from_millis(50));
    let watched = Arc::new(watched);
    let _running = watched.start();
    watched.log.until(4, "IDLE").await;
    assert_eq!(watched.log.of(&["SELECT"]).len(), 1, "on the same connection");
    server.deliver("new");
    watched.log.until(1, "take 1:").await;
}

#[tokio::test]
async fn a_server_that_does_not_idle_is_asked() {
    for no_idle in ["{} NO not now\r\n", "{} BAD what\r\n", "* 1 EXISTS\r\n{} OK done already\r\n"] {
        let server = Server::start(at_first("IDLE", u32::MAX, move || Answer::Say(no_idle.to_owned())));
        let mut watched = Watched::new(&server);
        watched.config.poll_interval = Span::from_millis(20);
        let watched = Arc::new(watched);
        let _running = watched.start();
        watched.log.until(4, "UID SEARCH").await;
        server.deliver("new");
        watched.log.until(1, "take 1:1").await;
        assert_eq!(watched.log.of(&["IDLE", "SELECT"]).len(), 2, "{no_idle}");
    }
}

#[tokio::test]
async fn a_mail_that_arrives_while_one_looks_is_not_left_lying() {
    let server =
        Server::start(at_first("UID SEARCH", 1, || Answer::Say("* SEARCH\r\n* 1 EXISTS\r\n{} OK\r\n".to_owned())));
    let watched = watched(&server);
    watched.read_before("1:0").await;
    server.deliver("meanwhile");
    let _running = watched.start();
    watched.log.until(1, "take 1:1").await;
    assert!(watched.log.of(&["take", "IDLE"])[0].starts_with("take"));
}

#[tokio::test]
async fn a_mail_that_is_gone_is_no_fault() {
    let server = Server::start(at_first("UID SEARCH", 1, || {
        Answer::Say("* SEARCH 5 3 4\r\n* 1 EXPUNGE\r\n{} OK\r\n".to_owned())
    }));
    server.state().next = 5;
    server.deliver("there");
    let watched = watched(&server);
    watched.read_before("1:0").await;
    let _running = watched.start();
    watched.log.until(1, "take 1:5").await;
    assert!(watched.inbox.notices().is_empty());
}

#[tokio::test]
async fn a_mail_that_cannot_be_fetched_is_skipped_and_told() {
    // A refusal; more than was asked for; nothing of use; what nobody can read.
    let flood = || Answer::Say(format!("* 1 FETCH (UID 1 BODY[]<0> {{900000000}}\r\n{}", "x".repeat(2_000_000)));
    let cases: [Case<usize>; 4] = [
        (|| Answer::Say("{} NO broken on disk\r\n".to_owned()), 1),
        (flood, 4),
        (|| Answer::Say("* 1 FETCH (UID one)\r\n{} OK\r\n".to_owned()), 1),
        (|| Answer::Say("what\r\n".to_owned()), 4),
    ];
    for (answer, connections) in cases {
        let server = Server::start(at_first("UID FETCH 1 (UID BODY", 3, answer));
        let watched = watched(&server);
        watched.read_before("1:0").await;
        server.deliver("broken");
        server.deliver("whole");
        let _running = watched.start();
        watched.log.until(1, "take 1:2").await;
        let notices = watched.inbox.notices();
        assert!(notices.len() == 1 && notices[0].contains("INBOX (UID 1)"), "{notices:?}");
        assert_eq!(watched.log.of(&["SELECT"]).len(), connections);
        assert!(!server.state().mails[0].seen);
    }
}

#[tokio::test]
async fn large_mails_come_in_parts_or_as_a_header() {
    let server = Server::start(usual);
    let mut watched = Watched::new(&server);
    watched.config.max_size = ByteSize(1_500_000);
    let watched = Arc::new(watched);
    watched.read_before("1:0").await;
    for size in [524_288, 1_499_999, 1_500_001] {
        server.deliver("large");
        server.state().mails.last_mut().unwrap().text.resize(size, b'\n');
    }
    let _running = watched.start();
    watched.log.until(3, "take").await;
    let wanted = ["take 1:1: 524288 bytes", "take 1:2: 1499999 bytes", "take 1:3: too large, 1500001 bytes"];
    assert_eq!(watched.log.of(&["take"]), wanted);
    assert!(watched.log.of(&["UID FETCH 3 (UID BODY"]).iter().all(|line| line.contains("[HEADER]")));
}

#[tokio::test]
async fn mails_are_moved_the_best_way_that_the_server_knows() {
    let copied = [r#"UID COPY 1 "&XfJ7VFkN-/a""#, r"UID STORE 1 +FLAGS.SILENT (\Deleted)", "UID EXPUNGE 1"];
    let cases: [(&str, &[&str]); 3] = [
        ("IDLE MOVE UIDPLUS", &[r#"UID MOVE 1 "&XfJ7VFkN-/a""#]),
        ("IDLE UIDPLUS", &copied),
        // Never EXPUNGE: it would remove what others marked.
        ("IDLE", &copied[..2]),
    ];
    for (capabilities, wanted) in cases {
        let server = Server::start(usual);
        server.state().capabilities = capabilities;
        let mut watched = Watched::new(&server);
        (watched.config.done, watched.config.move_to) = (Done::Move, "已答复/a".to_owned());
        let watched = Arc::new(watched);
        watched.read_before("1:0").await;
        server.deliver("one");
        let _running = watched.start();
        watched.log.until(1, "IDLE").await;
        assert_eq!(
            watched.log.of(&["UID MOVE", "UID COPY", "UID STORE", "UID EXPUNGE", "EXPUNGE"]),
            wanted,
            "{capabilities}"
        );
    }
}

#[tokio::test]
async fn nothing_is_said_in_plain() {
    let starttls = |watched: &mut Watched| watched.config.imap_tls = Tls::Starttls;
    let injected = || Answer::Say("{} OK go on\r\n* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\n".to_owned());
    let cases: [Case<&str>; 3] = [
        (injected, "went on in plain"),
        (|| Answer::Say("{} BAD what\r\n".to_owned()), "offers no STARTTLS"),
        (|| Answer::Leave(""), "closed the connection"),
    ];
    for (answer, wanted) in cases {
        let server = Server::start(at_first("STARTTLS", 1, answer));
        let error = fails(Arc::clone(&server), starttls).await;
        assert!(error.contains(wanted), "{error}");
        assert_eq!(server.log.lines(), ["STARTTLS"]);
    }
    let server = Server::greeting("* PREAUTH welcome\r\n", usual);
    assert!(fails(Arc::clone(&server), starttls).await.contains("logged in already"));
    assert!(server.log.lines().is_empty());
}

#[tokio::test]
async fn what_keeps_one_out_is_said() {
    let login = |text: &'static str| Server::start(at_first("LOGIN", 9, move || Answer::Say(text.to_owned())));
    let error = fails(login("{} NO [AUTHENTICATIONFAILED] bad canary-word\r\n"), |_| {}).await;
    assert!(error.contains("the login of assistant@example.test was refused: "), "{error}");
    let error = fails(login("{} NO [UNAVAILABLE] later\r\n"), |_| {}).await;
    assert!(error.contains("at the moment"), "{error}");
    let closed = Server::start(usual);
    closed.state().capabilities = "LOGINDISABLED";
    assert!(fails(Arc::clone(&closed), |_| {}).await.contains("LOGINDISABLED"));
    assert!(closed.log.of(&["LOGIN"]).is_empty());
    let missing = Server::start(at_first("SELECT", 1, || Answer::Say("{} NO 没有这个文件夹\r\n".to_owned())));
    assert!(fails(missing, |_| {}).await.ends_with("cannot be opened: 没有这个文件夹"));
    let busy = Server::greeting("* BYE too many connections\r\n", usual);
    assert!(fails(busy, |_| {}).await.contains("too many connections"));
    let other = Server::greeting("220 smtp.example.test ESMTP\r\n", usual);
    assert!(fails(other, |_| {}).await.contains("no IMAP server"));
}

#[tokio::test]
async fn a_refused_token_is_replaced_once() {
    let server = Server::start(|command| match command {
        "AUTHENTICATE XOAUTH2" => Answer::Say("+ \r\n".to_owned()),
        // Its tag is the base64 of what was said; the error is `{"status":"400"}`.
        "" => Answer::Say("+ eyJzdGF0dXMiOiI0MDAifQ==\r\na2 NO refused\r\n".to_owned()),
        _ => Answer::Usual,
    });
    server.state().capabilities = "AUTH=XOAUTH2";
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let command = format!("echo x >> {}; echo token", runs.display());
    let error = fails(Arc::clone(&server), |watched| {
        watched.config.token_command = Some(["sh", "-c", &command].map(str::to_owned).to_vec());
    })
    .await;
    assert!(error.contains("was refused") && error.contains("status 400"), "{error}");
    assert_eq!(std::fs::read_to_string(runs).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn it_ends_when_it_is_told_to() {
    for hang in ["IDLE", "UID SEARCH", "LOGIN"] {
        let server = Server::start(at_first(hang, 9, || Answer::Hang));
        let watched = watched(&server);
        let (shutdown, own) = (CancellationToken::new(), Arc::clone(&watched));
        let running = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { own.run(shutdown).await }
        });
        watched.log.until(1, hang).await;
        shutdown.cancel();
        let end = tokio::time::timeout(Duration::from_secs(4), running).await;
        assert!(end.unwrap().unwrap().is_ok(), "{hang}");
    }
}
