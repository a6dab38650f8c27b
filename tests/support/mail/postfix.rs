//! A real Postfix in front of a Dovecot.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::dovecot::has_delivery;
use super::process::{Process, wait_listening};
use super::{AUTHSERV, Dovecot, Draft};
use crate::support::deadline;
use crate::support::port::Port;
use crate::support::requirements::{find, is_root, skip_story};

/// A Postfix that accepts mail for `example.test` and `other.test` and passes it to Dovecot by LMTP. One port accepts mail
/// from any server; the other accepts mail from its own users after STARTTLS and login. At the top of each mail it writes
/// the envelope sender, as a receiving server does.
pub struct Postfix {
    folder: PathBuf,
    submission: Port,
    transfer: Port,
    _process: Process,
}

/// The folders of a queue (postfix-files), their owners, and whether they are readable for all.
const QUEUE: &[&str] = &[
    "active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming", "maildrop", "private", "public",
    "saved", "trace",
];

impl Postfix {
    /// Starts the server; if it is missing or cannot start, skips the story and returns `None`.
    pub async fn start(dovecot: &Dovecot) -> Option<Self> {
        let results = format!("/^(.+)$/ PREPEND Authentication-Results: {AUTHSERV}; spf=pass smtp.mailfrom=$1\n");
        Self::with_results(dovecot, results).await
    }

    /// Starts the server like [`Postfix::start`], but it writes no results into mails and keeps existing ones.
    pub async fn without_results(dovecot: &Dovecot) -> Option<Self> {
        Self::with_results(dovecot, String::new()).await
    }

    /// Starts the server. `results` is the entry of the table for envelope senders.
    async fn with_results(dovecot: &Dovecot, results: String) -> Option<Self> {
        let Some(program) = find("postfix").and_then(|_| find("master")).filter(|_| is_root() && has_delivery()) else {
            skip_story("there is no Postfix, no dovecot-lmtpd, or nobody to start them (it needs root)");
            return None;
        };
        let folder = dovecot.path("postfix");
        let (owner, group) = (entry("/etc/passwd", "postfix"), entry("/etc/group", "postdrop"));
        fs::create_dir_all(folder.join("queue/pid")).expect("our own folder");
        fs::create_dir_all(folder.join("etc")).expect("our own folder");
        for name in QUEUE.iter().map(|name| format!("queue/{name}")).chain(["data".to_owned()]) {
            let path = folder.join(&name);
            fs::create_dir_all(&path).expect("our own folder");
            let (group, mode) = match name.as_str() {
                "queue/maildrop" => (Some(group), 0o730),
                "queue/public" => (Some(group), 0o710),
                _ => (None, 0o700),
            };
            chown(&path, Some(owner), group).expect("root may");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own folder");
        }
        let (submission, transfer) = (Port::claim(), Port::claim());
        let etc = folder.join("etc");
        let settings = [
            ("main.cf", main_cf(dovecot, &folder, &program)),
            ("master.cf", master_cf(transfer.number, submission.number)),
            ("results", results),
        ];
        for (name, text) in settings {
            let mut file = fs::File::create(etc.join(name)).expect("our own folder");
            file.write_all(text.as_bytes()).expect("our own file");
            // Postfix waits two seconds for a recently changed file, which may still be written.
            file.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("our own file");
        }
        let args = ["-c", etc.to_str().expect("a plain path"), "-d", "-s"];
        let process = Process::start(&program, &args, &folder.join("out"));
        wait_listening("Postfix to listen", submission.number).await;
        Some(Self { folder, submission, transfer, _process: process })
    }

    /// Returns the port for its own users, with STARTTLS and login.
    pub fn submission_port(&self) -> u16 {
        self.submission.number
    }

