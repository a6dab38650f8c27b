//! Jobs that send mails: in the thread of a mail, or to an address.

use serde_json::json;

use super::servers::ScriptedServers;
use crate::support::Reply;
use crate::support::mail::Draft;

const ADA: &str = "Ada Lovelace <ada@example.test>";

/// A reminder requested by mail is a mail of the same thread, to the same sender.
#[tokio::test(flavor = "multi_thread")]
async fn a_reminder_by_mail_stays_in_its_thread() {
    let Some(servers) = ScriptedServers::start(|setup| setup.mail("trusted_from", vec!["ada@example.test"])).await
    else {
        return;
    };
    let tea = json!({"action": "add", "kind": "message", "message": "The tea is ready", "at": "in 1s"});
    servers.model.on("remind me", [Reply::tool("cron", &tea), Reply::text("I will.")]);
    let draft = Draft::new(ADA, "Tea", "remind me of the tea");
    servers.receive(&draft);
    let sent = servers.sent(2).await;
    let mut texts: Vec<_> = sent.iter().map(|taken| taken.mail.text().trim().to_owned()).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["I will.", "The tea is ready"]);
    for taken in &sent {
        assert_eq!(
            (taken.mail.headers("subject"), &taken.to),
            (vec!["Re: Tea".to_owned()], &vec!["ada@example.test".to_owned()])
        );
        assert!(taken.mail.header("references").contains(draft.message_id()), "{}", taken.mail.header("references"));
    }
    servers.check();
}

/// A job's mail to an address begins a thread. The reply to it belongs to the session of that address, which knows the job's text.
#[tokio::test(flavor = "multi_thread")]
async fn the_reply_to_a_jobs_mail_knows_its_text() {
    let Some(servers) = ScriptedServers::start(|setup| setup).await else { return };
    let add = ["cron", "add", "--name", "brief", "--at", "in 1s", "--message", "The invoice over 4711 is due"];
    let to = |chat: &'static str| [&add[..], &["--channel", "email", "--chat", chat]].concat();
    servers.gateway.json(&to("ada@example.test")).await;
    let news = servers.sent(1).await.remove(0);
    assert_eq!((news.to, news.mail.headers("in-reply-to")), (vec!["ada@example.test".to_owned()], Vec::new()));
    let text = "How much was it?\n\nOn Monday the assistant wrote:\n> The invoice over 4711 is due";
    let question = Draft::reply(ADA, &news.mail, text);
    servers.receive(&question);
    let answer = servers.sent(2).await.remove(1);
    assert_eq!(answer.mail.header("in-reply-to"), question.message_id());
    servers.receive(&Draft::reply(ADA, &answer.mail, "And until when?"));
    servers.sent(3).await;
    for words in ["How much was it", "And until when"] {
        let request = servers.model.requests_about(words).remove(0).to_string();
        assert!(request.contains("The invoice over 4711 is due"), "{request}");
    }
    let inbox = servers.check().inbox;
    let sessions: Vec<_> =
        inbox.iter().map(|row| row.session.as_str()).filter(|key| key.starts_with("email:")).collect();
    assert!(sessions.len() >= 2 && sessions.iter().all(|key| *key == "email:ada@example.test"), "{sessions:?}");

    for (chat, fault) in [
        ("not an address", "\"not an address\" is not an e-mail address"),
        ("a@b.test, c@d.test", "\"a@b.test, c@d.test\" is not an e-mail address"),
        ("<nonexistent@thread>", "no mail of the thread <nonexistent@thread> is known"),
    ] {
        servers.gateway.run(&to(chat)).await.assert_refused(fault);
    }
}
