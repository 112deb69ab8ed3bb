//! One reference for all scenarios of a program: it takes seconds to start, and its scenarios live in namespaces.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{Mutex, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::Error;
use crate::reference::Reference;

/// The one that runs, for as long as somebody has it.
static SHARED: Mutex<Weak<Shared>> = Mutex::const_new(Weak::new());

struct Shared {
    reference: Arc<RwLock<Reference>>,
    /// Whether a scenario left it in a state that nobody knows.
    spoiled: AtomicBool,
}

impl Shared {
    async fn start() -> Result<Self, Error> {
        let reference =
            Reference::start().await?.ok_or("STEADFAST_SERVER=reference, and the reference is not built")?;
        Ok(Self { reference: Arc::new(RwLock::new(reference)), spoiled: AtomicBool::new(false) })
    }
}

/// A place at the shared reference: beside others, or alone with it.
pub(super) struct Lease {
    // Before what it is of: the last lease ends the reference.
    held: Held,
    shared: Arc<Shared>,
    returned: bool,
}

enum Held {
    Beside(OwnedRwLockReadGuard<Reference>),
    Alone(OwnedRwLockWriteGuard<Reference>),
}

impl Lease {
    /// A place at the reference, which is started where none runs; `alone` for whoever breaks it.
    pub(super) async fn take(alone: bool) -> Result<Self, Error> {
        loop {
            let shared = running().await?;
            let reference = shared.reference.clone();
            let held = if alone {
                Held::Alone(reference.write_owned().await)
            } else {
                Held::Beside(reference.read_owned().await)
            };
            if !shared.spoiled.load(Ordering::Acquire) {
                return Ok(Self { held, shared, returned: false });
            }
        }
    }

    /// A reference that nobody else has or will have.
    pub(super) async fn own() -> Result<Self, Error> {
        let shared = Arc::new(Shared::start().await?);
        let held = Held::Alone(shared.reference.clone().write_owned().await);
        Ok(Self { held, shared, returned: false })
    }

    /// The reference, for who is alone with it.
    pub(super) fn alone(&mut self) -> Result<&mut Reference, Error> {
        match &mut self.held {
            Held::Alone(reference) => Ok(reference),
            Held::Beside(_) => Err("a scenario that shares the reference must not break it".into()),
        }
    }

    /// It is whole, and others may have it.
    pub(super) fn give_back(mut self) {
        self.returned = true;
    }
}

impl Deref for Lease {
    type Target = Reference;

    fn deref(&self) -> &Reference {
        match &self.held {
            Held::Alone(reference) => reference,
            Held::Beside(reference) => reference,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.returned && matches!(self.held, Held::Alone(_)) {
            self.shared.spoiled.store(true, Ordering::Release);
        }
    }
}

async fn running() -> Result<Arc<Shared>, Error> {
    let mut current = SHARED.lock().await;
    if let Some(shared) = current.upgrade().filter(|shared| !shared.spoiled.load(Ordering::Acquire)) {
        return Ok(shared);
    }
    let shared = Arc::new(Shared::start().await?);
    *current = Arc::downgrade(&shared);
    Ok(shared)
}
