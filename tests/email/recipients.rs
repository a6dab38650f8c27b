//! What a turn may know and say depends on who gets its reply.

use super::servers::ScriptedServers;
use crate::support::Reply;
use crate::support::Setup;
use crate::support::mail::Draft;

const ADA: &str = "Ada Lovelace <ada@example.test>";
const BOB: &str = "bob@example.test";

/// In this setup, Ada is the owner.
fn owned_by_ada(setup: Setup) -> Setup {
    setup.set("owner.identities", vec!["email:ada@example.test"])
}

/// An answer that one person got is not in the conversation of another person of the thread.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_one_person_is_unknown_to_the_others_of_the_thread() {
    let Some(servers) = ScriptedServers::start(owned_by_ada).await else { return };
    servers.model.on("my pin", [Reply::text("Your pin is 4711pin.")]);
    let text = "Bob will help. And just for me: what is my pin?";
    servers.receive(&Draft::new(ADA, "A trip", text).header("Cc", BOB));
    let answer = servers.sent(1).await.remove(0);
    assert_eq!((answer.to, answer.mail.text().contains("4711pin")), (vec!["ada@example.test".to_owned()], true));
    servers.receive(&Draft::reply(BOB, &answer.mail, "What was the answer to Ada?"));
    let answer_to_bob = servers.sent(2).await.remove(1);
    assert_eq!(answer_to_bob.to, [BOB]);
    servers.receive(&Draft::reply(ADA, &answer_to_bob.mail, "Go on with the trip, please."));
    servers.sent(3).await;
    let request = |words: &str| servers.model.requests_about(words).remove(0).to_string();
    assert!(!request("What was the answer").contains("4711pin"), "{}", request("What was the answer"));
    assert!(request("Go on with the trip").contains("4711pin"), "Ada's conversation goes on");
    let sessions: Vec<_> = servers.check().inbox.into_iter().map(|row| row.session).collect();
    assert!(sessions[0] == sessions[2] && sessions[0] != sessions[1], "{sessions:?}");
}

/// The owner's private memory is in no request whose answer other people get.
#[tokio::test(flavor = "multi_thread")]
async fn private_memory_is_not_used_in_a_reply_to_all() {
    let Some(servers) = ScriptedServers::start(|setup| owned_by_ada(setup).mail("reply_all", true)).await else {
        return;
    };
    let added = servers.gateway.run(&["memory", "add", "The bank pin is 4711pin"]).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    for (n, (text, copies, is_known)) in
        [("hello alone", "", true), ("hello with both", "bob@example.test, carol@example.test", false)]
            .into_iter()
            .enumerate()
    {
        servers.receive(&Draft::new(ADA, text, text).header("Cc", copies));
        let sent = servers.sent(n + 1).await;
        assert_eq!(sent[n].to.len(), if copies.is_empty() { 1 } else { 3 });
        let request = servers.model.requests_about(text).remove(0).to_string();
        assert_eq!(request.contains("4711pin"), is_known, "{text}: {request}");
    }
    servers.check();
}
