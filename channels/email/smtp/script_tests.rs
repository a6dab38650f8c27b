//! A scripted SMTP server.

use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::stream::Duplex;

/// A reaction of the server that differs from its default.
#[derive(Clone, Copy, Debug)]
pub enum SmtpReaction {
    Reply(&'static str),
    Drop,
    Hang,
}

/// The server's reactions by the beginning of a command; the first match counts. `greeting`, `body` (the first line of a
/// mail) and `end` (its last line) stand for events that are not commands.
pub type SmtpScript = Vec<(&'static str, SmtpReaction)>;

#[derive(Debug, Default)]
pub struct SmtpRecord {
    /// Each received line with the number of its connection.
    pub lines: Vec<(usize, String)>,
    pub mails: Vec<String>,
}

/// The kind of encryption.
#[derive(Clone)]
pub enum SmtpEncryption {
    None,
    Starttls(TlsAcceptor),
    Implicit(TlsAcceptor),
}

#[derive(Clone)]
pub struct ScriptedServer {
    pub port: u16,
    seen: Arc<Mutex<SmtpRecord>>,
}

type Stream = BufReader<Box<dyn Duplex>>;

impl ScriptedServer {
    /// Starts a server. Each connection follows the next script; connections after the last script follow the last one.
    pub async fn start(scripts: Vec<SmtpScript>, encryption: SmtpEncryption) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { port: listener.local_addr().unwrap().port(), seen: Arc::default() };
        let seen = Arc::clone(&server.seen);
        tokio::spawn(async move {
            for number in 0.. {
                let (tcp, _) = listener.accept().await.unwrap();
                let script = scripts.get(number).or(scripts.last()).cloned().unwrap_or_default();
                let connection =
                    ScriptedSmtpConnection { number, script, encryption: encryption.clone(), seen: Arc::clone(&seen) };
                tokio::spawn(async move {
                    // A client that disconnects is part of the script.
                    connection.run(Box::new(tcp)).await.ok();
                });
            }
        });
        server
    }

    pub fn inspect<T>(&self, at: impl FnOnce(&SmtpRecord) -> T) -> T {
        at(&self.seen.lock().unwrap())
    }

    pub fn has(&self, line: &str) -> bool {
        self.inspect(|seen| seen.lines.iter().any(|(_, known)| known.starts_with(line)))
    }
}

struct ScriptedSmtpConnection {
    number: usize,
    script: SmtpScript,
    encryption: SmtpEncryption,
    seen: Arc<Mutex<SmtpRecord>>,
}

impl ScriptedSmtpConnection {
    async fn run(self, stream: Box<dyn Duplex>) -> std::io::Result<()> {
        let mut stream: Stream = BufReader::new(match &self.encryption {
            SmtpEncryption::Implicit(tls) => Box::new(tls.accept(stream).await?),
            _ => stream,
        });
        self.act(&mut stream, "greeting", "220 scripted ESMTP").await?;
        loop {
            let line = self.line(&mut stream).await?;
            let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            match verb.as_str() {
                "EHLO" => {
                    let starttls =
                        if matches!(self.encryption, SmtpEncryption::Starttls(_)) { "250-STARTTLS\r\n" } else { "" };
                    let offers = "250-SIZE 100000\r\n250-8BITMIME\r\n250-AUTH PLAIN LOGIN XOAUTH2\r\n250 SMTPUTF8";
                    self.act(&mut stream, &line, &format!("250-scripted\r\n{starttls}{offers}")).await?;
                }
                "STARTTLS" => {
                    self.act(&mut stream, &line, "220 go on").await?;
                    let SmtpEncryption::Starttls(tls) = &self.encryption else { continue };
                    stream = BufReader::new(Box::new(tls.accept(stream.into_inner()).await?));
                }
                "AUTH" => {
                    self.act(&mut stream, &line, "235 welcome").await?;
                }
                "DATA" => {
                    if self.act(&mut stream, &line, "354 go on").await? {
                        self.body(&mut stream).await?;
                    }
                }
                "QUIT" => return self.act(&mut stream, &line, "221 bye").await.map(|_| ()),
                _ => {
                    self.act(&mut stream, &line, "250 ok").await?;
                }
            }
        }
    }

    async fn body(&self, stream: &mut Stream) -> std::io::Result<()> {
        let mut mail = String::new();
        loop {
            let line = read(stream).await?;
            if mail.is_empty() {
                self.act(stream, "body", "").await?;
            }
            if line == "." {
                break;
            }
            mail.push_str(line.strip_prefix('.').unwrap_or(&line));
            mail.push_str("\r\n");
        }
        self.seen.lock().unwrap().mails.push(mail);
        self.act(stream, "end", "250 taken").await.map(|_| ())
    }

    /// Performs the scripted reaction, or else writes `usual`. Returns true if it wrote `usual`.
    async fn act(&self, stream: &mut Stream, at: &str, usual: &str) -> std::io::Result<bool> {
        let act = self.script.iter().find(|(begin, _)| at.starts_with(begin)).map(|(_, act)| *act);
        let text = match act {
            None => usual,
            Some(SmtpReaction::Reply(text)) => text,
            Some(SmtpReaction::Drop) => return Err(std::io::ErrorKind::ConnectionReset.into()),
            Some(SmtpReaction::Hang) => std::future::pending().await,
        };
        if !text.is_empty() {
            stream.write_all(format!("{text}\r\n").as_bytes()).await?;
            stream.flush().await?;
        }
        Ok(act.is_none())
    }

    async fn line(&self, stream: &mut Stream) -> std::io::Result<String> {
        let line = read(stream).await?;
        self.seen.lock().unwrap().lines.push((self.number, line.clone()));
        Ok(line)
    }
}

async fn read(stream: &mut Stream) -> std::io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Returns a certificate authority as PEM, and a TLS acceptor with a certificate of that authority for `name`.
pub fn authority(name: &str) -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivatePkcs8KeyDer::from(leaf_key.serialize_der()).into())
        .unwrap();
    (pem, TlsAcceptor::from(Arc::new(config)))
}
