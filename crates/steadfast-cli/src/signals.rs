//! Being requested to stop, or to read the configuration anew.

use crate::failure::Failure;

/// Ready when the program is requested to stop: Ctrl-C, or the signal by which services are ended.
pub(crate) struct Stop {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    /// Begins to listen; from here on the signals end the program only where they are waited for.
    pub(crate) fn listen() -> Result<Self, Failure> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let deaf = |error| Failure::run(format!("signals cannot be listened to: {error}"));
            let interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
            let terminate = signal(SignalKind::terminate()).map_err(deaf)?;
            Ok(Self { interrupt, terminate })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the signal.
    pub(crate) async fn told(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Ready when the program is requested to read its configuration anew.
pub(crate) struct Again {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl Again {
    /// Begins to listen; from here on the signal does not end the program.
    pub(crate) fn listen() -> Result<Self, Failure> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let deaf = |error| Failure::run(format!("signals cannot be listened to: {error}"));
            Ok(Self { hangup: signal(SignalKind::hangup()).map_err(deaf)? })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the signal.
    pub(crate) async fn told(&mut self) {
        #[cfg(unix)]
        self.hangup.recv().await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}
