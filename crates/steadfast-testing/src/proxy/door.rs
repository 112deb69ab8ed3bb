//! A port that can be closed and opened again.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use steadfast_apiserver::Port;
use tokio::net::{TcpListener, TcpStream};

/// A port that can be closed and opened again; while it is closed, connections are refused.
pub(super) struct Door {
    port: Port,
    state: Mutex<DoorState>,
}

#[derive(Default)]
struct DoorState {
    listener: Listening,
    waiting: Option<Waker>,
}

#[derive(Default)]
enum Listening {
    #[default]
    Closed,
    /// The kernel accepts; the runtime does not know of it yet.
    Opened(std::net::TcpListener),
    Served(TcpListener),
}

impl Door {
    pub(super) fn open() -> io::Result<Self> {
        let port = Port::reserve(0)?;
        let listener = Listening::Opened(port.listen()?);
        Ok(Self { port, state: Mutex::new(DoorState { listener, waiting: None }) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Opens or closes it; done when this returns.
    pub(super) fn set_open(&self, open: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match (open, &state.listener) {
            (false, _) => state.listener = Listening::Closed,
            (true, Listening::Closed) => {
                state.listener = Listening::Opened(self.port.listen().expect("the port is reserved for this"));
            }
            (true, _) => {}
        }
        if let Some(waiting) = state.waiting.take() {
            waiting.wake();
        }
    }

    pub(super) async fn accept(&self) -> io::Result<TcpStream> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting = Some(context.waker().clone());
        if let Listening::Opened(_) = &state.listener
            && let Listening::Opened(listener) = std::mem::take(&mut state.listener)
        {
            state.listener = Listening::Served(TcpListener::from_std(listener)?);
        }
        match &state.listener {
            Listening::Served(listener) => listener.poll_accept(context).map_ok(|(near, _)| near),
            _ => Poll::Pending,
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("address", &self.address()).finish_non_exhaustive()
    }
}
