//! Evaluates the receiving server's statement about a sender (`Authentication-Results`).
//!
//! Anybody can write `Authentication-Results` into a mail, so the position of a field decides. Each server puts its own
//! fields above everything that it received, and each `Received` marks one server. The rules:
//!
//! - At most as many `Received` precede a valid field as the receiving server itself puts there
//!   ([`TrustedAuthserv::depth`]); at least one `Received` is in the header. Local delivery at the very top does not
//!   count.
//! - The topmost of these fields must have the configured authserv-id. If it has another id or cannot be parsed,
//!   no field counts.
//! - Only that field can prove a sender. A `dmarc=fail` in the fields directly below it with the same id, up to the
//!   next `Received`, revokes the proof, since some servers write one field for each method.
//!
//! A forger's fields are below all `Received` of our own servers. A server that writes its results above its last
//! `Received` is therefore safe. If a server writes its results directly below that `Received`, a forger's fields follow
//! immediately. Such a server must remove them, as RFC 8601, section 5 demands, or at least write its own results into each
//! mail. `daoyou channels test` finds out which case applies.

use super::alignment::aligned;
use super::authentication_results::{AuthenticationResults, MethodResult, parse};
use super::received::is_local_delivery;
use super::unproven_content::ProofMethod;
use crate::email::address::ascii_domain;
use crate::email::config::EmailConfig;

const RESULTS: &str = "authentication-results";
const RECEIVED: &str = "received";

/// The server whose results count, and the position of these results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedAuthserv {
    /// The authserv-ids of the receiving server, in lower case.
    pub ids: Vec<String>,
    /// The maximum number of `Received` above the results.
    pub depth: u32,
}

impl TrustedAuthserv {
    pub fn of(config: &EmailConfig) -> Self {
        Self { ids: config.authserv_ids().map(str::to_ascii_lowercase).collect(), depth: config.authserv_depth }
    }
}

/// The topmost results in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopmostResults {
    pub id: String,
    /// The number of `Received` above the results.
    pub depth: u32,
}

/// Checks that the trusted server confirms mail from `domain`, and returns what confirms it; the error is the reason why
/// the server does not. The header names are in lower case, topmost first.
pub fn check_authserv(
    headers: &[(String, String)],
    authserv: &TrustedAuthserv,
    domain: &str,
) -> Result<ProofMethod, String> {
    if authserv.ids.is_empty() {
        return Err("no authserv_id is configured".to_owned());
    }
    let trusted = trusted_results(headers, authserv);
    let Some(top) = trusted.first() else {
        return Err(describe_absence(headers, authserv));
    };
    if trusted.iter().flat_map(|r| &r.results).any(|r| r.method == "dmarc" && r.result == "fail") {
        return Err("dmarc=fail".to_owned());
    }
    let proofs: Vec<_> = top.results.iter().filter(|r| r.result == "pass" && proves_domain(r, domain)).collect();
    if proofs.iter().any(|r| r.method == "spf") {
        return Ok(ProofMethod::Server);
    }
    if !proofs.is_empty() {
        // DMARC does not tell by what it passed.
        return Ok(ProofMethod::Signature);
    }
    Err(format!("neither DMARC nor an aligned DKIM or SPF passed: {}", summary(&trusted)))
}

/// Returns the topmost results, or `None` if there are none or they cannot be parsed.
pub fn topmost_results(headers: &[(String, String)]) -> Option<TopmostResults> {
    let (depth, value) = positioned_results(headers).next()?;
    Some(TopmostResults { id: parse(value)?.authserv_id, depth })
}

/// Returns all results, each with the number of `Received` above it.
fn positioned_results(headers: &[(String, String)]) -> impl Iterator<Item = (u32, &str)> {
    let (mut depth, mut is_top) = (0_u32, true);
    headers.iter().filter_map(move |(name, value)| match name.as_str() {
        RESULTS => {
            is_top = false;
            Some((depth, value.as_str()))
        }
        RECEIVED => {
            is_top = is_top && is_local_delivery(value.trim_start());
            depth = depth.saturating_add(u32::from(!is_top));
            None
        }
        _ => None,
    })
}

/// Returns the fields that count by the rules of this module.
fn trusted_results(headers: &[(String, String)], authserv: &TrustedAuthserv) -> Vec<AuthenticationResults> {
    // A mail that passed no server may be forged entirely.
    if !headers.iter().any(|(name, value)| name == RECEIVED && !is_local_delivery(value.trim_start())) {
        return Vec::new();
    }
    let mut fields = positioned_results(headers).peekable();
    let top = fields.peek().map_or(0, |(depth, _)| *depth);
    let adjoining = fields.take_while(|(depth, _)| *depth == top && top <= authserv.depth);
    let parsed = adjoining.map_while(|(_, value)| parse(value));
    parsed.take_while(|results| authserv.ids.contains(&results.authserv_id)).collect()
}

