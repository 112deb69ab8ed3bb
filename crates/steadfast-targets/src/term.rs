//! Permission to write. Of several replicas, only the leader has this permission, until the end of its term.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;

/// Term as the leader. Implementations need a clock that advances while the machine is suspended.
pub trait Term: Send + Sync + 'static {
    /// Returns true until the term ends.
    fn is_open(&self) -> bool;

    /// Returns a number above that of each earlier term of any replica. Targets compare these numbers.
    fn token(&self) -> u64;
}

/// Term that lasts until its gate is closed, with this number. For tests, and for processes whose leadership another
/// program controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnlimitedTerm(pub u64);

impl Term for UnlimitedTerm {
    fn is_open(&self) -> bool {
        true
    }

    fn token(&self) -> u64 {
        self.0
    }
}

/// Permission to write, which all tasks of one process share. Cheap to clone.
///
/// Without replicas the gate is always open. With replicas it is open during the [terms](Term) of this process.
#[derive(Clone, Default)]
pub struct TermGate(Option<watch::Receiver<Option<Arc<dyn Term>>>>);

/// Opens and closes a [`TermGate`].
pub struct TermKeeper(watch::Sender<Option<Arc<dyn Term>>>);

/// Permission from a [`TermGate`], valid until the end of its term. Cheap to clone.
#[derive(Clone, Default)]
pub struct WritePermit {
    term: Option<Arc<dyn Term>>,
    gate: TermGate,
}

/// Error of a write whose term ended before the write completed.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the term of this replica as the leader ended before the write was complete")]
pub struct TermEnded;

debug_as_message!(TermEnded);

impl TermKeeper {
    /// Creates a closed gate and its keeper.
    pub fn new() -> (Self, TermGate) {
        let (keeper, gate) = watch::channel(None);
        (Self(keeper), TermGate(Some(gate)))
    }

    /// Opens the gate until the end of `term`, or until it is [closed](Self::close).
    pub fn open(&self, term: Arc<dyn Term>) {
        self.0.send_replace(Some(term));
    }

    /// Closes the gate, and wakes all tasks that wait for the end of the term.
    pub fn close(&self) {
        self.0.send_replace(None);
    }
}

impl Drop for TermKeeper {
    /// Closes the gate: no task may write any more.
    fn drop(&mut self) {
        self.close();
    }
}

impl TermGate {
    /// Creates a gate that is always open, for a process without replicas.
    pub fn always() -> Self {
        Self(None)
    }

    /// Returns true if this process is a replica.
    pub fn is_replicated(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the permit of the current term.
    pub fn permit(&self) -> Option<WritePermit> {
        let term = match &self.0 {
            None => None,
            Some(gate) => Some(gate.borrow().clone().filter(|term| term.is_open())?),
        };
        Some(WritePermit { term, gate: self.clone() })
    }

    /// Waits until the gate is open. Never completes after the keeper was dropped.
    pub async fn opened(&self) -> WritePermit {
        let Some(mut gate) = self.0.clone() else { return WritePermit::default() };
        loop {
            gate.mark_unchanged();
            if let Some(permit) = self.permit() {
                return permit;
            }
            if gate.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl WritePermit {
    /// Returns true if the term has not ended yet.
    pub fn is_valid(&self) -> bool {
        self.term.as_ref().is_none_or(|term| term.is_open())
    }

    /// Returns the number of the term; 0 for a process without replicas.
    pub fn token(&self) -> u64 {
        self.term.as_ref().map_or(0, |term| term.token())
    }

    /// Waits until the keeper has closed the gate, or has opened it for another term. Never completes without replicas.
    pub async fn ended(&self) {
        let (Some(term), Some(mut gate)) = (&self.term, self.gate.0.clone()) else {
            return std::future::pending().await;
        };
        let is_other = |now: &Option<Arc<dyn Term>>| !now.as_ref().is_some_and(|now| Arc::ptr_eq(now, term));
        // A dropped keeper has closed the gate.
        let _ = gate.wait_for(is_other).await;
    }

    /// Runs `write` within the term.
    ///
    /// Before each poll of `write`, the end of the term is checked with the term's own clock. So a process that was
    /// suspended does not continue `write` after its term.
    ///
    /// # Errors
    ///
    /// Returns an error if the term ends before `write` completes. In this case, `write` is dropped.
    pub async fn run<T>(&self, write: impl Future<Output = T>) -> Result<T, TermEnded> {
        let mut write = pin!(write);
        let mut ended = pin!(self.ended());
        poll_fn(|context| {
            // The clock is checked before each poll of the write: after a suspension, it shows the end before the gate
            // does.
            if !self.is_valid() || ended.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(TermEnded));
            }
            write.as_mut().poll(context).map(Ok)
        })
        .await
    }
}

impl fmt::Debug for TermGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermGate").field("is_replicated", &self.is_replicated()).finish_non_exhaustive()
    }
}

impl fmt::Debug for TermKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermKeeper").finish_non_exhaustive()
    }
}

impl fmt::Debug for WritePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WritePermit").field("token", &self.token()).field("is_valid", &self.is_valid()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Term that the test ends.
    struct EndableTerm(Arc<AtomicBool>);

    impl Term for EndableTerm {
        fn is_open(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }

        fn token(&self) -> u64 {
            7
        }
    }

    #[tokio::test(start_paused = true)]
    async fn write_stops_at_end_of_term() {
        let (keeper, gate) = TermKeeper::new();
        assert!(gate.permit().is_none());
        let is_open = Arc::new(AtomicBool::new(true));
        keeper.open(Arc::new(EndableTerm(is_open.clone())));
        let permit = gate.opened().await;
        assert_eq!(permit.token(), 7);
        assert_eq!(format!("{permit:?}"), "WritePermit { token: 7, is_valid: true }");
        let mut steps = 0;
        let write = async {
            loop {
                steps += 1;
                if steps == 3 {
                    // Simulates a suspend of the process here, beyond the end of its term.
                    is_open.store(false, Ordering::SeqCst);
                }
                tokio::task::yield_now().await;
            }
        };
        let written: Result<(), TermEnded> = permit.run(write).await;
        assert_eq!((written, steps), (Err(TermEnded), 3));
        assert!(gate.permit().is_none(), "the term is over, though the keeper has not noticed");
    }

    #[tokio::test(start_paused = true)]
    async fn closed_gate_drops_writes_in_flight() {
        let (keeper, gate) = TermKeeper::new();
        keeper.open(Arc::new(UnlimitedTerm(7)));
        let permit = gate.opened().await;
        let write = permit.run(std::future::pending::<()>());
        let (written, ()) = tokio::join!(write, async { keeper.close() });
        assert_eq!(written, Err(TermEnded));
        assert_eq!(TermGate::always().opened().await.run(async { 5 }).await, Ok(5), "no replicas, no term");
    }
}
