//! Conversations: people write mails and get answers.

use super::servers::{RealServers, ScriptedServers, wait_watching};
use crate::support::invariants::{Journal, wait_settled};
use crate::support::mail::{ASSISTANT, Draft};

const ADA: &str = "Ada Lovelace <ada@example.test>";

/// Three mails and their answers through real servers form one session, and each reply is threaded as mail programs expect.
#[tokio::test(flavor = "multi_thread")]
async fn a_thread_of_three_mails_is_one_session() {
    let Some(servers) = RealServers::start(|setup| setup).await else { return };
    let first = Draft::new(ADA, "A question", "first words").header("Cc", "grace@example.test");
    let mut draft = first.clone();
    let mut references = Vec::new();
    let mut ids = Vec::new();
    for words in ["first words", "second words", "third words"] {
        let reply = servers.ask(&draft).await;
        references.push(draft.message_id().to_owned());
        for name in
            ["message-id", "in-reply-to", "references", "subject", "from", "to", "auto-submitted", "content-type"]
        {
            println!("{name}: {}", reply.header(name));
        }
        println!("---- {words}");
        assert_eq!(reply.headers("references"), [references.join(" ")]);
        assert_eq!(reply.headers("in-reply-to"), [draft.message_id()]);
        assert_eq!(reply.headers("subject"), ["Re: A question"]);
        assert_eq!(reply.headers("auto-submitted"), ["auto-replied"]);
        assert_eq!((reply.from().as_str(), reply.to()), (ASSISTANT, vec!["ada@example.test".to_owned()]));
        assert_eq!((reply.headers("cc"), reply.kind().as_str()), (Vec::new(), "multipart/alternative"));
        assert!(!reply.header("date").is_empty() && reply.header("received").contains("mx.example.test"));
        let id = reply.header("message-id");
        assert!(id.starts_with("<daoyou.") && id.ends_with("@example.test>") && !ids.contains(&id), "{id}");
        assert!(reply.text().contains(words) && reply.html().contains(words), "{}", reply.text());
        assert!(!reply.text().contains("first words") || words == "first words", "{}", reply.text());
        draft = Draft::reply(
            ADA,
            &reply,
            match words {
                "first words" => "second words\n\nOn Monday the assistant wrote:\n> first words",
                _ => "third words",
            },
        );
        references.push(id.clone());
        ids.push(id);
    }
    wait_settled(&servers.gateway.database()).await;
    let journal = Journal::read(&servers.gateway.database()).unwrap();
    let sessions: Vec<_> = journal.inbox.iter().map(|row| row.session.as_str()).collect();
    assert_eq!(sessions, vec![format!("email:{}", first.message_id()); 3]);
    let last = servers.model.requests().pop().expect("a request");
    let prompt = last["messages"].to_string();
    assert_eq!((servers.model.count(), prompt.matches("first words").count()), (3, 2), "{prompt}");
    servers.dovecot.wait_seen(ASSISTANT, "INBOX", 3).await;
    assert_eq!(servers.dovecot.mails("ada@example.test", "INBOX").len(), 3, "one mail for each");
    assert_eq!(servers.dovecot.mails("grace@example.test", "INBOX").len(), 0, "copies go to nobody");
}

/// Eight people write at the same time. Each is answered once, with the right answer.
#[tokio::test(flavor = "multi_thread")]
async fn eight_concurrent_senders_each_get_their_own_answer() {
    let Some(servers) = ScriptedServers::start(|setup| setup).await else { return };
    for n in 0..8 {
        servers.receive(&Draft::new(&format!("p{n}@example.test"), "All at once", &format!("words of person {n}")));
    }
    let sent = servers.sent(8).await;
    for n in 0..8 {
        let to = vec![format!("p{n}@example.test")];
        let mails: Vec<_> = sent.iter().filter(|taken| taken.to == to).collect();
        assert_eq!(mails.len(), 1, "{to:?}");
        assert!(mails[0].mail.text().contains(&format!("words of person {n}")), "{}", mails[0].mail.text());
    }
    servers.dovecot.wait_seen(ASSISTANT, "INBOX", 8).await;
    let mut sessions: Vec<_> = servers.check().inbox.into_iter().map(|row| row.session).collect();
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!(sessions.len(), 8, "each thread has a session of its own");
}

/// A reply that lost its References still belongs to its thread. Another sender who names the thread does not join it.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_without_references_joins_only_its_own_thread() {
    let Some(servers) = ScriptedServers::start(|setup| setup).await else { return };
    let first = Draft::new(ADA, "A plan", "the secret plan");
    servers.receive(&first);
    let reply = servers.sent(1).await.remove(0).mail;
    let unnamed = |from: &str, text: &str| Draft::new(from, "Re: A plan", text);
    let own = Draft::reply(ADA, &reply, "one").without("References");
    let named_by_another = unnamed("bob@example.test", "two").header("References", first.message_id());
    let answers = [own, unnamed(ADA, "three"), named_by_another, Draft::new(ADA, "Re: Another plan", "four")];
    for (n, draft) in answers.iter().enumerate() {
        servers.receive(draft);
        servers.sent(n + 2).await;
    }
    let sessions: Vec<_> = servers.check().inbox.into_iter().map(|row| row.session).collect();
    let is_first: Vec<_> = sessions.iter().map(|session| *session == sessions[0]).collect();
    assert_eq!(is_first, [true, true, true, false, false], "{sessions:?}");
    let prompt = servers.model.requests_about("two").remove(0)["messages"].to_string();
    assert!(!prompt.contains("secret plan"), "{prompt}");
}

