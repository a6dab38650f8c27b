//! Self-tests: mails from the account to itself, the conclusions about the receiving server, and advice for failed logins.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::auth::{TopmostResults, TrustedAuthserv, check_authserv, topmost_results};
use super::config::NAME;
use super::parse::{ParseLimits, parse_mail};
use super::presets::Preset;
use crate::channel::{Receipt, SendError};
use crate::finding::{Finding, Severity};
use crate::message::OutboundMessage;

/// The longest time a test mail may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between searches of the mailboxes.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);

/// Sends one mail from an address to itself and searches for it. Returns the finding, and the header of the mail if it
/// arrived. `send` is the channel's own sender, so the mail has one of the gateway's Message-IDs and `Auto-Submitted`, and
/// no gateway answers it. `find` returns the header of the mail with a Message-ID if it is in one of the channel's
/// mailboxes.
pub async fn round_trip<S, F>(
    mail: OutboundMessage,
    send: impl FnOnce(OutboundMessage) -> S,
    find: impl Fn(String) -> F,
) -> (Finding, Option<Vec<u8>>)
where
    S: Future<Output = Result<Receipt, SendError>>,
    F: Future<Output = Result<Option<Vec<u8>>, String>>,
{
    const ROUND_TRIP: &str = "roundtrip";
    let began = Instant::now();
    let until = began + PATIENCE;
    let address = mail.chat_id.clone();
    let fail = |message: String, mend: &str| (Finding::fail(ROUND_TRIP, message, mend), None);
    let sent = match timeout_at(until, send(mail)).await {
        Ok(Ok(Receipt { provider_id: Some(id) })) => id,
        Ok(Ok(Receipt { provider_id: None })) => {
            return fail("the mail was sent without a Message-ID".to_owned(), "report this as a fault");
        }
        Ok(Err(error)) => {
            let mend = "look at the findings for smtp; the words above are the server's";
            return fail(format!("a mail to {address} could not be sent: {error}"), mend);
        }
        Err(_) => {
            let mend = "look at the server's log, and at smtp_host and smtp_port";
            return fail(format!("a mail to {address} was not taken within {PATIENCE:?}"), mend);
        }
    };
    let mut last = None;
    loop {
        match timeout_at(until, find(sent.clone())).await {
            Ok(Ok(Some(header))) => {
                let took = began.elapsed().as_secs_f64();
                let message = format!("a mail to {address} came back after {took:.1} s; it may be deleted");
                return (Finding::ok(ROUND_TRIP, message), Some(header));
            }
            Ok(Ok(None)) => last = None,
            Ok(Err(error)) => last = Some(error),
            Err(_) => {}
        }
        if Instant::now() + SEARCH_INTERVAL >= until {
            break;
        }
        sleep(SEARCH_INTERVAL).await;
    }
    let why = last.map(|error| format!("; the last look failed: {error}")).unwrap_or_default();
    let message = format!("a mail to {address} was sent and is in none of the mailboxes after {PATIENCE:?}{why}");
    let mend = "look for it in the spam folder, and whether the address is this account's; slow providers take longer";
    (Finding::warn(ROUND_TRIP, message, mend), None)
}

const RESULTS_FINDING: &str = "authserv";
/// The domain in the forged results. No such domain exists (RFC 2606, section 2).
const FORGED_DOMAIN: &str = "forged.invalid";
/// The greatest depth of results to search.
const MAX_DEPTH: u32 = 20;

/// Returns a header field that imitates the receiving server's results.
pub fn forged_field(authserv: &TrustedAuthserv) -> String {
    let id = authserv.ids.first().map_or("", String::as_str);
    format!(
        "Authentication-Results: {id};\r\n dmarc=pass header.from={FORGED_DOMAIN};\r\n dkim=pass header.d={FORGED_DOMAIN}"
    )
}

