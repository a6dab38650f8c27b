//! The receiving server's word for a sender.
//!
//! Anybody can write `Authentication-Results` into a mail, so what counts is where a field stands. Each server puts its
//! own above all that it received. Hence:
//!
//! - The topmost of these fields must bear the configured authserv-id; where another id or something unreadable stands
//!   on top, nothing is believed.
//! - With it count those below it that bear the same id, up to the first of another id and up to the first `Received`
//!   below: that was written by the server that mail came to before, and all below it by others.
//! - Of several that count the topmost that names a method settles it, and a `dmarc=fail` in any of them beats all.
//!
//! The fields of a forger stand below `Received` of our own server, or, with servers that write their results below
//! it, directly below the true results: there the server must have removed them, as RFC 8601, section 5 demands, or at least
//! have named the method itself.

use super::address::{aligned, ascii_domain};
use super::results::{MethodResult, Results, parse};

/// Whether the server with one of `ids` vouches for mail from `domain`; the error says why not. The headers' names are
/// in lower case, the topmost first.
pub fn vouches(headers: &[(String, String)], ids: &[String], domain: &str) -> Result<(), String> {
    if ids.is_empty() {
        return Err("no authserv_id is configured".to_owned());
    }
    let run = run(headers, ids);
    if run.is_empty() {
        return Err(format!("no Authentication-Results of {} stand at the top", ids.join(", ")));
    }
    if run.iter().flat_map(|r| &r.results).any(|r| r.method == "dmarc" && r.result == "fail") {
        return Err("dmarc=fail".to_owned());
    }
    let passes = |method: &str| {
        let settles = run.iter().find(|r| r.results.iter().any(|r| r.method == method));
        let mut results = settles.into_iter().flat_map(|r| &r.results);
        results.any(|r| r.method == method && r.result == "pass" && is_for(r, domain))
    };
    if ["dmarc", "dkim", "spf"].into_iter().any(passes) {
        return Ok(());
    }
    Err(format!("neither DMARC nor an aligned DKIM or SPF passed: {}", summary(&run)))
}

/// The fields that count.
fn run(headers: &[(String, String)], ids: &[String]) -> Vec<Results> {
    let mut run = Vec::new();
    for (name, value) in headers {
        match name.as_str() {
            "authentication-results" => match parse(value) {
                Some(results) if ids.contains(&results.authserv_id) => run.push(results),
                _ => break,
            },
            "received" if !run.is_empty() => break,
            _ => {}
        }
    }
    run
}

/// Whether what passed speaks of `domain`.
fn is_for(result: &MethodResult, domain: &str) -> bool {
    let domain_of = |value: &str| ascii_domain(value.rsplit_once('@').map_or(value, |(_, domain)| domain));
    let speaks_of = |name: &str, fits: &dyn Fn(&str) -> bool| {
        result.property(name).any(|value| domain_of(value).is_some_and(|proven| fits(&proven)))
    };
    let is_aligned = |proven: &str| aligned(domain, proven);
    match result.method.as_str() {
        "dmarc" => speaks_of("header.from", &|from| from == domain),
        "dkim" if result.property("header.d").next().is_some() => speaks_of("header.d", &is_aligned),
        // Lies in header.d or below it (RFC 6376, section 3.5).
        "dkim" => speaks_of("header.i", &is_aligned),
        "spf" => speaks_of("smtp.mailfrom", &is_aligned),
        _ => false,
    }
}

