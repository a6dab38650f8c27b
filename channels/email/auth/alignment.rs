//! Decides whether two domains are aligned, i.e. belong to the same owner.

/// Labels of shared suffixes in country domains, such as `co` in `co.uk` and `com` in `com.cn`: the first of two labels,
/// the second of which has two letters.
const SECOND_LEVEL: &[&str] = &[
    "ac", "co", "com", "edu", "gen", "go", "gob", "gouv", "gov", "gv", "id", "info", "ltd", "me", "mil", "name", "ne",
    "net", "nhs", "nom", "or", "org", "plc", "sch",
];
/// Other suffixes below which unrelated owners register names.
const OTHER_SUFFIXES: &[&str] = &["br.com", "cn.com", "de.com", "eu.com", "eu.org", "gb.net", "uk.com", "us.com"];

/// Returns true if a proof for the domain `proven` is valid for mail from `from`. Both domains are in the form of
/// [`ascii_domain`](crate::email::address::ascii_domain).
///
/// RFC 7489, section 3.1.1 calls two domains of one organisation aligned, which requires a list of all public suffixes.
/// This rule is narrower: the domains are equal, or one is a subdomain of the other and the other is not a shared suffix.
/// Siblings such as `news.example.org` and `mail.example.org` are not aligned by this rule.
pub fn aligned(from: &str, proven: &str) -> bool {
    let below =
        |low: &str, high: &str| low.strip_suffix(high).is_some_and(|rest| rest.ends_with('.')) && !is_shared(high);
    !from.is_empty() && (from == proven || below(from, proven) || below(proven, from))
}

/// Returns true if two domains can belong to one organisation at all, i.e. if their registered names are equal.
pub fn related(one: &str, other: &str) -> bool {
    registered(one) == registered(other)
}

/// Returns the last two labels of a domain, or the last three if the last two are a shared suffix.
fn registered(domain: &str) -> &str {
    let last = |labels: usize| domain.rmatch_indices('.').nth(labels - 1).map_or(domain, |(at, _)| &domain[at + 1..]);
    let two = last(2);
    if is_shared(two) { last(3) } else { two }
}

fn is_shared(domain: &str) -> bool {
    match domain.split('.').collect::<Vec<_>>()[..] {
        [_] => true,
        [second, top] => (top.len() == 2 && SECOND_LEVEL.contains(&second)) || OTHER_SUFFIXES.contains(&domain),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_of_one_owner_are_aligned() {
        for (from, proven, expected) in [
            ("example.org", "example.org", true),
            ("example.org", "mail.example.org", true),
            ("news.example.org", "example.org", true),
            ("example.org", "badexample.org", false),
            ("example.org", "example.org.evil.test", false),
            ("news.example.org", "mail.example.org", false),
            ("example.org", "org", false),
            ("one.co.uk", "co.uk", false),
            ("co.uk", "evil.co.uk", false),
            ("one.com.cn", "two.com.cn", false),
            ("mail.one.com.cn", "one.com.cn", true),
            ("", "", false),
        ] {
            assert_eq!(aligned(from, proven), expected, "{from} {proven}");
            assert!(!expected || related(from, proven), "{from} {proven}: what is aligned is related");
        }
    }

    #[test]
    fn names_below_a_shared_suffix_are_not_related() {
        for (one, other, expected) in [
            ("news.example.org", "mail.example.org", true),
            ("example.org", "example.net", false),
            ("bank.com.cn", "evil.com.cn", false),
            ("mail.bank.com.cn", "bank.com.cn", true),
            ("bank.com.cn", "com.cn", false),
            ("one.co.uk", "two.co.uk", false),
            ("one.eu.org", "two.eu.org", false),
            ("localhost", "localhost", true),
        ] {
            assert_eq!(related(one, other), expected, "{one} {other}");
        }
    }
}
