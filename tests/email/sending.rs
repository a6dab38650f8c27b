//! Replies that a server does not accept at once.

use serde_json::json;

use super::servers::{RealServers, ScriptedServers, wait_watching};
use crate::support::gateway::Gateway;
use crate::support::invariants::wait_settled;
use crate::support::mail::{ASSISTANT, Authority, Dovecot, Draft, PASSWORD, Smtp, SmtpAnswer};
use crate::support::{Hook, Model, Setup, Sink, until};

fn question() -> Draft {
    Draft::new("ada@example.test", "A question", "words")
}

/// Deferred, cut off after the last line, or refused at login, the same mail is finally sent under the same Message-ID.
#[tokio::test(flavor = "multi_thread")]
async fn temporary_smtp_failures_are_retried_with_the_same_message_id() {
    let Some(servers) = ScriptedServers::start(|setup| setup).await else { return };
    servers.smtp.refuse_login(true);
    servers.receive(&question());
    let waits = until("the refused login to be reported", async || {
        let queue = servers.gateway.json(&["queue", "list"]).await;
        queue[0]["last_error"].as_str().map(str::to_owned)
    })
    .await;
    println!("{waits}");
    assert!(waits.contains("535") && !waits.contains(PASSWORD), "{waits}");
    servers.smtp.refuse_login(false);
    assert_eq!(servers.gateway.run(&["queue", "retry", "--all"]).await.code, Some(0));
    servers.sent(1).await;

    const LATER: &str = "451 4.3.0 in a moment";
    servers.smtp.then([
        SmtpAnswer::Recipient("450 4.2.0 greylisted, come again"),
        SmtpAnswer::Data(LATER),
        SmtpAnswer::Drop,
    ]);
    servers.receive(&question());
    let sent = servers.sent(4).await.split_off(1);
    let how: Vec<_> = sent.iter().map(|taken| taken.how).collect();
    assert_eq!((how, servers.smtp.asked()), (vec![SmtpAnswer::Data(LATER), SmtpAnswer::Drop, SmtpAnswer::Well], 5));
    assert!(sent.iter().all(|taken| taken.mail.raw == sent[0].mail.raw), "it is the same mail");
    assert_eq!(servers.model.count(), 2);
    servers.check();
}

/// A server does not respond to the login. The channel test and the log report it soon, the mail waits as for any service
/// fault, and it is sent when the server responds again.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_at_login_is_reported() {
    const SILENT: &str = "the server does not answer the login: nothing came for 20 s";
    let Some(servers) = ScriptedServers::start(|setup| setup.set("channels.email.retry", vec!["1s"])).await else {
        return;
    };
    servers.smtp.set_silent(true);
    servers.receive(&question());
    let (tested, doctor) =
        tokio::join!(servers.gateway.run(&["channels", "test", "email"]), servers.gateway.run(&["doctor"]));
    for ran in [&tested, &doctor] {
        assert!(ran.code == Some(1) && ran.stdout.contains(SILENT), "{ran:?}");
    }
    let logged = async || servers.gateway.logs().lines().find(|line| line.contains(SILENT)).map(str::to_owned);
    let line = until("the log to report it", logged).await;
    assert!(line.contains("ERROR"), "{line}");
    let queue = servers.gateway.json(&["queue", "list"]).await;
    assert_eq!((queue[0]["state"].as_str(), queue[0]["tries"].as_u64()), (Some("pending"), Some(0)), "{queue}");
    servers.smtp.set_silent(false);
    assert_eq!(servers.gateway.run(&["queue", "retry", "--all"]).await.code, Some(0));
    servers.sent(1).await;
    servers.check();
}