/// A command in the first line is answered without a model, whatever text follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_the_first_line_is_answered_without_the_model() {
    let trusting = |setup: crate::support::Setup| setup.mail("trusted_from", vec!["ada@example.test"]);
    let Some(servers) = ScriptedServers::start(trusting).await else { return };
    servers.receive(&Draft::new(ADA, "please", "/help\n\n-- \nAda Lovelace\nCountess"));
    let sent = servers.sent(1).await;
    assert!(sent[0].mail.text().contains("/status"), "{}", sent[0].mail.text());
    servers.receive(&Draft::new(ADA, "please", "/status"));
    let sent = servers.sent(2).await;
    assert_eq!((sent[1].mail.subject().as_str(), servers.model.count()), ("Re: please", 0));
    servers.check();
}

/// Two mailboxes, one with a non-ASCII name. Accepted mails are moved, and sent mails are stored in a third mailbox.
#[tokio::test(flavor = "multi_thread")]
async fn processed_and_sent_mails_move_to_their_mailboxes() {
    // "测试" as IMAP writes it (RFC 3501, section 5.1.3).
    const TESTS: &str = "&bUuL1Q-";
    let more = |setup: crate::support::Setup| {
        let setup = setup.mail("mailbox", vec!["INBOX", "测试"]).mail("sent_mailbox", "Sent");
        setup.mail("done", "move").mail("move_to", "Done")
    };
    let Some(mut servers) = ScriptedServers::stopped(more).await else { return };
    for mailbox in [TESTS, "Done"] {
        assert!(servers.dovecot.mails(ASSISTANT, mailbox).is_empty());
    }
    servers.gateway.up().await;
    wait_watching(&servers.gateway.database(), 2).await;
    servers.receive(&Draft::new(ADA, "one", "into the inbox"));
    servers.dovecot.deliver_to(ASSISTANT, TESTS, &Draft::new("bob@example.test", "two", "into the other"));
    let mut sent: Vec<_> = servers.sent(2).await.into_iter().map(|taken| taken.mail.subject()).collect();
    sent.sort_unstable();
    assert_eq!(sent, ["Re: one", "Re: two"]);
    crate::support::until("both mails to be moved", async || {
        (servers.dovecot.mails(ASSISTANT, "Done").len() == 2).then_some(())
    })
    .await;
    servers.dovecot.wait_seen(ASSISTANT, "Sent", 2).await;
    assert_eq!(
        [servers.dovecot.mails(ASSISTANT, "INBOX").len(), servers.dovecot.mails(ASSISTANT, TESTS).len()],
        [0, 0]
    );
    servers.check();
}

/// Mails from before the first start are ignored, unless `backlog` is set.
#[tokio::test(flavor = "multi_thread")]
async fn old_mail_is_ignored_unless_backlog_is_set() {
    for (backlog, answered) in [("0s", vec!["new"]), ("1h", vec!["recent", "new"])] {
        let Some(mut servers) = ScriptedServers::stopped(|setup| setup.mail("backlog", backlog)).await else { return };
        let ago = |minutes: u64| std::time::SystemTime::now() - std::time::Duration::from_secs(minutes * 60);
        servers.receive(&Draft::new(ADA, "ancient", "from long ago").received(ago(180)));
        servers.receive(&Draft::new(ADA, "recent", "from just now").received(ago(10)));
        servers.gateway.up().await;
        wait_watching(&servers.gateway.database(), 1).await;
        servers.receive(&Draft::new(ADA, "new", "from now"));
        // Mails of different threads may overtake each other.
        let sent = servers.sent(answered.len()).await;
        let sent: std::collections::BTreeSet<_> = sent.into_iter().map(|taken| taken.mail.subject()).collect();
        let expected = answered.iter().map(|subject| format!("Re: {subject}")).collect();
        assert_eq!(sent, expected, "backlog {backlog}");
        servers.dovecot.wait_seen(ASSISTANT, "INBOX", answered.len()).await;
    }
}

/// A mailbox that does not exist stops only itself, and the channel's state names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_mailbox_does_not_stop_the_others() {
    let more = |setup: crate::support::Setup| setup.mail("mailbox", vec!["Projects", "INBOX"]);
    let Some(mut servers) = ScriptedServers::stopped(more).await else { return };
    servers.gateway.spawn();
    servers.gateway.wait_alive().await;
    wait_watching(&servers.gateway.database(), 1).await;
    servers.receive(&Draft::new(ADA, "one", "into the inbox"));
    assert_eq!(servers.sent(1).await[0].mail.subject(), "Re: one");
    let channels = servers.gateway.json(&["channels", "list"]).await;
    let email = channels.as_array().unwrap().iter().find(|row| row["name"] == "email").unwrap();
    assert_eq!(email["state"], "failed");
    let error = email["error"].as_str().unwrap();
    assert!(error.contains("Projects: the mailbox cannot be opened"), "{error}");
    servers.check();
}
