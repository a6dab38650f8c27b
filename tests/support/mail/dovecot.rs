//! A real Dovecot.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use super::certificates::NAMES;
use super::process::{Process, wait_listening};
use super::{Authority, Draft, Mail};
use crate::support::port::Port;
use crate::support::requirements::{find, is_root, skip_story};
use crate::support::until;

/// The account that gateways read.
pub const ASSISTANT: &str = "assistant@example.test";
/// The password of every account.
pub const PASSWORD: &str = "a-mail-password";

/// The owner of the mailboxes if the stories run as root, because Dovecot serves no mail as root.
const MAIL_UID: u32 = 65_534;

/// A Dovecot that offers IMAP and LMTP for every account of every domain. Its mailboxes are Maildirs, which stories read
/// and write directly.
pub struct Dovecot {
    process: Option<Process>,
    folder: TempDir,
    imaps: Port,
    imap: Port,
    lmtp: Port,
    ca_file: PathBuf,
}

impl Dovecot {
    /// Starts the server; if it is missing, skips the story and returns `None`.
    pub async fn start() -> Option<Self> {
        let authority = Authority::new();
        let certificate = authority.issue(NAMES);
        Self::with_certificate(&authority, &certificate).await
    }

    /// Starts the server with `certificate`. Clients must trust `authority`.
    pub async fn with_certificate(authority: &Authority, certificate: &(String, String)) -> Option<Self> {
        if find("dovecot").is_none() || find("doveadm").is_none() {
            skip_story("there is no Dovecot (package dovecot-imapd)");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        // The login processes run as another user and must be able to enter the folder.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
        let ca_file = authority.write(folder.path());
        fs::write(folder.path().join("server.pem"), &certificate.0).expect("our own folder");
        fs::write(folder.path().join("server.key"), &certificate.1).expect("our own folder");
        let (imaps, imap, lmtp) = (Port::claim(), Port::claim(), Port::claim());
        let mut server = Self { process: None, folder, imaps, imap, lmtp, ca_file };
        fs::create_dir_all(server.path("mail")).expect("our own folder");
        server.give(&server.path("mail"));
        fs::write(server.path("dovecot.conf"), server.configuration()).expect("our own folder");
        server.up().await;
        Some(server)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Gives a file to the user that serves the mailboxes.
    fn give(&self, path: &Path) {
        if is_root() {
            chown(path, Some(MAIL_UID), Some(MAIL_UID)).expect("root may");
        }
    }

    fn configuration(&self) -> String {
        let folder = self.folder.path().display();
        let (uid, gid) = if is_root() {
            (MAIL_UID, MAIL_UID)
        } else {
            (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
        };
        // Without root, no other user is possible.
        let user = if is_root() {
            String::new()
        } else {
            "default_internal_user = $ENV:USER_NAME\ndefault_login_user = $ENV:USER_NAME\n\
             default_internal_group = $ENV:GROUP_NAME\n"
                .replace("$ENV:USER_NAME", &name_of("-un"))
                .replace("$ENV:GROUP_NAME", &name_of("-gn"))
        };
        let (imap, imaps) = (self.imap.number, self.imaps.number);
        let (protocols, delivery) =
            if has_delivery() { ("imap lmtp", self.delivery()) } else { ("imap", String::new()) };
        let by_version = self.by_version(uid, gid);
        let version = if is_new() { "dovecot_config_version = 2.4.0\ndovecot_storage_version = 2.4.0\n" } else { "" };
        format!(
            "{version}base_dir = {folder}/run
state_dir = {folder}/run
instance_name = story-{imap}
log_path = {folder}/dovecot.log
protocols = {protocols}
listen = 127.0.0.1
{user}first_valid_uid = 0
first_valid_gid = 0
ssl = yes
auth_mechanisms = plain login
auth_username_chars =
auth_failure_delay = 0
mail_max_userip_connections = 100
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
}}
{by_version}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
service auth {{
  unix_listener auth-postfix {{
    mode = 0666
  }}
}}
{delivery}"
        )
    }

    /// Returns the settings whose names differ between 2.3 and 2.4: certificates, mailboxes and accounts.
    fn by_version(&self, uid: u32, gid: u32) -> String {
        let folder = self.folder.path().display();
        if is_new() {
            format!(
                "ssl_server_cert_file = {folder}/server.pem
ssl_server_key_file = {folder}/server.key
auth_allow_cleartext = yes
mail_driver = maildir
mail_path = ~/Maildir
passdb static {{
  password = {PASSWORD}
}}
userdb static {{
  fields {{
    uid = {uid}
    gid = {gid}
    home = {folder}/mail/%{{user}}
  }}
  allow_all_users = yes
}}"
            )
        } else {
            format!(
                "ssl_cert = <{folder}/server.pem
ssl_key = <{folder}/server.key
disable_plaintext_auth = no
mail_location = maildir:~/Maildir
passdb {{
  driver = static
  args = password={PASSWORD}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail/%u allow_all_users=yes
}}"
            )
        }
    }

    fn delivery(&self) -> String {
        let lmtp = self.lmtp.number;
        format!(
            "service lmtp {{
  inet_listener lmtp {{
    port = {lmtp}
  }}
}}
protocol lmtp {{
  postmaster_address = postmaster@example.test
}}
"
        )
    }

    /// Starts the server again on the same ports.
    pub async fn up(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let program = find("dovecot").expect("it was there");
        // Leftovers of the previous process would prevent a start: sockets, and a process id that may belong to another process by now.
        fs::remove_dir_all(self.path("run")).ok();
        fs::create_dir_all(self.path("run")).expect("our own folder");
        let configuration = self.path("dovecot.conf");
        let args = ["-F", "-c", configuration.to_str().expect("a plain path")];
        self.process = Some(Process::start(&program, &args, &self.path("dovecot.out")));
        for port in [self.imap.number, self.imaps.number] {
            wait_listening("Dovecot to listen", port).await;
        }
    }

    /// Stops the server and closes every connection.
    pub async fn down(&mut self) {
        self.process.take().expect("it runs").stop().await;
    }

    /// Returns the port with TLS from the first byte.
    pub fn imaps_port(&self) -> u16 {
        self.imaps.number
    }

    /// Returns the port for plain text and STARTTLS.
    pub fn imap_port(&self) -> u16 {
        self.imap.number
    }

    /// The LMTP port, for mail servers.
    pub fn lmtp_port(&self) -> u16 {
        self.lmtp.number
    }

    /// Returns the certificate file that clients must trust.
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&[read("dovecot.out"), read("dovecot.log")].concat()).into_owned()
    }

    /// Returns the folder of a mailbox, created if it is missing.
    fn maildir(&self, account: &str, mailbox: &str) -> PathBuf {
        let mut folder = self.path("mail").join(account);
        let inner = if mailbox == "INBOX" { String::new() } else { format!(".{mailbox}") };
        for part in ["", "Maildir", &inner] {
            folder.push(part);
            self.make(&folder);
        }
        for part in ["tmp", "new", "cur"] {
            self.make(&folder.join(part));
        }
        folder
    }

    fn make(&self, folder: &Path) {
        if !folder.exists() {
            fs::create_dir_all(folder).expect("our own folder");
            self.give(folder);
        }
    }

    /// Delivers a mail to the account's INBOX, as a delivery agent does. Clients in IDLE are notified.
    pub fn deliver(&self, account: &str, draft: &Draft) {
        self.deliver_to(account, "INBOX", draft);
    }

    pub fn deliver_to(&self, account: &str, mailbox: &str, draft: &Draft) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let folder = self.maildir(account, mailbox);
        let now = jiff::Timestamp::now();
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = format!("{}.M{number:06}P{}.story", now.as_second(), std::process::id());
        let written = folder.join("tmp").join(&name);
        fs::write(&written, draft.raw()).expect("our own folder");
        if let Some(at) = draft.received_at() {
            let file = fs::File::options().write(true).open(&written).expect("our own file");
            file.set_modified(at).expect("our own file");
        }
        self.give(&written);
        fs::rename(&written, folder.join("new").join(&name)).expect("the same folder");
    }

    /// Removes the mail with this Message-ID from the account's INBOX.
    pub fn remove(&self, account: &str, message_id: &str) {
        let folder = self.maildir(account, "INBOX");
        for file in ["new", "cur"].iter().flat_map(|part| files_of(&folder.join(part))) {
            if Mail::open(&file).is_some_and(|mail| mail.header("message-id") == message_id) {
                // If a client marks the mail at this moment, the file has another name.
                fs::remove_file(&file).ok();
            }
        }
    }

    /// Returns the mails of a mailbox, oldest first.
    pub fn mails(&self, account: &str, mailbox: &str) -> Vec<Mail> {
        let folder = self.maildir(account, mailbox);
        let mut files: Vec<PathBuf> = ["new", "cur"].iter().flat_map(|part| files_of(&folder.join(part))).collect();
        files.sort_by_key(|file| file.file_name().map(ToOwned::to_owned));
        // A file that was renamed after the folder was read is found at the next call.
        files.iter().filter_map(|file| Mail::open(file)).collect()
    }

    /// Returns the first mail in the account's INBOX that `wanted` accepts.
    pub async fn wait_mail(&self, account: &str, what: &str, wanted: impl Fn(&Mail) -> bool) -> Mail {
        until(&format!("{what} in the mailbox of {account}"), async || {
            self.mails(account, "INBOX").into_iter().find(|mail| wanted(mail))
        })
        .await
    }

    /// Returns when every mail in the mailbox is marked as read.
    pub async fn wait_seen(&self, account: &str, mailbox: &str, count: usize) {
        until(&format!("{count} mails of {account} to be \\Seen"), async || {
            (self.mails(account, mailbox).iter().filter(|mail| mail.is_seen()).count() == count).then_some(())
        })
        .await;
    }

    /// Closes the account's connections, as an administrator does.
    pub fn kick(&self, account: &str) {
        self.doveadm(&["kick", account]);
    }

    /// Gives a mailbox a new UIDVALIDITY, which invalidates the numbers of its mails.
    pub fn set_uidvalidity(&self, account: &str, mailbox: &str, validity: u32) {
        self.doveadm(&["mailbox", "update", "-u", account, "--uid-validity", &validity.to_string(), mailbox]);
    }

    /// Returns an item of IMAP's `STATUS` for a mailbox, e.g. `uidnext`.
    pub fn status(&self, account: &str, mailbox: &str, field: &str) -> String {
        let said = self.doveadm(&["-f", "flow", "mailbox", "status", "-u", account, field, mailbox]);
        said.rsplit('=').next().unwrap_or_default().trim().to_owned()
    }

    fn doveadm(&self, args: &[&str]) -> String {
        let program = find("doveadm").expect("it was there");
        let ran = Command::new(program).arg("-c").arg(self.path("dovecot.conf")).args(args).output();
        let ran = ran.expect("doveadm starts");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "doveadm {args:?}: {said}\n{}", self.log());
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }
}

impl Drop for Dovecot {
    #[expect(clippy::print_stderr, reason = "what a failed test shows")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- Dovecot\n{}", self.log());
        }
    }
}

/// Returns true for 2.4 or newer, which renames many settings
/// (https://doc.dovecot.org/2.4.0/installation/upgrade/2.3-to-2.4.html).
fn is_new() -> bool {
    let ran = Command::new(find("dovecot").expect("it was there")).arg("--version").output().expect("dovecot starts");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let mut numbers = said.split(['.', '-', ' ']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(4))
}

/// Returns true if Dovecot can receive mail by LMTP, which is a separate package.
pub(super) fn has_delivery() -> bool {
    ["/usr/lib/dovecot/lmtp", "/usr/libexec/dovecot/lmtp"].iter().any(|program| Path::new(program).exists())
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of a Maildir");
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Returns the name of this process's user or group, as `id` prints it.
fn name_of(flag: &str) -> String {
    let said = Command::new("id").arg(flag).output().expect("id is everywhere").stdout;
    String::from_utf8_lossy(&said).trim().to_owned()
}
