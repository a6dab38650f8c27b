//! Parses `Authentication-Results` (RFC 8601, section 2.2). Own code because mail-auth only writes this field, and a
//! tolerant parser would not be safe.

/// The longest value, in bytes.
const MAX_LENGTH: usize = 16_384;
const MAX_RESULTS: usize = 64;
const MAX_PROPERTIES: usize = 32;
/// The deepest nesting of comments.
const MAX_DEPTH: usize = 32;

/// The results of one server for a mail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationResults {
    /// The server, in lower case.
    pub authserv_id: String,
    pub results: Vec<MethodResult>,
}

/// The result of one method, e.g. `dkim=pass header.d=example.org`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MethodResult {
    /// The method in lower case, like the result and the names of the properties.
    pub method: String,
    pub result: String,
    /// Pairs of `type.property` and its value.
    pub properties: Vec<(String, String)>,
}

impl MethodResult {
    /// Returns the values of a property, e.g. `header.d`.
    pub fn property<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.properties.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Parses the value of one field. Returns `None` for any deviation from the RFC, because an ambiguous value must not count
/// as proof. Two deviations are accepted: an empty part between two semicolons, and properties without a type
/// (`action=none`).
pub fn parse(value: &str) -> Option<AuthenticationResults> {
    if value.len() > MAX_LENGTH {
        return None;
    }
    let mut rest = Rest(value);
    rest.skip()?;
    let authserv_id = rest.value()?.to_ascii_lowercase();
    rest.skip()?;
    if !rest.ends_part() {
        rest.word(|c| c.is_ascii_digit())?;
        rest.skip()?;
    }
    let mut results = Vec::new();
    while rest.take(';') {
        rest.skip()?;
        if rest.ends_part() {
            continue;
        }
        if results.len() == MAX_RESULTS {
            return None;
        }
        results.extend(rest.method_result()?);
    }
    (rest.0.is_empty() && !authserv_id.is_empty()).then_some(AuthenticationResults { authserv_id, results })
}

/// The unparsed rest of the value.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn peek(&self) -> Option<char> {
        self.0.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.0 = &self.0[c.len_utf8()..];
        Some(c)
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.next();
        }
        found
    }

    fn ends_part(&self) -> bool {
        matches!(self.peek(), None | Some(';'))
    }

    /// Skips white space and comments (CFWS, RFC 5322, section 3.2.2).
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        while let Some(c) = self.peek() {
            match c {
                '(' => depth += 1,
                ')' if depth > 0 => depth -= 1,
                '\\' if depth > 0 => {
                    self.next();
                }
                _ if depth == 0 && !c.is_ascii_whitespace() => break,
                _ => {}
            }
            self.next();
            if depth > MAX_DEPTH {
                return None;
            }
        }
        (depth == 0).then_some(())
    }

    fn word(&mut self, belongs: impl Fn(char) -> bool) -> Option<String> {
        let end = self.0.find(|c| !belongs(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then(|| word.to_ascii_lowercase())
    }

    /// Reads tokens and quoted strings up to white space, a comment or the end of the part: `"a b"@example.org`.
    fn value(&mut self) -> Option<String> {
        let mut value = String::new();
        while let Some(c) = self.peek() {
            match c {
                ';' | '(' => break,
                ')' => return None,
                _ if c.is_ascii_whitespace() => break,
                '"' => self.quoted(&mut value)?,
                _ => {
                    value.push(c);
                    self.next();
                }
            }
        }
        Some(value)
    }

    fn quoted(&mut self, value: &mut String) -> Option<()> {
        self.next();
        loop {
            match self.next()? {
                '"' => return Some(()),
                '\\' => value.push(self.next()?),
                c => value.push(c),
            }
        }
    }

    /// Reads `dkim/1 = pass reason="…" header.d = example.org`; returns no result for a lone `none`.
    fn method_result(&mut self) -> Option<Option<MethodResult>> {
        let method = self.name()?;
        if self.ends_part() && method == "none" {
            return Some(None);
        }
        let result = self.assigned()?.to_ascii_lowercase();
        let method = method.split_once('/').map_or(method.as_str(), |(method, _)| method).to_owned();
        let mut properties = Vec::new();
        while !self.ends_part() {
            if properties.len() == MAX_PROPERTIES {
                return None;
            }
            let name = self.name()?;
            properties.push((name, self.assigned()?));
        }
        Some(Some(MethodResult { method, result, properties }))
    }

    /// Reads `method`, `method/version` or `type.property`, with white space and comments wherever the RFC allows them.
    fn name(&mut self) -> Option<String> {
        let is_keyword = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let mut name = self.word(is_keyword)?;
        self.skip()?;
        while let Some(mark @ ('.' | '/')) = self.peek() {
            self.next();
            self.skip()?;
            name.push(mark);
            name.push_str(&self.word(is_keyword)?);
            self.skip()?;
        }
        Some(name)
    }

    fn assigned(&mut self) -> Option<String> {
        if !self.take('=') {
            return None;
        }
        self.skip()?;
        let value = self.value()?;
        self.skip()?;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Formats as `id: method=result name=value, …`.
    fn shown(value: &str) -> String {
        let Some(AuthenticationResults { authserv_id, results }) = parse(value) else { return "unreadable".to_owned() };
        let shown = results.iter().map(|MethodResult { method, result, properties }| {
            let properties: String = properties.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            format!("{method}={result}{properties}")
        });
        format!("{authserv_id}: {}", shown.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn results_are_parsed_or_refused() {
        for (value, expected) in [
            // RFC 8601, appendix B.
            ("example.org 1; none", "example.org: "),
            ("example.com; spf=pass smtp.mailfrom=example.net", "example.com: spf=pass smtp.mailfrom=example.net"),
            (
                "example.com;\r\n\tauth=pass (cram-md5) smtp.auth=sender@example.net;\r\n\tspf=pass smtp.mailfrom=example.net",
                "example.com: auth=pass smtp.auth=sender@example.net, spf=pass smtp.mailfrom=example.net",
            ),
            (
                "foo.example.net (foobar) 1 (baz);\r\n dkim (Because I like it) / 1 (One yay) = (wait for it) fail\r\n \
                 policy (A dot can go here) . (like that) expired\r\n (this surprised me) = (as I wasn't expecting it) 1362471462",
                "foo.example.net: dkim=fail policy.expired=1362471462",
            ),
            // Values as services write them.
            (
                "mx.google.com; dkim=pass header.i=@example.org header.s=k1 header.b=d2/h+iQ=; spf=pass (google.com: \
                 domain of a@example.org designates 1.2.3.4 as permitted sender) smtp.mailfrom=a@example.org; dmarc=pass \
                 (p=REJECT sp=NONE dis=NONE) header.from=example.org",
                "mx.google.com: dkim=pass header.i=@example.org header.s=k1 header.b=d2/h+iQ=, spf=pass \
                 smtp.mailfrom=a@example.org, dmarc=pass header.from=example.org",
            ),
            ("mx; dmarc=pass action=none header.from=a.b;", "mx: dmarc=pass action=none header.from=a.b"),
            (
                "MX.Example; DKIM=Pass reason=\"2048-bit; key\" Header.D=a.b",
                "mx.example: dkim=pass reason=2048-bit; key header.d=a.b",
            ),
            ("\"mx 1\"; spf=none", "mx 1: spf=none"),
            ("mx", "mx: "),
            ("mx; spf=none smtp.mailfrom=; dkim=none", "mx: spf=none smtp.mailfrom=, dkim=none"),
            // Text that a sender hides in the local part stays a value.
            (
                "mx; spf=pass smtp.mailfrom=\"x; dmarc=pass header.from=bank.test\"@evil.test",
                "mx: spf=pass smtp.mailfrom=x; dmarc=pass header.from=bank.test@evil.test",
            ),
            ("mx; spf=fail (domain of \\) ; dmarc=pass (x) )", "mx: spf=fail"),
            // Ambiguous values.
            ("mx; spf=fail (domain of x) y) ; dmarc=pass", "unreadable"),
            ("mx; spf=pass (open", "unreadable"),
            ("mx; spf=pass smtp.mailfrom=\"open", "unreadable"),
            ("mx; spf", "unreadable"),
            ("mx; spf=pass and more", "unreadable"),
            ("spf=pass smtp.mailfrom=a.b; dkim=pass", "unreadable"),
            ("mx 1 2; none", "unreadable"),
            ("", "unreadable"),
            ("; spf=pass", "unreadable"),
        ] {
            assert_eq!(shown(value), expected, "{value}");
        }
        assert_eq!(parse(&format!("mx; {}", "(".repeat(10_000))), None);
        assert_eq!(parse(&format!("mx; {}", "a=b;".repeat(1_000))), None);
    }

    proptest! {
        #[test]
        fn any_value_is_parsed_or_refused(value in "[ -~\\r\\n\\t]{0,200}", parts in prop::collection::vec(
            prop::sample::select(vec!["mx", ";", "=", "(", ")", "\"", "\\", ".", "/", " ", "dkim", "pass", "none", "1", "é"]), 0..40,
        )) {
            let read = parse(&value);
            prop_assert!(read.is_none_or(|r| r.results.len() <= MAX_RESULTS));
            let _ = parse(&parts.concat());
        }

        /// A quoted local part never adds a result.
        #[test]
        fn a_quoted_local_part_stays_a_value(local in "[^\"\\\\]{0,60}") {
            let read = parse(&format!("mx; spf=fail smtp.mailfrom=\"{local}\"@a.b")).unwrap();
            prop_assert_eq!(read.results.len(), 1);
            let mailfrom: Vec<_> = read.results[0].property("smtp.mailfrom").collect();
            prop_assert_eq!(mailfrom, vec![format!("{local}@a.b")]);
        }
    }
}
