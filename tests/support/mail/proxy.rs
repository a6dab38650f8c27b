//! A TCP proxy between a client and a server.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A proxy that forwards data in both directions until it is frozen.
pub struct Proxy {
    port: u16,
    /// True while the proxy forwards data of the connections made so far.
    flows: Arc<Mutex<watch::Sender<bool>>>,
    connections: watch::Receiver<usize>,
    server: AbortHandle,
}

impl Proxy {
    /// Starts the proxy in front of the server on `target`, a port of loopback.
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let flows = Arc::new(Mutex::new(watch::Sender::new(true)));
        let (count, connections) = watch::channel(0);
        let current = Arc::clone(&flows);
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // If the server is down, the proxy closes the connection, as the server would.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await {
                    let flow = current.lock().subscribe();
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::spawn(hand_on(from_client, to_server, flow.clone()));
                    tokio::spawn(hand_on(from_server, to_client, flow));
                    count.send_modify(|count| *count += 1);
                }
            }
        });
        Self { port, flows, connections, server: server.abort_handle() }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Freezes the existing connections: no data passes, and they stay open. Later connections work.
    pub fn freeze(&self) {
        let mut flows = self.flows.lock();
        flows.send_replace(false);
        // The frozen connections keep their receivers. Dropping the sender would wake them.
        std::mem::forget(std::mem::replace(&mut *flows, watch::Sender::new(true)));
    }

    /// Waits, without a time limit, until there have been more than `count` connections.
    pub async fn next_connection(&self, count: usize) {
        self.connections.clone().wait_for(|n| *n > count).await.expect("the proxy lives");
    }

    pub fn connections(&self) -> usize {
        *self.connections.borrow()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn hand_on(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, mut flow: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            biased;
            () = frozen(&mut flow) => std::future::pending().await,
            read = from.read(&mut buffer) => read,
        };
        let Ok(count @ 1..) = read else { return };
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Returns when the proxy forwards no more data.
async fn frozen(flow: &mut watch::Receiver<bool>) {
    if flow.wait_for(|flows| !flows).await.is_err() {
        std::future::pending::<()>().await;
    }
}