/// A refused login is not the fault of a mail. It is reported as the channel's fault, the owner is notified once, and no
/// mail is given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_smtp_login_holds_all_mails() {
    let sink = Sink::signed().await;
    let hook = Hook::bearer("notes").callback(&sink);
    let more = |setup: Setup| {
        let setup = setup.hook(hook).set("owner.notify", "webhook:notes:owner");
        setup.set("channels.email.retry", vec!["1s"])
    };
    let Some(servers) = ScriptedServers::start(more).await else { return };
    servers.smtp.refuse_login(true);
    for n in 0..3 {
        servers.receive(&Draft::new("ada@example.test", &format!("mail {n}"), "words"));
    }
    let queue = until("all of them to wait", async || {
        let queue = servers.gateway.json(&["queue", "list"]).await;
        let waits = |entry: &serde_json::Value| entry["last_error"].as_str().is_some_and(|error| error.contains("535"));
        queue.as_array().filter(|queue| queue.len() == 3 && queue.iter().all(waits)).cloned()
    })
    .await;
    assert!(queue.iter().all(|entry| entry["state"] == "pending" && entry["tries"] == 0), "{queue:?}");
    let channels = servers.gateway.json(&["channels", "list"]).await;
    let email = channels.as_array().unwrap().iter().find(|channel| channel["name"] == "email").unwrap();
    assert!(email["state"] == "failed" && email["error"].as_str().unwrap().contains("sending: "), "{email}");
    let status = servers.gateway.run(&["status"]).await.stdout;
    assert!(status.contains("535"), "{status}");
    let posts = sink.wait_posts(1).await;
    assert!(posts[0].data("content").starts_with("The channel email cannot send anything: "), "{posts:?}");
    assert!(servers.gateway.logs().contains("ERROR") && servers.gateway.logs().contains("the channel cannot send"));
    let doctor = servers.gateway.run(&["doctor"]).await.stdout;
    assert!(doctor.contains("535"), "{doctor}");

    servers.smtp.refuse_login(false);
    let one = queue[0]["id"].as_str().unwrap();
    assert_eq!(servers.gateway.run(&["queue", "retry", one]).await.code, Some(0), "what the list shows can be retried");
    servers.smtp.wait_taken(1).await;
    assert_eq!(servers.gateway.run(&["queue", "retry", "--all"]).await.code, Some(0));
    servers.sent(3).await;
    until("the channel to be well", async || {
        let channels = servers.gateway.json(&["channels", "list"]).await;
        channels.as_array()?.iter().any(|one| one["name"] == "email" && one["state"] == "running").then_some(())
    })
    .await;
    // The attempts of `doctor` are not messages.
    let notices = sink.posts().into_iter().filter(|post| post.body["data"].is_object());
    assert_eq!(notices.count(), 1, "notified once");
    servers.check();
}

/// A server that has the whole mail but never confirms it does not block a shutdown. The next start sends the same mail again.
#[tokio::test(flavor = "multi_thread")]
async fn an_unresponsive_smtp_server_does_not_delay_shutdown() {
    let Some(mut servers) = ScriptedServers::start(|setup| setup.set("gateway.drain_timeout", "1s")).await else {
        return;
    };
    servers.smtp.then([SmtpAnswer::Hang]);
    servers.receive(&question());
    servers.smtp.wait_taken(1).await;
    servers.gateway.stop().await;
    servers.gateway.up().await;
    let sent = servers.sent(2).await;
    assert_eq!(sent[0].mail.raw, sent[1].mail.raw);
    assert_eq!(servers.model.count(), 1);
    servers.check();
}

/// A permanent refusal gives a dead letter, and the owner is notified once.
#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_smtp_refusal_is_a_dead_letter() {
    let sink = Sink::signed().await;
    let hook = Hook::bearer("ops").callback(&sink);
    let more = |setup: Setup| setup.hook(hook).set("owner.notify", "webhook:ops:duty");
    let Some(servers) = ScriptedServers::start(more).await else { return };
    servers.smtp.then([SmtpAnswer::Recipient("550 5.1.1 no such user here")]);
    servers.receive(&question());
    let posts = sink.wait_posts(1).await;
    assert!(posts[0].data("content").contains("no such user here"), "{}", posts[0].data("content"));
    wait_settled(&servers.gateway.database()).await;
    let queue = servers.gateway.json(&["queue", "list"]).await;
    assert_eq!((queue.as_array().map(Vec::len), &queue[0]["state"]), (Some(1), &json!("dead")), "{queue}");
    servers.receive(&question());
    servers.sent(1).await;
    assert_eq!((sink.posts().len(), servers.smtp.asked()), (1, 2));
    servers.check();
}