/// Evaluates the headers of two mails to the own account. `own`, sent unchanged, shows where the receiving server writes
/// its results. `forged`, sent with [`forged_field`] on top, shows whether forged results would count.
pub fn evaluate_results(own: &[u8], forged: &[u8], authserv: &TrustedAuthserv) -> Finding {
    let [own, forged] = [own, forged].map(|header| parse_mail(header, &ParseLimits::default()).headers);
    let ids = authserv.ids.join(", ");
    let believed_at = (0..=MAX_DEPTH).find(|depth| {
        check_authserv(&forged, &TrustedAuthserv { depth: *depth, ..authserv.clone() }, FORGED_DOMAIN).is_ok()
    });
    let is_safe = |depth: u32| believed_at.is_none_or(|believed| believed > depth);
    let own = topmost_results(&own);
    if !is_safe(authserv.depth) {
        let message = format!(
            "forged Authentication-Results of {ids} in a mail are believed: the server neither removes them nor writes its \
             own above them, so trust = \"authserv\" is not safe"
        );
        let mend = match own.filter(|own| authserv.ids.contains(&own.id) && is_safe(own.depth)) {
            Some(own) => format!("set trust = \"verify\", or authserv_depth = {}", own.depth),
            None => "set trust = \"verify\"".to_owned(),
        };
        return Finding::fail(RESULTS_FINDING, message, mend);
    }
    let Some(TopmostResults { id, depth }) = own else {
        return Finding::warn(
            RESULTS_FINDING,
            "no Authentication-Results that can be read stand in a mail of this account to itself, so the place of the \
             server's own is not known; forged ones are not believed",
            "look into a mail from elsewhere, as it lies in the mailbox; without any at the top, set trust = \"verify\"",
        );
    };
    let line = format!("authserv_depth = {depth}");
    if !authserv.ids.contains(&id) {
        let message = format!("the topmost Authentication-Results in a mail to oneself are of {id:?}, not of {ids}");
        return Finding::warn(RESULTS_FINDING, message, format!("set authserv_id = {id:?} and {line}, and test again"));
    }
    if depth > authserv.depth {
        let message = format!(
            "the server writes the results of {id} below {depth} Received, and authserv_depth is {}: mail is not believed",
            authserv.depth
        );
        let mend = if is_safe(depth) {
            format!("set {line}")
        } else {
            "set trust = \"verify\": forged results would be believed there".to_owned()
        };
        return Finding::fail(RESULTS_FINDING, message, mend);
    }
    Finding::ok(
        RESULTS_FINDING,
        format!("the results of {id} stand below {depth} Received ({line}); forged ones are not believed"),
    )
}

/// Returns the finding for a mail with forged results that did not arrive; `finding` has the reason.
pub fn results_untested(finding: &Finding) -> Finding {
    let message = format!("whether forged Authentication-Results are believed could not be tried: {}", finding.message);
    Finding::warn(RESULTS_FINDING, message, "test again; where the server refuses such mail, nothing is to be done")
}

/// Adds the login requirements of the account's provider to the findings about failed logins.
pub fn with_advice(findings: Vec<Finding>, preset: Option<&Preset>) -> Vec<Finding> {
    let Some(preset) = preset else { return findings };
    let is_login = |finding: &Finding| {
        let message = finding.message.to_ascii_lowercase();
        finding.name == "login"
            || ["authentication", "credential", "login", "535", "password"].iter().any(|word| message.contains(word))
    };
    let advise = |finding: Finding| match finding.state {
        Severity::Fail if is_login(&finding) => {
            let advice = format!("{}: {}", preset.name, preset.advice_en);
            let mend = finding.mend.as_deref().map_or_else(|| advice.clone(), |mend| format!("{mend}. {advice}"));
            Finding { mend: Some(mend), ..finding }
        }
        _ => finding,
    };
    findings.into_iter().map(advise).collect()
}

/// Returns the mail that should arrive.
pub fn test_message(address: &str) -> OutboundMessage {
    let text = "This mail was sent by `daoyou channels test`, to see whether it arrives. It may be deleted.";
    message(address, text)
}

/// Returns the mail whose results are forged.
pub fn forged_test_message(address: &str) -> OutboundMessage {
    let text = "This mail was sent by `daoyou channels test` with forged Authentication-Results, to see whether they are \
                believed. It may be deleted.";
    message(address, text)
}

