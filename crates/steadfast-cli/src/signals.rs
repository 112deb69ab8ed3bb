//! Requests to stop the program, or to read its configuration again.

use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::aside;
use crate::failure::Failure;

/// Time after the deadline of a shutdown in which the program ends on its own.
const EXIT_GRACE: Duration = Duration::from_millis(600);

/// Time after a second signal in which the program ends on its own.
const SECOND_SIGNAL_GRACE: Duration = Duration::from_millis(200);

/// Ready when the program is requested to stop: Ctrl-C, or the signal by which services are ended.
pub(crate) struct Stop {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    /// Starts to listen; from here on the signals end the program only where they are awaited.
    pub(crate) fn listen() -> Result<Self, Failure> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let interrupt = signal(SignalKind::interrupt()).map_err(|error| deaf(&error))?;
            let terminate = signal(SignalKind::terminate()).map_err(|error| deaf(&error))?;
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

/// Requests to stop with a deadline that holds whatever hangs.
///
/// The signals are received by a thread of its own, which ends the process if that has not ended in time: all threads of the
/// program's runtime may be blocked, and then none of its timers and signals works.
pub(crate) struct GuardedStop {
    requests: UnboundedReceiver<()>,
    begin: UnboundedSender<()>,
}

impl GuardedStop {
    /// Starts to listen. The process ends at the latest `deadline` and a grace of 600 ms after the first request, and 200 ms
    /// after the second one.
    pub(crate) fn listen(deadline: Duration) -> Result<Self, Failure> {
        let (send, requests) = unbounded_channel();
        let (begin, started) = unbounded_channel();
        let (ready, is_ready) = mpsc::channel();
        let guard = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(deaf(&error)))),
            };
            runtime.block_on(async move {
                match Stop::listen() {
                    Ok(stop) => {
                        let _ = ready.send(Ok(()));
                        watch_over(stop, started, send, deadline).await;
                    }
                    Err(failure) => drop(ready.send(Err(failure))),
                }
            });
        };
        thread::Builder::new().name("signals".to_owned()).spawn(guard).map_err(|error| deaf(&error))?;
        is_ready.recv().map_err(|error| deaf(&error))??;
        Ok(Self { requests, begin })
    }

    /// Waits for the next request.
    pub(crate) async fn told(&mut self) {
        if self.requests.recv().await.is_none() {
            // The thread has ended, which it does with the process alone.
            std::future::pending::<()>().await;
        }
    }

    /// Starts the deadline without a signal.
    pub(crate) fn begin(&self) {
        let _ = self.begin.send(());
    }
}

async fn watch_over(mut stop: Stop, mut started: UnboundedReceiver<()>, send: UnboundedSender<()>, deadline: Duration) {
    tokio::select! {
        () = stop.told() => drop(send.send(())),
        Some(()) = started.recv() => {}
    }
    let why = tokio::select! {
        () = stop.told() => {
            let _ = send.send(());
            sleep(SECOND_SIGNAL_GRACE).await;
            "ended at once by a second signal".to_owned()
        }
        () = sleep(deadline.saturating_add(EXIT_GRACE)) => {
            let seconds = deadline.as_secs();
            format!("the shutdown took longer than the {seconds} s of --drain; ended without waiting for what hangs")
        }
    };
    aside::say(format_args!("error: {why}"));
    process::exit(i32::from(crate::failure::RUN));
}

fn deaf(error: &dyn std::fmt::Display) -> Failure {
    Failure::run(format!("cannot listen to signals: {error}"))
}

/// Ready when the program is requested to read its configuration again.
pub(crate) struct Again {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl Again {
    /// Starts to listen; from here on the signal does not end the program.
    pub(crate) fn listen() -> Result<Self, Failure> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self { hangup: signal(SignalKind::hangup()).map_err(|error| deaf(&error))? })
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
