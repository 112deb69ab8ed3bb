//! One mirror: what is wanted goes in, and its status comes out.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::entry::{Target, Value, Wanted};
use crate::memory::Memory;
use crate::settings::Settings;
use crate::status::Status;
use crate::work::{Orders, Work};

/// A mirror at work. Dropped, it stops where it is; the next one finds the steps that are missing.
#[derive(Debug)]
pub struct Mirror<V> {
    orders: watch::Sender<Orders<V>>,
    status: watch::Receiver<Status<V>>,
    task: JoinHandle<()>,
}

impl<V: Value> Mirror<V> {
    /// Starts to keep `target` as it is wanted. Nothing is changed before the first [`want`](Self::want), but leases are renewed.
    /// What no restart may lose is kept in `memory` under `name`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start<T: Target<Value = V>>(name: &str, target: T, settings: Settings, memory: Memory) -> Self {
        let (orders, received) = watch::channel(Orders { wanted: None, is_over: false, nudges: 0 });
        let (told, status) = watch::channel(Status::default());
        let work = Work::new(name, target, settings, memory, told);
        let task = tokio::spawn(work.supervise(received));
        Self { orders, status, task }
    }

    /// Sets what is wanted from now on.
    pub fn want(&self, wanted: Wanted<V>) {
        self.orders.send_if_modified(|orders| {
            // Removals that need approval may be excused by now: their objects may be gone.
            let is_new = orders.wanted.as_deref() != Some(&wanted) || !self.status.borrow().asks.is_empty();
            orders.wanted = Some(Arc::new(wanted));
            is_new
        });
    }

    /// Has the mirror look at its target now.
    pub fn nudge(&self) {
        self.orders.send_modify(|orders| orders.nudges += 1);
    }

    /// Returns the status when the mirror last looked.
    pub fn status(&self) -> watch::Receiver<Status<V>> {
        self.status.clone()
    }

    /// Ends the mirror: the steps in flight are finished, and no others are taken.
    pub async fn stop(self) {
        self.orders.send_modify(|orders| orders.is_over = true);
        // A task that panicked has been reported already.
        drop((self.task).await);
    }
}
