//! Jobs created by mail answer in its thread.

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
