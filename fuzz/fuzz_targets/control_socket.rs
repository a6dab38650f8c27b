//! Requests on the control socket of a running gateway: each is answered, and none makes the gateway fail.
//!
//! An input is a line of method and path, then the body. The gateway has only the offline responder, and no commands.
#![no_main]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::mpsc;
use std::time::Duration;

use daoyou::config::{self, ConfigSource};
use daoyou::gateway::{Gateway, Options};
use daoyou::home::Home;
use libfuzzer_sys::fuzz_target;
use tokio_util::sync::CancellationToken;

/// The longest that an answer may take, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const CONFIG: &str = "gateway.listen = \"127.0.0.1:0\"\nagent.model = \"offline\"\ntools.disabled = [\"exec\"]\n";

/// The socket of a gateway that runs as long as this process.
static SOCKET: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("daoyou-fuzz-{}-control", std::process::id()));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("a folder of ours");
    }
    std::fs::create_dir_all(&folder).expect("temporary files can be made");
    let home = Home::open(Some(folder)).expect("a home of our own");
    std::fs::write(home.config(), CONFIG).expect("a file in a home of ours");
    let socket = home.socket();
    let (sender, ready) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("threads can be made").block_on(async {
            let lock = home.lock().expect("nobody else has this home");
            let loaded = config::load(ConfigSource::Required(&home.config()), &BTreeMap::new())
                .expect("these settings are right");
            let gateway = Gateway::build(home, lock, &loaded, Options::default()).await.expect("a gateway is built");
            let on_ready = move |_| sender.send(()).expect("the other thread waits");
            gateway.run(CancellationToken::new(), on_ready).await.expect("a gateway runs");
        });
    });
    ready.recv().expect("the gateway gets ready");
    socket
});

fuzz_target!(|data: &[u8]| {
    let Some((line, body)) = data.iter().position(|byte| *byte == b'\n').map(|at| data.split_at(at)) else { return };
    let Ok(line) = std::str::from_utf8(line) else { return };
    let Some((method, path)) = line.split_once(' ') else { return };
    // These requests wait by design: for the end of a message, or for the next thing to show.
    let waits = path.contains("wait") || path.starts_with("/api/attach");
    if waits || method.contains(|c: char| !c.is_ascii_uppercase()) || path.contains(|c: char| !c.is_ascii_graphic()) {
        return;
    }
    let body = &body[1..];
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: daoyou\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let mut stream = UnixStream::connect(&*SOCKET).expect("the gateway listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket can have a limit");
    // A server that refuses a head need not read the body.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    if answer.is_empty() {
        read.unwrap_or_else(|error| panic!("no answer: {error}"));
    }
    let status = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    assert!(status.starts_with("HTTP/1.1 ") && !status.starts_with("HTTP/1.1 500"), "{line}: {status}");
});
