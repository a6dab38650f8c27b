//! What becomes of replies that a server does not take at once.

use serde_json::json;

use super::desk::{Desk, Office, wait_watching};
use crate::support::gateway::Gateway;
use crate::support::invariants::wait_settled;
use crate::support::mail::{ASSISTANT, Authority, Dovecot, Draft, PASSWORD, Smtp, Take};
use crate::support::{Hook, Model, Setup, Sink, config, until};

fn question() -> Draft {
    Draft::new("ada@example.test", "A question", "words")
}

/// Put off, cut off after the last line, refused at login: the same mail goes out in the end, under the same Message-ID.
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_for_now_is_sent_again() {
    let Some(desk) = Desk::open(|setup| setup).await else { return };
    desk.smtp.refuse_login(true);
    desk.receive(&question());
    let waits = until("the refused login to be told", async || {
        let queue = desk.gateway.json(&["queue", "list"]).await;
        queue[0]["last_error"].as_str().map(str::to_owned)
    })
    .await;
    println!("{waits}");
    assert!(waits.contains("535") && !waits.contains(PASSWORD), "{waits}");
    desk.smtp.refuse_login(false);
    assert_eq!(desk.gateway.run(&["queue", "retry", "--all"]).await.code, Some(0));
    desk.sent(1).await;

    const LATER: &str = "451 4.3.0 in a moment";
    desk.smtp.then([Take::Recipient("450 4.2.0 greylisted, come again"), Take::Data(LATER), Take::Drop]);
    desk.receive(&question());
    let sent = desk.sent(4).await.split_off(1);
    let how: Vec<_> = sent.iter().map(|taken| taken.how).collect();
    assert_eq!((how, desk.smtp.asked()), (vec![Take::Data(LATER), Take::Drop, Take::Well], 5));
    assert!(sent.iter().all(|taken| taken.mail.raw == sent[0].mail.raw), "it is the same mail");
    assert_eq!(desk.model.count(), 2);
    desk.check();
}

/// A server that says nothing to the login: the test of the channel and the log say so soon, the mail waits as for any
/// condition of the service, and goes out when the server speaks again.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_silent_at_the_login_is_told() {
    const SILENT: &str = "the server does not answer the login: nothing came for 20 s";
    let Some(desk) = Desk::open(|setup| setup.set("channels.email.retry", vec!["1s"])).await else { return };
    desk.smtp.be_silent(true);
    desk.receive(&question());
    let (tested, doctor) =
        tokio::join!(desk.gateway.run(&["channels", "test", "email"]), desk.gateway.run(&["doctor"]));
    for ran in [&tested, &doctor] {
        assert!(ran.code == Some(1) && ran.stdout.contains(SILENT), "{ran:?}");
    }
    let told = async || desk.gateway.logs().lines().find(|line| line.contains(SILENT)).map(str::to_owned);
    let line = until("the log to tell of it", told).await;
    assert!(line.contains("ERROR"), "{line}");
    let queue = desk.gateway.json(&["queue", "list"]).await;
    assert_eq!((queue[0]["state"].as_str(), queue[0]["tries"].as_u64()), (Some("pending"), Some(0)), "{queue}");
    desk.smtp.be_silent(false);
    assert_eq!(desk.gateway.run(&["queue", "retry", "--all"]).await.code, Some(0));
    desk.sent(1).await;
    desk.check();
}

/// A login that is refused is no mail's fault: it shows as the channel's, the owner is told once, and no mail is given up for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_holds_all_mails() {
    let sink = Sink::start(Some(&config::callback_secret())).await;
    let hook = Hook::bearer("notes").callback(&sink);
    let more = |setup: Setup| {
        let setup = setup.hook(hook).set("owner.notify", "webhook:notes:owner");
        setup.set("channels.email.retry", vec!["1s"])
    };
    let Some(desk) = Desk::open(more).await else { return };
    desk.smtp.refuse_login(true);
    for n in 0..3 {
        desk.receive(&Draft::new("ada@example.test", &format!("mail {n}"), "words"));
    }
    let queue = until("all of them to wait", async || {
        let queue = desk.gateway.json(&["queue", "list"]).await;
        let waits = |entry: &serde_json::Value| entry["last_error"].as_str().is_some_and(|error| error.contains("535"));
        queue.as_array().filter(|queue| queue.len() == 3 && queue.iter().all(waits)).cloned()
    })
    .await;
    assert!(queue.iter().all(|entry| entry["state"] == "pending" && entry["tries"] == 0), "{queue:?}");
    let channels = desk.gateway.json(&["channels", "list"]).await;
    let email = channels.as_array().unwrap().iter().find(|channel| channel["name"] == "email").unwrap();
    assert!(email["state"] == "failed" && email["error"].as_str().unwrap().contains("sending: "), "{email}");
    let status = desk.gateway.run(&["status"]).await.stdout;
    assert!(status.contains("535"), "{status}");
    let posts = sink.wait_posts(1).await;
    assert!(posts[0].data("content").starts_with("The channel email cannot send anything: "), "{posts:?}");
    assert!(desk.gateway.logs().contains("ERROR") && desk.gateway.logs().contains("the channel cannot send"));
    let doctor = desk.gateway.run(&["doctor"]).await.stdout;
    assert!(doctor.contains("535"), "{doctor}");

    desk.smtp.refuse_login(false);
    let one = queue[0]["id"].as_str().unwrap();
    assert_eq!(desk.gateway.run(&["queue", "retry", one]).await.code, Some(0), "what the list shows can be retried");
    desk.smtp.wait_taken(1).await;
    assert_eq!(desk.gateway.run(&["queue", "retry", "--all"]).await.code, Some(0));
    desk.sent(3).await;
    until("the channel to be well", async || {
        let channels = desk.gateway.json(&["channels", "list"]).await;
        channels.as_array()?.iter().any(|one| one["name"] == "email" && one["state"] == "running").then_some(())
    })
    .await;
    // What `doctor` tries is no message.
    let told = sink.posts().into_iter().filter(|post| post.body["data"].is_object());
    assert_eq!(told.count(), 1, "told once");
    desk.check();
}

