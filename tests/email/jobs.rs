//! What is promised in a mail comes in that thread.

use serde_json::json;

use super::desk::Desk;
use crate::support::Reply;
use crate::support::mail::Draft;

const ADA: &str = "Ada Lovelace <ada@example.test>";

/// A reminder that is asked for by mail is a mail of the same thread, to whoever asked for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_reminder_stays_in_its_thread() {
    let Some(desk) = Desk::open(|setup| setup.mail("trusted_from", vec!["ada@example.test"])).await else { return };
    let tea = json!({"action": "add", "kind": "message", "message": "The tea is ready", "at": "in 1s"});
    desk.model.on("remind me", [Reply::tool("cron", &tea), Reply::text("I will.")]);
    let draft = Draft::new(ADA, "Tea", "remind me of the tea");
    desk.receive(&draft);
    let sent = desk.sent(2).await;
    let mut said: Vec<_> = sent.iter().map(|taken| taken.mail.text().trim().to_owned()).collect();
    said.sort_unstable();
    assert_eq!(said, ["I will.", "The tea is ready"]);
    for taken in &sent {
        assert_eq!(
            (taken.mail.headers("subject"), &taken.to),
            (vec!["Re: Tea".to_owned()], &vec!["ada@example.test".to_owned()])
        );
        assert!(taken.mail.header("references").contains(draft.message_id()), "{}", taken.mail.header("references"));
    }
    desk.check();
}
