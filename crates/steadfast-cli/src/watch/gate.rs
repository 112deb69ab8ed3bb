//! Gate before the lines of an informer: `--since` prints the history first.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Gate, closed at first. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    /// `None` while the gate is closed.
    opened: Mutex<Option<OpenGate>>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct OpenGate {
    replayed: Option<u64>,
}

impl Gate {
    /// Opens the gate. `replayed` is the newest version whose changes were printed as history.
    pub(super) fn open(&self, replayed: Option<u64>) {
        *self.0.opened.lock() = Some(OpenGate { replayed });
        self.0.changed.notify_all();
    }

    /// Blocks until the gate is open. Returns the newest version whose changes were printed as history.
    pub(super) fn wait(&self) -> Option<u64> {
        let mut opened = self.0.opened.lock();
        loop {
            match *opened {
                Some(open) => return open.replayed,
                None => self.0.changed.wait(&mut opened),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_blocks_until_opened() {
        let gate = Gate::default();
        let (waiting, (sender, receiver)) = (gate.clone(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || sender.send(waiting.wait()));
        assert!(receiver.try_recv().is_err(), "closed");
        gate.open(Some(7));
        assert_eq!(receiver.recv(), Ok(Some(7)));
        assert!(thread.join().is_ok());
        assert_eq!(gate.wait(), Some(7));
    }
}