fn message(address: &str, text: &str) -> OutboundMessage {
    OutboundMessage::text(NAME, address, format!("daoyou tests this mailbox\n\n{text}"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const ME: &str = "me@example.org";

    fn accepted() -> Result<Receipt, SendError> {
        Ok(Receipt { provider_id: Some("<1@example.org>".to_owned()) })
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_trip_reports_arrival_loss_and_refusal() {
        let searches = AtomicUsize::new(0);
        let find = |id: String| {
            let is_there = id == "<1@example.org>" && searches.fetch_add(1, Ordering::SeqCst) == 2;
            ready(Ok(is_there.then(|| b"Subject: x".to_vec())))
        };
        let back = round_trip(
            test_message(ME),
            |mail: OutboundMessage| {
                assert_eq!((mail.chat_id.as_str(), mail.session.as_str()), (ME, "email:me@example.org"));
                ready(accepted())
            },
            find,
        );
        let (back, header) = back.await;
        assert_eq!(header.as_deref(), Some(&b"Subject: x"[..]));
        assert_eq!((back.state, searches.load(Ordering::SeqCst)), (Severity::Ok, 3), "{back:?}");

        let lost = round_trip(test_message(ME), |_| ready(accepted()), |_| ready(Err("NO".to_owned()))).await.0;
        assert!(lost.state == Severity::Warn && lost.message.contains("last look failed: NO"), "{lost:?}");

        let refused = |_| ready(Err(SendError::Permanent { reason: "550 no".to_owned() }));
        let refused = round_trip(test_message(ME), refused, |_| ready(Ok(Some(Vec::new())))).await.0;
        assert!(refused.state == Severity::Fail && refused.message.contains("550 no"), "{refused:?}");

        let before = Instant::now();
        let hangs = round_trip(test_message(ME), |_| pending(), |_| ready(Ok(Some(Vec::new())))).await.0;
        assert_eq!((hangs.state, before.elapsed()), (Severity::Fail, PATIENCE));
        let hangs = round_trip(test_message(ME), |_| ready(accepted()), |_| pending()).await.0;
        assert_eq!(hangs.state, Severity::Warn);
    }

    const RECEIVED: &str = "Received: from x by mx.here with ESMTP; Mon, 2 Nov 2026 10:00:00 +0000\r\n";
    const OWN: &str = "Authentication-Results: mx.here; spf=pass smtp.mailfrom=me@example.org\r\n";

    /// The fields above an unchanged test mail, those above a mail with forged results, the configured depth, and the finding.
    #[test]
    fn two_mails_to_oneself_show_where_the_server_writes_its_results() {
        let forged = format!("{}\r\n", forged_field(&TrustedAuthserv { ids: vec!["mx.here".to_owned()], depth: 0 }));
        let other = "Authentication-Results: mx.there; none\r\n";
        for (own, with_forged, depth, state, words, mend) in [
            // The server writes above its own Received.
            (format!("{OWN}{RECEIVED}"), format!("{OWN}{RECEIVED}{forged}"), 0, Severity::Ok, "authserv_depth = 0", ""),
            // The server writes below its own Received, in each mail.
            (
                format!("{RECEIVED}{OWN}"),
                format!("{RECEIVED}{OWN}{forged}"),
                0,
                Severity::Fail,
                "below 1 Received",
                "set authserv_depth = 1",
            ),
            (format!("{RECEIVED}{OWN}"), format!("{RECEIVED}{OWN}{forged}"), 1, Severity::Ok, "authserv_depth = 1", ""),
            // The server removes forged results.
            (format!("{RECEIVED}{OWN}"), format!("{RECEIVED}{OWN}"), 1, Severity::Ok, "authserv_depth = 1", ""),
            // The server writes no results: only the forged ones exist.
            (
                RECEIVED.to_owned(),
                format!("{RECEIVED}{forged}"),
                1,
                Severity::Fail,
                "not safe",
                "set trust = \"verify\"",
            ),
            (RECEIVED.to_owned(), format!("{RECEIVED}{forged}"), 0, Severity::Warn, "not known", "trust = \"verify\""),
            // The server writes above its Received, but the configured depth is that of the forged results.
            (
                format!("{OWN}{RECEIVED}"),
                format!("{RECEIVED}{forged}"),
                1,
                Severity::Fail,
                "not safe",
                "authserv_depth = 0",
            ),
            // The server writes below its own Received, and not in each mail.
            (
                format!("{RECEIVED}{OWN}"),
                format!("{RECEIVED}{forged}"),
                0,
                Severity::Fail,
                "below 1 Received",
                "would be believed there",
            ),
            (
                format!("{other}{RECEIVED}"),
                RECEIVED.to_owned(),
                0,
                Severity::Warn,
                "of \"mx.there\"",
                "authserv_id = \"mx.there\"",
            ),
        ] {
            let authserv = TrustedAuthserv { ids: vec!["mx.here".to_owned()], depth };
            let end = "From: me@example.org\r\n\r\n";
            let finding =
                evaluate_results(format!("{own}{end}").as_bytes(), format!("{with_forged}{end}").as_bytes(), &authserv);
            assert_eq!(finding.state, state, "{finding:?}");
            assert!(finding.message.contains(words), "{finding:?}");
            assert!(finding.mend.clone().unwrap_or_default().contains(mend), "{finding:?}");
        }
    }

    #[test]
    fn a_failed_login_gets_the_advice_of_the_provider() {
        let preset = super::super::presets::preset_for_address("me@163.com");
        let found = vec![
            Finding::fail("login", "NO", "check the password"),
            Finding::fail("smtp", "535 5.7.8 authentication failed", "check"),
            Finding::fail("imap", "connection refused", "check"),
            Finding::fail("imap", "the certificate is not signed by an authority that this system trusts", "check"),
            Finding::ok("idle", "yes"),
        ];
        let advised: Vec<_> = with_advice(found.clone(), preset)
            .iter()
            .map(|finding| finding.mend.as_deref().unwrap_or_default().contains("authorization code"))
            .collect();
        assert_eq!(advised, [true, true, false, false, false]);
        assert_eq!(with_advice(found.clone(), None), found);
    }
}
