//! Mails as real programs write them.

use super::servers::ScriptedServers;
use crate::support::mail::{ASSISTANT, Draft};
use crate::support::processes::{peak_bytes, reset_peak};
use crate::support::signing::base64;
use crate::support::until;
use serde_json::json;

/// "你好，世界" in GBK.
const GREETING: &[u8] = &[0xc4, 0xe3, 0xba, 0xc3, 0xa3, 0xac, 0xca, 0xc0, 0xbd, 0xe7];

/// Each mail reaches the model as its author meant it, and is answered under its subject.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_mail_reaches_the_model_as_meant() {
    let Some(servers) = ScriptedServers::start(|setup| setup).await else { return };
    let long = "一个很长的主题 ".repeat(30);
    let encoded = |text: &str| {
        let words = text.as_bytes().chunks(42).map(|word| format!("=?UTF-8?B?{}?=", base64(word)));
        words.collect::<Vec<_>>().join("\r\n ")
    };
    let gbk = format!("=?GBK?B?{}?=", base64(GREETING));
    let page = "<html><head><style>p { color: red }</style></head><body><h1>News</h1><p>A <b>bold</b> word and \
                <a href=\"https://example.test/page\">a link</a>.</p><table><tr><th>name</th><th>size</th></tr>\
                <tr><td>one</td><td>1</td></tr></table><script>steal()</script>\
                <img src=\"https://tracker.test/pixel.gif?id=7\" width=\"1\" height=\"1\"></body></html>";
    #[rustfmt::skip]
    let table: Vec<(Draft, &str, &[&str], &[&str])> = vec![
        (Draft::new("a@example.test", &gbk, "").body("text/plain; charset=GBK", "8bit", GREETING),
         "Re: 你好，世界", &["你好，世界"], &["\u{fffd}"]),
        (Draft::new("b@example.test", &encoded(&long), "under a long subject"),
         "Re: 一个很长的主题", &["under a long subject"], &[]),
        (Draft::new("c@example.test", "page", "").html(page),
         "Re: page", &["News", "**bold**", "https://example.test/page", "one"], &["steal", "tracker.test", "color: red", "<p>"]),
        (Draft::new("d@example.test", "nameless", "without a Message-ID").without("Message-ID"),
         "Re: nameless", &["without a Message-ID"], &[]),
        (Draft::new("e@example.test", "", "no subject at all").without("Subject"),
         "", &["no subject at all"], &[]),
        (Draft::new("f@example.test", "long line", &"x".repeat(5_000)),
         "Re: long line", &["xxxx"], &[]),
    ];
    for (draft, ..) in &table {
        servers.receive(draft);
    }
    let sent = servers.sent(table.len()).await;
    let requests: Vec<_> =
        servers.model.requests().iter().map(|body| crate::support::model::ModelRequest::new(0, body).user).collect();
    for (draft, subject, wanted, unwanted) in &table {
        let reply = sent.iter().find(|taken| taken.to == [draft.address()]).expect("a reply");
        let got = reply.mail.subject();
        assert!(got.starts_with(subject) && !got.trim().is_empty(), "{got} for {subject}");
        let longest = reply.mail.raw.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
        assert!(longest <= Some(999), "a line of {longest:?} bytes (RFC 5321, section 4.5.3.1.6)");
        let request = requests.iter().find(|text| text.contains(wanted[0])).expect("a request");
        assert!(wanted.iter().all(|word| request.contains(word)), "{wanted:?} in {request}");
        assert!(!unwanted.iter().any(|word| request.contains(word)), "none of {unwanted:?} in {request}");
    }
    servers.dovecot.wait_seen(ASSISTANT, "INBOX", table.len()).await;
    servers.check();
}

/// A received attachment is stored in the workspace, and the model learns its path. A file that the agent attaches arrives unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn attachments_are_received_and_sent() {
    let Some(servers) = ScriptedServers::start(|setup| setup.mail("trusted_from", vec!["ada@example.test"])).await
    else {
        return;
    };
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let out = json!({"content": "here it is", "attachments": ["报告.bin"]});
    servers
        .model
        .on("send the report", [crate::support::Reply::tool("message", &out), crate::support::Reply::text("sent")]);
    std::fs::write(servers.gateway.workspace().join("报告.bin"), &bytes).unwrap();
    let draft = Draft::new("ada@example.test", "files", "send the report")
        .attach("../../notes .bin", "application/octet-stream", &bytes);
    servers.receive(&draft);
    let sent = servers.sent(2).await;
    let asked = servers.model.requests()[0].to_string();
    let saved = until("the saved file", async || find_file(&servers.gateway.workspace().join("mail"), "notes")).await;
    assert_eq!(std::fs::read(&saved).unwrap(), bytes);
    let path = saved.strip_prefix(servers.gateway.workspace()).unwrap().to_str().unwrap();
    assert!(asked.contains(path), "{path} in {asked}");
    assert_eq!(sent[0].mail.attachments(), [("报告.bin".to_owned(), bytes)]);
    assert_eq!([sent[0].mail.text().trim(), sent[1].mail.text().trim()], ["here it is", "sent"]);
    assert!(sent.iter().all(|taken| taken.mail.header("references").starts_with(draft.message_id())));
    assert_ne!(sent[0].mail.header("message-id"), sent[1].mail.header("message-id"));
    servers.check();
}

fn find_file(folder: &std::path::Path, part: &str) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    entries.into_iter().find_map(|path| {
        if path.is_dir() {
            return find_file(&path, part);
        }
        path.file_name()?.to_string_lossy().contains(part).then_some(path)
    })
}

/// A mail that is too large is not fetched, and its sender is notified. A large permitted mail needs memory, but not many times its size.
#[tokio::test(flavor = "multi_thread")]
async fn oversized_mails_are_refused_and_memory_stays_bounded() {
    let Some(servers) = ScriptedServers::start(|setup| setup).await else { return };
    servers.receive(&Draft::new("ada@example.test", "warm", "warm up"));
    servers.sent(1).await;
    let (before, pid) = (reset_peak(servers.gateway.pid()), servers.gateway.pid());
    servers.receive(&Draft::new("bob@example.test", "huge", "far too much").attach_large("huge.bin", 40_000_000));
    let sent = servers.sent(2).await;
    assert_eq!((sent[1].to.clone(), servers.model.count()), (vec!["bob@example.test".to_owned()], 1), "no turn");
    assert!(sent[1].mail.text().contains("35"), "the limit is named: {}", sent[1].mail.text());
    let refused = peak_bytes(pid);
    assert!(refused < before + 20_000_000, "{before} before, {refused} at most");
    servers.receive(&Draft::new("ada@example.test", "large", "25 MB").attach_large("large.bin", 25_000_000));
    servers.sent(3).await;
    let peak = peak_bytes(pid);
    println!("memory: {before} bytes at rest, {refused} while 53 MB were refused, {peak} while 25 MB were taken");
    assert!(peak < before + 160_000_000, "{before} before, {peak} at most");
    servers.check();
}
