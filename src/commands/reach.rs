//! The gateway of a home: the one that runs, or the home itself where none does.

use std::time::Duration;

use crate::control::ControlClient;
use crate::home::{Home, HomeLock, LockError};

/// How often, and after how long, a gateway that holds the home is asked again while it starts or stops.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Who answers for the home.
pub enum Reach {
    /// A gateway runs and answers on its control socket.
    Running(ControlClient),
    /// None runs; the home is ours for as long as the lock lives.
    Alone(HomeLock),
}

impl Reach {
    /// Finds out. A gateway that is starting or stopping is waited for, for some seconds.
    ///
    /// # Errors
    /// The home is held and nobody answers, or cannot be locked.
    pub async fn find(home: &Home) -> anyhow::Result<Self> {
        let client = ControlClient::new(&home.socket())?;
        let mut looks = 0;
        loop {
            let held = match home.lock() {
                Ok(lock) => return Ok(Self::Alone(lock)),
                Err(held @ LockError::Held { .. }) => held,
                Err(error) => return Err(error.into()),
            };
            match client.get("/healthz").await {
                Ok(_) => return Ok(Self::Running(client)),
                Err(error) if looks >= LOOKS => {
                    return Err(anyhow::Error::from(held).context(format!("{error:#}")));
                }
                Err(_) => looks += 1,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