/// A server that has the whole mail and never says so does not keep the gateway from stopping; the next start sends the same
/// mail again.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_holds_nobody_up() {
    let Some(mut desk) = Desk::open(|setup| setup.set("gateway.drain_timeout", "1s")).await else { return };
    desk.smtp.then([Take::Hang]);
    desk.receive(&question());
    desk.smtp.wait_taken(1).await;
    desk.gateway.stop().await;
    desk.gateway.up().await;
    let sent = desk.sent(2).await;
    assert_eq!(sent[0].mail.raw, sent[1].mail.raw);
    assert_eq!(desk.model.count(), 1);
    desk.check();
}

/// A refusal for good is a dead letter, and the owner is told once.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_good_is_a_dead_letter() {
    let sink = Sink::start(Some(&config::callback_secret())).await;
    let hook = Hook::bearer("ops").callback(&sink);
    let more = |setup: Setup| setup.hook(hook).set("owner.notify", "webhook:ops:duty");
    let Some(desk) = Desk::open(more).await else { return };
    desk.smtp.then([Take::Recipient("550 5.1.1 no such user here")]);
    desk.receive(&question());
    let posts = sink.wait_posts(1).await;
    assert!(posts[0].data("content").contains("no such user here"), "{}", posts[0].data("content"));
    wait_settled(&desk.gateway.database()).await;
    let queue = desk.gateway.json(&["queue", "list"]).await;
    assert_eq!((queue.as_array().map(Vec::len), &queue[0]["state"]), (Some(1), &json!("dead")), "{queue}");
    desk.receive(&question());
    desk.sent(1).await;
    assert_eq!((sink.posts().len(), desk.smtp.asked()), (1, 2));
    desk.check();
}

/// A server whose certificate is nobody's, or another's, is not spoken to, in either direction, and the owner can see why.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_certificates_are_refused() {
    let (right, wrong) = (Authority::new(), Authority::new());
    let good = right.vouch(&["127.0.0.1"]);
    for bad in [wrong.vouch(&["127.0.0.1"]), right.vouch(&["elsewhere.test"])] {
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

/// What `channels list` says is wrong with the channel.
async fn channel_error(gateway: &Gateway) -> String {
    until("the channel's error", async || {
        let ran = gateway.run(&["channels", "list", "--json"]).await;
        let rows: serde_json::Value = serde_json::from_str(&ran.stdout).ok()?;
        let row = rows.as_array()?.iter().find(|row| row["name"] == "email")?.clone();
        row["error"].as_str().filter(|error| !error.is_empty()).map(str::to_owned)
    })
    .await
}

/// A wrong password is told in words; the channel's own test finds everything right, and answers nothing that it wrote itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_channel_tests_itself() {
    let Some(office) = Office::open(|setup| setup).await else { return };
    let ran = office.gateway.run(&["channels", "test", "email"]).await;
    println!("{}", ran.stdout);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let checks = office.gateway.json(&["channels", "test", "email"]).await;
    assert_eq!(checks["ok"], true, "{checks}");
    let seen = checks.to_string();
    assert!(["imap", "idle", "smtp"].iter().all(|name| seen.contains(name)), "{checks}");
    assert_eq!(office.model.count(), 0, "its own mails are answered by nobody");

    let model = Model::start().await;
    let smtp = Smtp::start().await;
    let setup = Setup::new().model(&model).email(&office.dovecot, &smtp).mail("imap_password", "a-wrong-secret-word");
    let mut gateway = Gateway::new(setup);
    // Before the very first start there is no workspace, and that is no fault of the channel.
    let ran = gateway.run(&["channels", "test", "email"]).await;
    assert!(ran.stdout.contains("login") && !ran.stdout.contains("workspace"), "{ran:?}");
    gateway.spawn();
    gateway.wait_alive().await;
    let error = channel_error(&gateway).await;
    assert!(error.contains("password") || error.contains("login"), "{error}");
    assert!(!error.contains("a-wrong-secret-word") && !gateway.logs().contains("a-wrong-secret-word"), "{error}");
    println!("{error}");
}
