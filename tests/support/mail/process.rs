//! Server processes that end with the test.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::until;

/// A script that runs its arguments until its own input closes, so that a server ends with the test that started it, even
/// if the test was killed. It ends the server's workers and waits for them, because the server itself would take a second
/// for that.
const KEEPER: &str = r#"
"$@" &
server=$!
trap '' INT TERM HUP
read -r _
# It must not start others meanwhile.
kill -STOP $server
workers=$(cat /proc/$server/task/$server/children 2>/dev/null)
if [ -n "$workers" ]; then
    kill -TERM $workers
    kill -KILL $server
else
    kill -TERM $server
    kill -CONT $server
fi
wait $server
for worker in $workers; do
    tries=0
    while [ $tries -lt 100 ] && [ -d /proc/$worker ] && ! grep -q '^State:.*Z' /proc/$worker/status; do
        tries=$((tries + 1))
        sleep 0.01
    done
done
"#;

/// A server process. Dropping it ends the process and waits for it.
pub struct Process(Child);

impl Process {
    /// Starts `program`, which must stay in the foreground; its output goes to `log`.
    pub fn start(program: &Path, args: &[&str], log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).expect("the temporary folder is ours");
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(program).args(args).stdin(Stdio::piped());
        command.stdout(log.try_clone().expect("a file can be cloned")).stderr(log);
        Self(command.spawn().expect("there is a shell"))
    }

    /// Ends the process and waits until it is gone.
    pub async fn stop(mut self) {
        drop(self.0.stdin.take());
        until("a server to end", async || self.0.try_wait().expect("our own child")).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // If waiting for the script fails, nothing else is left to do.
        let _ = self.0.wait();
    }
}

/// Waits until a server listens on `port` of loopback.
pub async fn wait_listening(what: &str, port: u16) {
    until(what, async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
}
