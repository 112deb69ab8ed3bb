//! Requests to stop the program, or to read its configuration again.

use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::console;
use crate::failure::Failure;

/// Additional time for the program to end on its own, after the deadline of a shutdown.
const EXIT_GRACE: Duration = Duration::from_millis(600);

/// Time for the program to end on its own, after a second signal.
const SECOND_SIGNAL_GRACE: Duration = Duration::from_millis(200);

/// Receiver of requests to stop: SIGINT (Ctrl-C) and SIGTERM.
pub(crate) struct StopSignal {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl StopSignal {
    /// Installs the handlers. From here on the signals no longer end the process by default.
    pub(crate) fn listen() -> Result<Self, Failure> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let interrupt = signal(SignalKind::interrupt()).map_err(|error| listen_failure(&error))?;
            let terminate = signal(SignalKind::terminate()).map_err(|error| listen_failure(&error))?;
            Ok(Self { interrupt, terminate })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the signal.
    pub(crate) async fn received(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Receiver of requests to stop, with a deadline that holds even if the runtime is blocked.
///
/// A separate thread receives the signals and ends the process after the deadline. If all threads of the runtime are
/// blocked, the runtime's own timers and signal handlers do not work.
pub(crate) struct GuardedStopSignal {
    requests: UnboundedReceiver<()>,
    start_deadline_sender: UnboundedSender<()>,
}

impl GuardedStopSignal {
    /// Starts the thread. The process ends at the latest `deadline` plus 600 ms after the first request, and 200 ms
    /// after the second one.
    pub(crate) fn listen(deadline: Duration) -> Result<Self, Failure> {
        let (request_sender, requests) = unbounded_channel();
        let (start_deadline_sender, deadline_starts) = unbounded_channel();
        let (ready_sender, ready_receiver) = mpsc::channel();
        let run_guard = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready_sender.send(Err(listen_failure(&error)))),
            };
            runtime.block_on(async move {
                match StopSignal::listen() {
                    Ok(stop) => {
                        let _ = ready_sender.send(Ok(()));
                        end_in_time(stop, deadline_starts, request_sender, deadline).await;
                    }
                    Err(failure) => drop(ready_sender.send(Err(failure))),
                }
            });
        };
        thread::Builder::new().name("signals".to_owned()).spawn(run_guard).map_err(|error| listen_failure(&error))?;
        // Waits for the handlers: an earlier signal would end the process without a drain.
        ready_receiver.recv().map_err(|error| listen_failure(&error))??;
        Ok(Self { requests, start_deadline_sender })
    }

    /// Waits for the next request to stop.
    pub(crate) async fn received(&mut self) {
        if self.requests.recv().await.is_none() {
            // The thread ends only together with the process.
            std::future::pending::<()>().await;
        }
    }

    /// Starts the deadline without a signal.
    pub(crate) fn start_deadline(&self) {
        let _ = self.start_deadline_sender.send(());
    }
}

async fn end_in_time(
    mut stop: StopSignal,
    mut deadline_starts: UnboundedReceiver<()>,
    request_sender: UnboundedSender<()>,
    deadline: Duration,
) {
    tokio::select! {
        // Never blocks on the program: the channel is unbounded, and a blocked runtime reads nothing.
        () = stop.received() => drop(request_sender.send(())),
        Some(()) = deadline_starts.recv() => {}
    }
    let reason = tokio::select! {
        () = stop.received() => {
            let _ = request_sender.send(());
            sleep(SECOND_SIGNAL_GRACE).await;
            "ended at once by a second signal".to_owned()
        }
        () = sleep(deadline.saturating_add(EXIT_GRACE)) => {
            let seconds = deadline.as_secs();
            format!("the shutdown took longer than the {seconds} s of --drain; ended without waiting for what hangs")
        }
    };
    console::report(format_args!("error: {reason}"));
    // The process must exit here: after a return, a blocked runtime would prevent the end of the program.
    process::exit(i32::from(crate::failure::EXIT_FAILED));
}

fn listen_failure(error: &dyn std::fmt::Display) -> Failure {
    Failure::run(format!("cannot listen to signals: {error}"))
}

/// Receiver of requests to reload the configuration: SIGHUP.
pub(crate) struct ReloadSignal {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl ReloadSignal {
    /// Installs the handler. From here on the signal no longer ends the process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self { hangup: signal(SignalKind::hangup()).map_err(|error| listen_failure(&error))? })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the signal.
    pub(crate) async fn received(&mut self) {
        #[cfg(unix)]
        self.hangup.recv().await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}
