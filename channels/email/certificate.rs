//! Servers' certificates: how long they are still good, and what is wrong with one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use crate::finding::Finding;

/// Certificates are renewed some thirty days before their end; one that was not by now is forgotten.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Servers whose certificates are remembered.
const MOST_SERVERS: usize = 16;

/// Lets another one verify, and remembers until when the certificates are good that it took.
#[derive(Debug)]
pub struct Noticing {
    inner: Arc<dyn ServerCertVerifier>,
    seen: Seen,
}

/// The ends of the certificates of servers, by their names.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Mutex<BTreeMap<String, Timestamp>>>);

impl Noticing {
    pub fn new(inner: Arc<dyn ServerCertVerifier>, seen: Seen) -> Self {
        Self { inner, seen }
    }
}

impl Seen {
    /// One finding for each server that was reached.
    pub fn findings(&self, now: Timestamp) -> Vec<Finding> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().map(|(server, end)| finding(server, *end, now)).collect()
    }

    fn note(&self, server: &ServerName<'_>, certificate: &CertificateDer<'_>) {
        let Some(end) = end_of(certificate) else { return };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let server = server.to_str().into_owned();
        if seen.len() < MOST_SERVERS || seen.contains_key(&server) {
            seen.insert(server, end);
        }
    }
}

impl ServerCertVerifier for Noticing {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        self.seen.note(server_name, end_entity);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Why the certificate of `host` was not taken, and what helps.
pub fn fault_in_words(fault: &CertificateError, host: &str) -> String {
    let what = match fault {
        CertificateError::UnknownIssuer => {
            "is signed by nobody that this system trusts; if it is your own authority's, name that in ca_file"
                .to_owned()
        }
        // That is what an authority of the right name with another key comes to.
        CertificateError::BadSignature => {
            "is not signed by the authority that it names; if that one was made anew, its new certificate belongs into \
             ca_file"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("is not for the name {host}")
        }
        other => format!("is not to be trusted: {other}"),
    };
    format!("the server's certificate {what}")
}

fn finding(server: &str, end: Timestamp, now: Timestamp) -> Finding {
    const NAME: &str = "certificate";
    let left = end.duration_since(now);
    let message = format!("{server}: good for {} days, until {}", left.as_hours() / 24, end.strftime("%F"));
    if left > SOON {
        return Finding::ok(NAME, message);
    }
    Finding::warn(NAME, message, "whoever runs that server has to renew it; after that day no mail comes or goes")
}

/// The end of a certificate's validity (RFC 5280, section 4.1.2.5); `None` for what is no certificate.
fn end_of(certificate: &[u8]) -> Option<Timestamp> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (SEQUENCE, outer, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut fields, _) = element(outer)? else { return None };
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (SEQUENCE, validity, _) = element(fields)? else { return None };
    let (_, _, end) = element(validity)?;
    let (kind, time, _) = element(end)?;
    time_of(kind, std::str::from_utf8(time).ok()?)
}

/// `YYMMDDHHMMSSZ` (UTCTime) or `YYYYMMDDHHMMSSZ` (GeneralizedTime).
fn time_of(kind: u8, text: &str) -> Option<Timestamp> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let whole = match kind {
        UTC_TIME => format!("{}{text}", if text.get(..2)?.parse::<u8>().ok()? < 50 { "20" } else { "19" }),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%S", whole.strip_suffix('Z')?).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The first element of DER: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::finding::Verdict;

    /// As much of a certificate as is looked at.
    fn certificate(end: &[u8], kind: u8) -> Vec<u8> {
        let der = |tag: u8, content: Vec<u8>| {
            let length = u16::try_from(content.len()).unwrap().to_be_bytes();
            [vec![tag, 0x82], length.to_vec(), content].concat()
        };
        let validity = [der(0x17, b"250101000000Z".to_vec()), der(kind, end.to_vec())].concat();
        let fields = [
            der(0xa0, vec![2, 1, 2]),
            der(0x02, vec![1; 20]),
            der(0x30, vec![]),
            der(0x30, vec![0; 300]),
            der(0x30, validity),
            der(0x30, vec![]),
        ];
        der(0x30, der(0x30, fields.concat()))
    }

    #[test]
    fn the_end_is_read() {
        let table: [(&[u8], u8, Option<&str>); 5] = [
            (b"260301120000Z", 0x17, Some("2026-03-01T12:00:00Z")),
            (b"500301120000Z", 0x17, Some("1950-03-01T12:00:00Z")),
            (b"20990301120000Z", 0x18, Some("2099-03-01T12:00:00Z")),
            (b"2603011200", 0x17, None),
            (b"260301120000Z", 0x02, None),
        ];
        for (end, kind, expected) in table {
            let got = end_of(&certificate(end, kind)).map(|end| end.to_string());
            assert_eq!(got.as_deref(), expected);
        }
        let now: Timestamp = "2026-02-20T12:00:00Z".parse().unwrap();
        let of = |end: &str| finding("mx", end.parse().unwrap(), now);
        assert!(of("2026-03-01T12:00:00Z").message.contains("good for 9 days, until 2026-03-01"));
        assert_eq!(of("2026-03-01T12:00:00Z").state, Verdict::Warn);
        assert_eq!(of("2026-05-01T12:00:00Z").state, Verdict::Ok);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..400_usize, byte: u8) {
            end_of(&bytes);
            let mut changed = certificate(b"260301120000Z", 0x17);
            let at = at % changed.len();
            changed[at] = byte;
            end_of(&changed);
        }
    }
}
