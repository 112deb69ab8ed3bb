//! Leases on one reference that all scenarios of a process share. A reference takes seconds to start, so scenarios use
//! separate namespaces.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{Mutex, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::TestkitError;
use crate::reference::Reference;

/// The running reference, while at least one lease on it exists.
static SHARED: Mutex<Weak<Shared>> = Mutex::const_new(Weak::new());

struct Shared {
    reference: Arc<RwLock<Reference>>,
    /// True if a scenario left the reference in an unknown state.
    is_damaged: AtomicBool,
}

impl Shared {
    async fn start() -> Result<Self, TestkitError> {
        let reference =
            Reference::start().await?.ok_or("STEADFAST_SERVER=reference, and the reference is not built")?;
        Ok(Self { reference: Arc::new(RwLock::new(reference)), is_damaged: AtomicBool::new(false) })
    }
}

/// Lease on the shared reference, shared or exclusive.
pub(super) struct Lease {
    // Declared before `shared`, which the lock protects: dropping the last lease ends the reference.
    held: LeaseGuard,
    shared: Arc<Shared>,
    returned: bool,
}

enum LeaseGuard {
    Shared(OwnedRwLockReadGuard<Reference>),
    Exclusive(OwnedRwLockWriteGuard<Reference>),
}

impl Lease {
    /// Takes a lease on the running reference, or on a new one if none is running. A scenario that injects faults
    /// needs an exclusive lease (`exclusive`).
    pub(super) async fn take(exclusive: bool) -> Result<Self, TestkitError> {
        // Between the lookup and the lock, an exclusive lease may have damaged the reference. The loop then starts
        // another one.
        loop {
            let shared = running().await?;
            let reference = shared.reference.clone();
            let held = if exclusive {
                LeaseGuard::Exclusive(reference.write_owned().await)
            } else {
                LeaseGuard::Shared(reference.read_owned().await)
            };
            // `Acquire` pairs with the store in `drop`, which precedes the release of the lock.
            if !shared.is_damaged.load(Ordering::Acquire) {
                return Ok(Self { held, shared, returned: false });
            }
        }
    }

    /// Starts a reference that is not shared, now or later.
    pub(super) async fn own() -> Result<Self, TestkitError> {
        // Not stored in `SHARED`, so no other scenario can find this reference.
        let shared = Arc::new(Shared::start().await?);
        let held = LeaseGuard::Exclusive(shared.reference.clone().write_owned().await);
        Ok(Self { held, shared, returned: false })
    }

    /// Returns the reference of an exclusive lease.
    pub(super) fn exclusive(&mut self) -> Result<&mut Reference, TestkitError> {
        match &mut self.held {
            LeaseGuard::Exclusive(reference) => Ok(reference),
            LeaseGuard::Shared(_) => Err("a scenario that shares the reference must not break it".into()),
        }
    }

    /// Marks the reference as intact, so that other scenarios may use it.
    pub(super) fn mark_intact(mut self) {
        self.returned = true;
    }
}

impl Deref for Lease {
    type Target = Reference;

    fn deref(&self) -> &Reference {
        match &self.held {
            LeaseGuard::Exclusive(reference) => reference,
            LeaseGuard::Shared(reference) => reference,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A panic or an early return skips `mark_intact`. Shared leases cannot break the reference.
        if !self.returned && matches!(self.held, LeaseGuard::Exclusive(_)) {
            self.shared.is_damaged.store(true, Ordering::Release);
        }
    }
}

async fn running() -> Result<Arc<Shared>, TestkitError> {
    // The lock is held during the start, so that concurrent scenarios do not start a reference each.
    let mut current = SHARED.lock().await;
    if let Some(shared) = current.upgrade().filter(|shared| !shared.is_damaged.load(Ordering::Acquire)) {
        return Ok(shared);
    }
    let shared = Arc::new(Shared::start().await?);
    // Only a weak reference is stored: the last lease must be able to end the processes. A static would never be
    // dropped.
    *current = Arc::downgrade(&shared);
    Ok(shared)
}