/// Describes why no field counts.
fn describe_absence(headers: &[(String, String)], authserv: &TrustedAuthserv) -> String {
    let ids = authserv.ids.join(", ");
    match topmost_results(headers) {
        Some(TopmostResults { id, depth }) if authserv.ids.contains(&id) && depth > authserv.depth => format!(
            "the Authentication-Results of {id} are below {depth} Received, where a sender may have written them: \
             authserv_depth is {}, and `daoyou channels test email` shows what it must be",
            authserv.depth
        ),
        _ => format!("no Authentication-Results of {ids} are at the top"),
    }
}

/// Returns true if a passed result is about `domain`.
fn proves_domain(result: &MethodResult, domain: &str) -> bool {
    let domain_of = |value: &str| ascii_domain(value.rsplit_once('@').map_or(value, |(_, domain)| domain));
    let speaks_of = |name: &str, fits: &dyn Fn(&str) -> bool| {
        result.property(name).any(|value| domain_of(value).is_some_and(|proven| fits(&proven)))
    };
    let is_aligned = |proven: &str| aligned(domain, proven);
    match result.method.as_str() {
        "dmarc" => speaks_of("header.from", &|from| from == domain),
        "dkim" if result.property("header.d").next().is_some() => speaks_of("header.d", &is_aligned),
        // header.i is header.d or a subdomain of it (RFC 6376, section 3.5).
        "dkim" => speaks_of("header.i", &is_aligned),
        "spf" => speaks_of("smtp.mailfrom", &is_aligned),
        _ => false,
    }
}