    /// Submits a mail as another server does. `from` is the envelope sender.
    pub async fn transfer(&self, from: &str, to: &[&str], draft: &Draft) {
        let stream = TcpStream::connect(("127.0.0.1", self.transfer.number)).await.expect("Postfix listens");
        let mut stream = BufReader::new(stream);
        let recipients = to.iter().map(|to| format!("RCPT TO:<{to}>\r\n"));
        let mut said = vec![(String::new(), "220"), ("EHLO people.test\r\n".to_owned(), "250")];
        said.push((format!("MAIL FROM:<{from}>\r\n"), "250"));
        said.extend(recipients.map(|line| (line, "250")));
        said.push(("DATA\r\n".to_owned(), "354"));
        for (line, expected) in said {
            stream.write_all(line.as_bytes()).await.expect("Postfix listens");
            expect(&mut stream, expected).await;
        }
        let stuffed = String::from_utf8_lossy(&draft.written()).replace("\r\n.", "\r\n..");
        stream.write_all(format!("{stuffed}\r\n.\r\n").as_bytes()).await.expect("Postfix listens");
        expect(&mut stream, "250").await;
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.folder.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&[read("out"), read("log")].concat()).into_owned()
    }
}

impl Drop for Postfix {
    #[expect(clippy::print_stderr, reason = "what a failed test shows")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- Postfix\n{}", self.log());
        }
    }
}

/// Reads an answer of one or several lines, which must have this code.
async fn expect(stream: &mut BufReader<TcpStream>, code: &str) {
    loop {
        let mut line = String::new();
        deadline("Postfix to answer", stream.read_line(&mut line)).await.expect("Postfix answers");
        assert!(line.starts_with(code), "Postfix said {line}");
        if line.as_bytes().get(3) != Some(&b'-') {
            return;
        }
    }
}

/// Returns the numeric id of a user or group.
fn entry(file: &str, name: &str) -> u32 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').next() == Some(name));
    let number = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
    number.unwrap_or_else(|| panic!("{file} has no {name}, which Postfix's package makes"))
}

fn main_cf(dovecot: &Dovecot, folder: &Path, program: &Path) -> String {
    let daemons = program.parent().expect("a program lies in a folder").display();
    let (keys, auth, lmtp) =
        (dovecot.path("").display().to_string(), dovecot.path("run/auth-postfix"), dovecot.lmtp_port());
    let (folder, auth) = (folder.display(), auth.display());
    format!(
        "compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
daemon_directory = {daemons}
mail_owner = postfix
setgid_group = postdrop
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
myhostname = {AUTHSERV}
mydomain = example.test
myorigin = example.test
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
virtual_mailbox_domains = example.test, other.test
virtual_mailbox_maps = static:ok
virtual_transport = lmtp:inet:127.0.0.1:{lmtp}
default_transport = error:5.7.1 mail of stories stays here
alias_maps =
alias_database =
local_recipient_maps =
message_size_limit = 52428800
virtual_mailbox_limit = 0
smtpd_tls_cert_file = {keys}server.pem
smtpd_tls_key_file = {keys}server.key
smtpd_tls_security_level = may
smtpd_tls_session_cache_database =
smtpd_sasl_type = dovecot
smtpd_sasl_path = {auth}
smtpd_sasl_security_options = noanonymous
smtpd_sender_restrictions = check_sender_access regexp:{folder}/etc/results
smtpd_relay_restrictions = permit_sasl_authenticated, reject_unauth_destination
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
disable_dns_lookups = yes
minimal_backoff_time = 1s
maximal_backoff_time = 2s
queue_run_delay = 1s
in_flow_delay = 0s
"
    )
}

fn master_cf(transfer: u16, submission: u16) -> String {
    format!(
        "127.0.0.1:{transfer} inet n - n - - smtpd
127.0.0.1:{submission} inet n - n - - smtpd
  -o smtpd_tls_security_level=encrypt
  -o smtpd_sasl_auth_enable=yes
  -o smtpd_tls_auth_only=yes
  -o smtpd_recipient_restrictions=permit_sasl_authenticated,reject
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
error unix - - n - - error
retry unix - - n - - error
lmtp unix - - n - - lmtp
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"
    )
}
