//! Certificates of the test servers.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// A certificate authority that clients trust if they get its file.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority of a story");
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("it is signed by itself").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes the authority's certificate and returns its path, the value for `ca_file`.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let file = folder.join("ca.pem");
        std::fs::write(&file, &self.pem).expect("the temporary folder is ours");
        file
    }

    /// Returns a certificate for `names` and its key, both as PEM.
    pub fn issue(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of servers");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("the authority signs");
        (signed.pem(), key.serialize_pem())
    }
}

/// The names of the test servers.
pub const NAMES: &[&str] = &["localhost", "127.0.0.1"];