fn summary(trusted: &[AuthenticationResults]) -> String {
    let known = |r: &&MethodResult| matches!(r.method.as_str(), "dmarc" | "dkim" | "spf");
    let shown = trusted.iter().flat_map(|r| &r.results).filter(known).take(5);
    let shown: Vec<_> = shown.map(|r| format!("{}={}", r.method, r.result)).collect();
    if shown.is_empty() { "no result".to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AR: &str = RESULTS;
    const BY_MX: (&str, &str) =
        (RECEIVED, "from a ([192.0.2.7]) by mx.here with ESMTP; Mon, 2 Nov 2026 10:00:00 +0000");
    const BY_LMTP: (&str, &str) = (RECEIVED, "from mx.here by box.here with LMTP id 1; Mon, 2 Nov 2026 10:00:00 +0000");

    /// A description, the header, and whether it proves `example.org`.
    type Row = (&'static str, &'static [(&'static str, &'static str)], bool);

    const TABLE: &[Row] = &[
        ("nothing", &[BY_MX], false),
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
        ("second signature", &[(AR, "mx.here; dkim=fail header.d=evil.test; dkim=pass header.d=example.org")], true),
        ("strange dkim", &[(AR, "mx.here; dkim=pass header.d=evil.test; spf=fail smtp.mailfrom=example.org")], false),
        ("spf", &[(AR, "mx.here; spf=pass smtp.mailfrom=bounce@mail.example.org; dkim=none")], true),
        ("spf of another", &[(AR, "mx.here; spf=pass smtp.mailfrom=example.org@evil.test")], false),
        ("spf of the greeting", &[(AR, "mx.here; spf=pass smtp.helo=example.org")], false),
        ("softfail", &[(AR, "mx.here; spf=softfail smtp.mailfrom=a@example.org")], false),
        ("dmarc=fail", &[(AR, "mx.here; dkim=pass header.d=example.org; dmarc=fail header.from=example.org")], false),
        (
            "dmarc=fail in a second field",
            &[(AR, "mx.here; dkim=pass header.d=example.org"), (AR, "mx.here; dmarc=fail header.from=example.org")],
            false,
        ),
        (
            "one field a method",
            &[BY_MX, (AR, "mx.here; dmarc=pass header.from=example.org"), (AR, "mx.here; spf=none"), BY_MX],
            true,
        ),
        (
            "one field a method, and the topmost proves nothing",
            &[
                BY_MX,
                (AR, "mx.here; dmarc=none header.from=example.org"),
                (AR, "mx.here; dkim=pass header.d=example.org"),
            ],
            false,
        ),
        (
            "a forger's with a method that the server does not name",
            &[
                BY_MX,
                (AR, "mx.here; spf=fail smtp.mailfrom=a@evil.test"),
                (AR, "mx.here; dkim=pass header.d=example.org"),
            ],
            false,
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
                BY_MX,
                (AR, "mx.here; dkim=pass header.d=example.org"),
            ],
            false,
        ),
        (
            "a forger's directly below",
            &[
                BY_MX,
                (AR, "mx.here; spf=fail smtp.mailfrom=a@example.org; dkim=none; dmarc=none header.from=example.org"),
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

    fn authserv(ids: &[&str], depth: u32) -> TrustedAuthserv {
        TrustedAuthserv { ids: ids.iter().map(|id| (*id).to_owned()).collect(), depth }
    }

    fn owned<'a>(headers: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Vec<(String, String)> {
        headers.into_iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn only_the_topmost_results_are_believed() {
        for (what, headers, expected) in TABLE {
            // Fields of other servers follow, as in every real mail.
            let headers = owned(headers.iter().chain([&BY_MX]));
            let checked = check_authserv(&headers, &authserv(&["mx.here"], 1), "example.org");
            assert_eq!(checked.is_ok(), *expected, "{what}: {checked:?}");
            assert!(check_authserv(&headers, &authserv(&[], 1), "example.org").is_err(), "{what}, without an id");
        }
    }

    /// The position of the results, and the depth from which on they count.
    #[test]
    fn results_below_the_configured_depth_are_not_believed() {
        const PASS: (&str, &str) = (AR, "mx.here; dmarc=pass header.from=example.org");
        const NONE: (&str, &str) = (AR, "mx.here; dmarc=none header.from=example.org");
        const OTHER: (&str, &str) = (AR, "mx.there; dmarc=pass header.from=example.org");
        const SUBJECT: (&str, &str) = ("subject", "x");
        type HeaderCase<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<u32>);
        let table: &[HeaderCase<'_>] = &[
            ("above all", &[PASS, BY_MX], Some(0)),
            ("above all, with local delivery", &[BY_LMTP, BY_LMTP, PASS, BY_MX], Some(0)),
            ("below the server's own", &[BY_MX, SUBJECT, PASS, BY_MX], Some(1)),
            ("below two of the server's own", &[BY_MX, BY_MX, PASS], Some(2)),
            ("a sender's, below one", &[BY_LMTP, BY_MX, PASS], Some(1)),
            ("a sender's own local delivery", &[BY_MX, BY_LMTP, PASS], Some(2)),
            ("local delivery below results", &[NONE, BY_LMTP, PASS, BY_MX], None),
            ("a sender's, below the server's own results", &[NONE, BY_MX, PASS], None),
            ("a sender's, below another server's results", &[BY_MX, OTHER, PASS], None),
            ("a mail that no server received", &[PASS, SUBJECT], None),
            ("a mail that only local delivery received", &[BY_LMTP, PASS, BY_LMTP], None),
        ];
        for (what, headers, expected) in table {
            let headers = owned(*headers);
            let believed =
                |depth: &u32| check_authserv(&headers, &authserv(&["mx.here"], *depth), "example.org").is_ok();
            assert_eq!((0..5).find(believed), *expected, "{what}");
            assert!(expected.is_none_or(|first| (first..5).all(|depth| believed(&depth))), "{what}");
        }
        let deep = owned(&[BY_LMTP, BY_MX, BY_MX, PASS]);
        assert_eq!(topmost_results(&deep), Some(TopmostResults { id: "mx.here".to_owned(), depth: 2 }));
        for (results, expected) in [
            ("mx.here; dmarc=pass header.from=example.org", ProofMethod::Signature),
            ("mx.here; dkim=pass header.d=example.org; spf=pass smtp.mailfrom=evil.test", ProofMethod::Signature),
            ("mx.here; dmarc=pass header.from=example.org; spf=pass smtp.mailfrom=example.org", ProofMethod::Server),
        ] {
            let headers = owned(&[(AR, results), BY_MX]);
            assert_eq!(check_authserv(&headers, &authserv(&["mx.here"], 0), "example.org"), Ok(expected), "{results}");
        }
        let reason = check_authserv(&deep, &authserv(&["mx.here"], 1), "example.org").unwrap_err();
        assert!(reason.contains("below 2 Received") && reason.contains("authserv_depth is 1"), "{reason}");
        assert_eq!(topmost_results(&owned(&[BY_MX])), None);
    }
}
