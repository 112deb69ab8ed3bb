//! The terminal: entered and restored, and its keys.

use std::io;
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc::{Receiver, channel};

use crate::failure::Failure;

/// Interval between two checks of the key thread for the end of the screen.
const KEY_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum number of keys that are pending. The terminal keeps further keys.
const MAX_PENDING_KEYS: usize = 64;

/// The terminal in full-screen mode. The previous screen returns when this is dropped, and also on a panic.
pub(super) struct Screen {
    pub(super) terminal: DefaultTerminal,
}

impl Screen {
    /// Shows an empty screen without echo of keys.
    pub(super) fn enter() -> Result<Self, Failure> {
        let terminal = ratatui::try_init().map_err(|error| {
            ratatui::restore();
            failure(&error)
        })?;
        Ok(Self { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Starts the thread that reads keys and resizes. The thread ends after the receiver was dropped.
pub(super) fn read_keys() -> Result<Receiver<io::Result<Event>>, Failure> {
    let (sender, receiver) = channel(MAX_PENDING_KEYS);
    let read = move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_POLL_INTERVAL) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let is_end = event.is_err();
            if sender.blocking_send(event).is_err() || is_end {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".to_owned()).spawn(read).map_err(Failure::run)?;
    Ok(receiver)
}

/// Returns the failure of the terminal.
pub(super) fn failure(error: &io::Error) -> Failure {
    Failure::run(format!("the terminal cannot be used: {error}"))
}
