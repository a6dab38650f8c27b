//! Reserves loopback ports for servers whose port must be known before their start.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// A port for one server among all tests on this machine. It is below the range that the kernel assigns, and the UDP port
/// of the same number marks it as taken. A port that was only probed might belong to another test by the time of its use,
/// and the wrong server would answer.
pub struct Port {
    pub number: u16,
    _claim: UdpSocket,
}

impl Port {
    pub fn claim() -> Self {
        const FIRST: u32 = 10_000;
        const COUNT: u32 = 20_000;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..COUNT {
            let place = std::process::id().wrapping_mul(7).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let number = u16::try_from(FIRST + place % COUNT).expect("it is below 30,000");
            if let Ok(claim) = UdpSocket::bind(("127.0.0.1", number))
                && TcpListener::bind(("127.0.0.1", number)).is_ok()
            {
                return Self { number, _claim: claim };
            }
        }
        panic!("no port is free on loopback")
    }
}