fn summary(run: &[Results]) -> String {
    let known = |r: &&MethodResult| matches!(r.method.as_str(), "dmarc" | "dkim" | "spf");
    let shown = run.iter().flat_map(|r| &r.results).filter(known).take(5);
    let shown: Vec<_> = shown.map(|r| format!("{}={}", r.method, r.result)).collect();
    if shown.is_empty() { "no result".to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AR: &str = "authentication-results";
    const RECEIVED: (&str, &str) = ("received", "from a by b; Mon, 2 Nov 2026 10:00:00 +0000");

    #[test]
    fn only_the_top_is_believed() {
        let table: &[(&str, &[(&str, &str)], bool)] = &[
            ("nothing", &[RECEIVED], false),
            ("dmarc", &[(AR, "mx.here; dmarc=pass header.from=example.org")], true),
            ("dmarc of another", &[(AR, "mx.here; dmarc=pass header.from=evil.test")], false),
            ("dmarc below", &[(AR, "mx.here; dmarc=pass header.from=sub.example.org")], false),
            ("dmarc of nobody", &[(AR, "mx.here; dmarc=pass")], false),
            ("dkim", &[(AR, "MX.here; dkim=pass header.d=Example.org")], true),
            ("dkim by header.i", &[(AR, "mx.here; dkim=pass header.i=@mail.example.org")], true),
            (
                "header.i below a strange header.d",
                &[(AR, "mx.here; dkim=pass header.d=evil.test header.i=@example.org")],
                false,
            ),
            (
                "second signature",
                &[(AR, "mx.here; dkim=fail header.d=evil.test; dkim=pass header.d=example.org")],
                true,
            ),
            (
                "strange dkim",
                &[(AR, "mx.here; dkim=pass header.d=evil.test; spf=fail smtp.mailfrom=example.org")],
                false,
            ),
            ("spf", &[(AR, "mx.here; spf=pass smtp.mailfrom=bounce@mail.example.org; dkim=none")], true),
            ("spf of another", &[(AR, "mx.here; spf=pass smtp.mailfrom=example.org@evil.test")], false),
            ("spf of the greeting", &[(AR, "mx.here; spf=pass smtp.helo=example.org")], false),
            ("softfail", &[(AR, "mx.here; spf=softfail smtp.mailfrom=a@example.org")], false),
            (
                "dmarc=fail",
                &[(AR, "mx.here; dkim=pass header.d=example.org; dmarc=fail header.from=example.org")],
                false,
            ),
            (
                "dmarc=fail in a second field",
                &[(AR, "mx.here; dkim=pass header.d=example.org"), (AR, "mx.here; dmarc=fail header.from=example.org")],
                false,
            ),
            (
                "one field a method",
                &[
                    RECEIVED,
                    (AR, "mx.here; dmarc=none header.from=example.org"),
                    (AR, "mx.here; spf=none"),
                    (AR, "mx.here; dkim=pass header.d=example.org"),
                    RECEIVED,
                ],
                true,
            ),
            ("another id", &[(AR, "mx.evil; dmarc=pass header.from=example.org")], false),
            ("below another id", &[(AR, "mx.evil; none"), (AR, "mx.here; dmarc=pass header.from=example.org")], false),
            (
                "below something unreadable",
                &[(AR, "mx.here ("), (AR, "mx.here; dmarc=pass header.from=example.org")],
                false,
            ),
            (
                "a forger's below Received",
                &[
                    (AR, "mx.here; dmarc=none header.from=example.org"),
                    RECEIVED,
                    (AR, "mx.here; dkim=pass header.d=example.org"),
                ],
                false,
            ),
            (
                "a forger's directly below",
                &[
                    RECEIVED,
                    (
                        AR,
                        "mx.here; spf=fail smtp.mailfrom=a@example.org; dkim=none; dmarc=none header.from=example.org",
                    ),
                    (AR, "mx.here; dmarc=pass header.from=example.org; spf=pass smtp.mailfrom=a@example.org"),
                ],
                false,
            ),
            (
                "smuggled",
                &[(AR, "mx.here; spf=pass smtp.mailfrom=\"x; dmarc=pass header.from=example.org\"@evil.test")],
                false,
            ),
        ];
        let ids = ["mx.here".to_owned()];
        for (what, headers, expected) in table {
            let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let judged = vouches(&headers, &ids, "example.org");
            assert_eq!(judged.is_ok(), *expected, "{what}: {judged:?}");
            assert!(vouches(&headers, &[], "example.org").is_err(), "{what}, without an id");
        }
    }
}
