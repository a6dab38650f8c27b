//! A name server that gives another address each time, and a program that uses it.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::UdpSocket;
use uuid::Uuid;

use super::gateway::binary;
use super::requirements::{bubblewrap_is_missing, is_root, skip_story};

/// The types of questions (RFC 1035, section 3.2.2).
const TYPE_A: [u8; 2] = [0, 1];

/// An answer of the name server.
#[derive(Clone, Copy)]
pub enum NameAnswer {
    Address(Ipv4Addr),
    /// The query fails (SERVFAIL).
    Failure,
    /// The name does not exist (NXDOMAIN).
    Unknown,
}

/// Returns a script in `folder` that starts the program with this name server only. Skips the story and returns `None` if
/// the machine does not support that. The first answer is for the first query, and the last for all later ones.
pub async fn program_asking(folder: &Path, answers: &[NameAnswer]) -> Option<PathBuf> {
    if bubblewrap_is_missing() {
        return None;
    }
    if !is_root() {
        skip_story("only root can have a name server of its own");
        return None;
    }
    // Stories run at the same time, so each has a name server on a different address.
    let bytes = Uuid::new_v4().into_bytes();
    let ip = Ipv4Addr::new(127, bytes[0], bytes[1], bytes[2].clamp(2, 250));
    let socket = UdpSocket::bind(SocketAddr::from((ip, 53))).await.expect("root binds port 53 of loopback");
    tokio::spawn(answer(socket, answers.to_vec()));
    let (resolver, script) = (folder.join("resolv.conf"), folder.join("with-name-server"));
    std::fs::write(&resolver, format!("nameserver {ip}\noptions attempts:1\n")).expect("the folder is ours");
    let line = format!(
        "#!/bin/sh\nexec bwrap --die-with-parent --dev-bind / / --ro-bind {} /etc/resolv.conf {} \"$@\"\n",
        resolver.display(),
        binary().display()
    );
    std::fs::write(&script, line).expect("the folder is ours");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("the script is ours");
    Some(script)
}

async fn answer(socket: UdpSocket, answers: Vec<NameAnswer>) {
    let (mut question, mut asked) = ([0; 512], 0_usize);
    while let Ok((length, from)) = socket.recv_from(&mut question).await {
        let question = &question[..length];
        let is_address = question_end(question).is_some_and(|end| question[end - 4..end - 2] == TYPE_A);
        // The query for an IPv6 address follows the query for an IPv4 address.
        let number = if is_address { asked } else { asked.saturating_sub(1) };
        let (code, address) = match answers[number.min(answers.len() - 1)] {
            NameAnswer::Address(address) => (0, Some(address).filter(|_| is_address)),
            NameAnswer::Failure => (2, None),
            NameAnswer::Unknown => (3, None),
        };
        asked += usize::from(is_address);
        if let Some(reply) = reply(question, code, address) {
            drop(socket.send_to(&reply, from).await);
        }
    }
}

/// Returns the position where the first question of a message ends.
fn question_end(message: &[u8]) -> Option<usize> {
    let mut at = 12;
    while *message.get(at)? != 0 {
        at += 1 + usize::from(message[at]);
    }
    (at + 5 <= message.len()).then_some(at + 5)
}

/// Returns the answer to a query (RFC 1035, section 4) with this code: one address that must not be cached, or none.
fn reply(question: &[u8], code: u8, address: Option<Ipv4Addr>) -> Option<Vec<u8>> {
    let end = question_end(question)?;
    let mut reply = question[..2].to_vec();
    reply.extend([0x81, 0x80 | code, 0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
    reply.extend(&question[12..end]);
    if let Some(address) = address {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
}
