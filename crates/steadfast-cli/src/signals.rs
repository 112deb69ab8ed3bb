//! Being told to stop.

use crate::failure::Failure;

/// Ready when the program is told to stop: Ctrl-C, or the signal by which services are ended.
pub(crate) struct Stop {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    /// Begins to listen; from here on the signals end the program only where they are waited for.
    pub(crate) fn listen() -> Result<Self, Failure> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let terminate = signal(SignalKind::terminate())
                .map_err(|error| Failure::run(format!("signals cannot be listened to: {error}")))?;
            Ok(Self { terminate })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the signal.
    pub(crate) async fn told(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            // Where Ctrl-C cannot be listened to, it ends the program as it always does.
            Ok(()) = tokio::signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}
