//! Reactor without sockets. It checks that one thread at a time drives it, and no thread after its shutdown.

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::sync::{Condvar, Mutex};
use steadfast_executor::{Reactor, ReactorHandle};

/// Callback of a socket event, such as a wake-up of a task.
type SocketEvent = Box<dyn FnOnce() + Send>;

/// Reactor of a test.
pub(crate) struct SimulatedReactor(Sockets);

/// Handle of a [`SimulatedReactor`], through which a test delivers socket events.
#[derive(Clone, Default)]
pub(crate) struct Sockets(Arc<Simulation>);

#[derive(Default)]
struct Simulation {
    state: Mutex<SimulationState>,
    changed: Condvar,
}

#[derive(Default)]
struct SimulationState {
    events: VecDeque<SocketEvent>,
    is_interrupted: bool,
    is_driven: bool,
    is_shut_down: bool,
}

impl SimulatedReactor {
    pub(crate) fn new() -> (Self, Sockets) {
        let sockets = Sockets::default();
        (Self(sockets.clone()), sockets)
    }

    /// Serves events. Returns after an interrupt, or as soon as no event is ready.
    fn serve(&self, sleeps: bool) {
        let Simulation { state, changed } = &*self.0.0;
        let mut locked = state.lock().expect("no panic under the lock");
        assert!(!locked.is_driven, "two threads drive the reactor");
        assert!(!locked.is_shut_down, "a thread drives the reactor after its shutdown");
        locked.is_driven = true;
        loop {
            if sleeps && std::mem::take(&mut locked.is_interrupted) {
                break;
            }
            if let Some(event) = locked.events.pop_front() {
                drop(locked);
                event();
                locked = state.lock().expect("no panic under the lock");
            } else if sleeps {
                locked = changed.wait(locked).expect("no panic under the lock");
            } else {
                break;
            }
        }
        locked.is_driven = false;
    }
}

impl Sockets {
    /// Makes an event ready for the thread that drives the reactor.
    pub(crate) fn deliver(&self, event: impl FnOnce() + Send + 'static) {
        self.0.state.lock().expect("no panic under the lock").events.push_back(Box::new(event));
        self.0.changed.notify_all();
    }

    /// Waits until the reactor is shut down.
    pub(crate) fn wait_for_shutdown(&self) {
        let state = self.0.state.lock().expect("no panic under the lock");
        drop(self.0.changed.wait_while(state, |state| !state.is_shut_down).expect("no panic under the lock"));
    }
}

impl Reactor for SimulatedReactor {
    type Handle = Sockets;

    fn handle(&self) -> Sockets {
        self.0.clone()
    }

    fn serve_until_interrupted(&self) {
        self.serve(true);
    }

    fn serve_ready(&self) {
        self.serve(false);
    }

    fn shut_down(self) {
        let mut state = self.0.0.state.lock().expect("no panic under the lock");
        assert!(!state.is_driven, "the reactor is shut down while a thread drives it");
        state.is_shut_down = true;
        drop(state);
        self.0.0.changed.notify_all();
    }
}

impl ReactorHandle for Sockets {
    fn interrupt(&self) {
        self.0.state.lock().expect("no panic under the lock").is_interrupted = true;
        self.0.changed.notify_all();
    }

    fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        poll()
    }
}