/// A server with an untrusted certificate, or with the certificate of another host, is used in neither direction, and the
/// owner can see why.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_server_certificates_are_refused() {
    let (right, wrong) = (Authority::new(), Authority::new());
    let good = right.issue(&["127.0.0.1"]);
    for bad in [wrong.issue(&["127.0.0.1"]), right.issue(&["elsewhere.test"])] {
        let model = Model::start().await;
        let Some(dovecot) = Dovecot::with_certificate(&right, &bad).await else { return };
        let smtp = Smtp::with_certificate(&good).await;
        let mut gateway = Gateway::new(Setup::new().model(&model).email(&dovecot, &smtp).mail("smtp_tls", "implicit"));
        gateway.spawn();
        gateway.wait_alive().await;
        let error = channel_error(&gateway).await;
        assert!(error.contains("certificate"), "{error}");
        println!("{error}");
        assert!(!dovecot.log().contains("Login:"), "nothing was said to it: {}", dovecot.log());
        drop(gateway);

        let Some(dovecot) = Dovecot::with_certificate(&right, &good).await else { return };
        let smtp = Smtp::with_certificate(&bad).await;
        let setup = Setup::new().model(&model).email(&dovecot, &smtp).mail("smtp_tls", "implicit");
        let gateway = Gateway::start(setup).await;
        wait_watching(&gateway.database(), 1).await;
        dovecot.deliver(ASSISTANT, &question());
        let error = until("the reply to fail", async || {
            let queue = gateway.json(&["queue", "list"]).await;
            queue[0]["last_error"].as_str().map(str::to_owned)
        })
        .await;
        assert!(error.contains("certificate") && smtp.taken().is_empty() && smtp.asked() == 0, "{error}");
        println!("{error}");
    }
}

/// Returns the error of the channel in `channels list`.
async fn channel_error(gateway: &Gateway) -> String {
    until("the channel's error", async || {
        let ran = gateway.run(&["channels", "list", "--json"]).await;
        let rows: serde_json::Value = serde_json::from_str(&ran.stdout).ok()?;
        let row = rows.as_array()?.iter().find(|row| row["name"] == "email")?.clone();
        row["error"].as_str().filter(|error| !error.is_empty()).map(str::to_owned)
    })
    .await
}

/// A wrong password is reported in plain words. With the right password the channel test succeeds, and its own mails are not answered.
#[tokio::test(flavor = "multi_thread")]
async fn the_channel_test_reports_wrong_credentials() {
    let Some(servers) = RealServers::start(|setup| setup).await else { return };
    let ran = servers.gateway.run(&["channels", "test", "email"]).await;
    println!("{}", ran.stdout);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let checks = servers.gateway.json(&["channels", "test", "email"]).await;
    assert_eq!(checks["ok"], true, "{checks}");
    let seen = checks.to_string();
    assert!(["imap", "idle", "smtp"].iter().all(|name| seen.contains(name)), "{checks}");
    assert_eq!(servers.model.count(), 0, "its own mails are answered by nobody");

    let model = Model::start().await;
    let smtp = Smtp::start().await;
    let setup = Setup::new().model(&model).email(&servers.dovecot, &smtp).mail("imap_password", "a-wrong-secret-word");
    let mut gateway = Gateway::new(setup);
    // Before the very first start there is no workspace, which is not a fault of the channel.
    let ran = gateway.run(&["channels", "test", "email"]).await;
    assert!(ran.stdout.contains("login") && !ran.stdout.contains("workspace"), "{ran:?}");
    gateway.spawn();
    gateway.wait_alive().await;
    let error = channel_error(&gateway).await;
    assert!(error.contains("password") || error.contains("login"), "{error}");
    assert!(!error.contains("a-wrong-secret-word") && !gateway.logs().contains("a-wrong-secret-word"), "{error}");
    println!("{error}");
}
