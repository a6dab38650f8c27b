//! Checks how long the certificates of servers are valid, and describes faulty ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ClientConnection};
use webpki::{EndEntityCert, KeyUsage};

use crate::finding::Finding;

/// How close to its end a certificate counts as forgotten. Certificates are usually renewed thirty days before their end.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
/// The maximum number of servers whose certificates are remembered.
const MAX_SERVERS: usize = 16;

/// The largest file of certificates, in bytes; the system's own has about 200 KB.
const MAX_CA_BYTES: u64 = 4_000_000;

/// The TLS settings of an account, and the expiry times of the certificates of the servers reached with them.
#[derive(Clone)]
pub struct MailTls {
    pub config: Arc<ClientConfig>,
    pub expiries: CertificateExpiries,
}

/// The expiry times of server certificates, by server name.
#[derive(Clone, Debug, Default)]
pub struct CertificateExpiries(Arc<Mutex<BTreeMap<String, Timestamp>>>);

impl CertificateExpiries {
    /// Returns one finding for each server that was reached.
    pub fn findings(&self, now: Timestamp) -> Vec<Finding> {
        let seen = self.0.lock();
        seen.iter().map(|(server, end)| finding(server, *end, now)).collect()
    }

    /// Records the expiry time of the certificate that `server` has proven in the handshake of `connection`.
    pub fn record(&self, server: &ServerName<'_>, connection: &ClientConnection) {
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        let Some(end) = certificate.and_then(expiry_of) else { return };
        let mut seen = self.0.lock();
        let server = server.to_str().into_owned();
        if seen.len() < MAX_SERVERS || seen.contains_key(&server) {
            seen.insert(server, end);
        }
    }
}

/// Describes why the certificate of `host` is not accepted, and how to fix that.
pub fn describe_certificate_error(fault: &CertificateError, host: &str) -> String {
    let what = match fault {
        CertificateError::UnknownIssuer => {
            "is not signed by an authority that this system trusts; if it is from your own authority, set ca_file to its certificate"
                .to_owned()
        }
        // An authority with the right name but another key causes this error.
        CertificateError::BadSignature => {
            "is not signed by the authority that it names; if that authority has a new certificate, set ca_file to it"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("is not for the name {host}")
        }
        other => format!("is not valid: {other}"),
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
    Finding::warn(
        NAME,
        message,
        "the operator of that server must renew it; after that day no mail is received or sent",
    )
}

/// Returns the expiry time of a certificate; `None` if the bytes are not a certificate or it never expires. webpki
/// reports the expiry time when it checks a later time.
fn expiry_of(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    // The last second of the year 9999.
    let never = UnixTime::since_unix_epoch(Duration::from_secs(253_402_300_799));
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let usage = KeyUsage::server_auth();
    match certificate.verify_for_usage(&[], &[], &[], never, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            Timestamp::from_second(i64::try_from(not_after.as_secs()).ok()?).ok()
        }
        _ => None,
    }
}

/// Reads the certificates of a PEM file.
///
/// # Errors
/// A sentence that names the file: it cannot be read, is too large, or contains no certificate.
pub fn read_ca_file(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = file.display();
    let meta = file.metadata().map_err(|error| format!("{shown} cannot be read: {error}"))?;
    if !meta.is_file() || meta.len() > MAX_CA_BYTES {
        return Err(format!("{shown} is not a file of certificates"));
    }
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(format!("{shown} holds no certificate in PEM")),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("{shown} cannot be read as PEM: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::finding::Severity;

    fn certificate(end_year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["mx.here".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2025, 1, 1);
        params.not_after = date_time_ymd(end_year, 3, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        // The second date is written as GeneralizedTime.
        for (year, expected) in [(2026, "2026-03-01T00:00:00Z"), (2099, "2099-03-01T00:00:00Z")] {
            assert_eq!(expiry_of(&certificate(year)).unwrap().to_string(), expected);
        }
        let now: Timestamp = "2026-02-20T12:00:00Z".parse().unwrap();
        let of = |end: &str| finding("mx", end.parse().unwrap(), now);
        assert!(of("2026-03-01T12:00:00Z").message.contains("good for 9 days, until 2026-03-01"));
        assert_eq!(of("2026-03-01T12:00:00Z").state, Severity::Warn);
        assert_eq!(of("2026-05-01T12:00:00Z").state, Severity::Ok);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..400_usize, byte: u8) {
            expiry_of(&CertificateDer::from(bytes));
            let mut changed = certificate(2026).to_vec();
            let at = at % changed.len();
            changed[at] = byte;
            expiry_of(&CertificateDer::from(changed));
        }
    }
}
