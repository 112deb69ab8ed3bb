//! Guards of one reference server that all scenarios of a process share. The server takes seconds to start, so
//! scenarios share it and use separate namespaces.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{Mutex, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::TestkitError;
use crate::reference::Reference;

/// The running reference server, while at least one guard of it exists.
static SHARED_REFERENCE: Mutex<Weak<SharedReference>> = Mutex::const_new(Weak::new());

struct SharedReference {
    reference: Arc<RwLock<Reference>>,
    /// True if a scenario left the server in an unknown state.
    is_damaged: AtomicBool,
}

impl SharedReference {
    async fn start() -> Result<Self, TestkitError> {
        let reference =
            Reference::start().await?.ok_or("STEADFAST_SERVER=reference, and the reference is not built")?;
        Ok(Self { reference: Arc::new(RwLock::new(reference)), is_damaged: AtomicBool::new(false) })
    }
}

/// Guard of a reference server, shared or exclusive.
pub(super) struct ReferenceGuard {
    // Declared before `shared`, so that the lock is released first. Dropping the last `shared` ends the server.
    lock: ReferenceLock,
    shared: Arc<SharedReference>,
    is_intact: bool,
}

enum ReferenceLock {
    Shared(OwnedRwLockReadGuard<Reference>),
    Exclusive(OwnedRwLockWriteGuard<Reference>),
}

impl ReferenceGuard {
    /// Creates a guard of the running server, or of a new one if none is running. A scenario that injects faults
    /// needs an exclusive guard (`exclusive`).
    pub(super) async fn acquire(exclusive: bool) -> Result<Self, TestkitError> {
        // Between the lookup and the lock, the holder of an exclusive guard may have damaged the server. The loop then
        // starts another one.
        loop {
            let shared = shared_reference().await?;
            let reference = shared.reference.clone();
            let lock = if exclusive {
                ReferenceLock::Exclusive(reference.write_owned().await)
            } else {
                ReferenceLock::Shared(reference.read_owned().await)
            };
            // `Acquire` pairs with the store in `drop`, which precedes the release of the lock.
            if !shared.is_damaged.load(Ordering::Acquire) {
                return Ok(Self { lock, shared, is_intact: false });
            }
        }
    }

    /// Starts a reference server that no other guard can share, now or later.
    pub(super) async fn unshared() -> Result<Self, TestkitError> {
        // Not stored in `SHARED_REFERENCE`, so no other scenario can find this server.
        let shared = Arc::new(SharedReference::start().await?);
        let lock = ReferenceLock::Exclusive(shared.reference.clone().write_owned().await);
        Ok(Self { lock, shared, is_intact: false })
    }

    /// Returns the reference of an exclusive guard.
    pub(super) fn exclusive(&mut self) -> Result<&mut Reference, TestkitError> {
        match &mut self.lock {
            ReferenceLock::Exclusive(reference) => Ok(reference),
            ReferenceLock::Shared(_) => Err("a scenario that shares the reference must not break it".into()),
        }
    }

    /// Marks the server as intact, so that other scenarios may use it.
    pub(super) fn mark_intact(mut self) {
        self.is_intact = true;
    }
}

impl Deref for ReferenceGuard {
    type Target = Reference;

    fn deref(&self) -> &Reference {
        match &self.lock {
            ReferenceLock::Exclusive(reference) => reference,
            ReferenceLock::Shared(reference) => reference,
        }
    }
}

impl Drop for ReferenceGuard {
    fn drop(&mut self) {
        // A panic or an early return skips `mark_intact`. The holder of a shared guard cannot break the server.
        if !self.is_intact && matches!(self.lock, ReferenceLock::Exclusive(_)) {
            self.shared.is_damaged.store(true, Ordering::Release);
        }
    }
}

async fn shared_reference() -> Result<Arc<SharedReference>, TestkitError> {
    // The lock is held during the start, so that concurrent scenarios do not start a server each.
    let mut stored = SHARED_REFERENCE.lock().await;
    if let Some(reference) = stored.upgrade().filter(|reference| !reference.is_damaged.load(Ordering::Acquire)) {
        return Ok(reference);
    }
    let reference = Arc::new(SharedReference::start().await?);
    // Only a `Weak` is stored: the last guard must be able to end the processes. A static `Arc` would never be dropped.
    *stored = Arc::downgrade(&reference);
    Ok(reference)
}
