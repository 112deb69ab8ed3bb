//! What a member tells those who ask it: which keys are its own, and by which client it acts on them.

use std::sync::Arc;

use steadfast::ObjectKey;
use steadfast::environment::SharedEnvironment;
use tokio::sync::watch;

use super::super::office::Term;
use super::membership::Part;

/// How a member stands.
#[derive(Clone, Default)]
pub(super) struct Standing {
    /// Counts the changes.
    pub(super) number: u64,
    pub(super) part: Option<Arc<Part>>,
    /// By which it acts on that part: both change together.
    pub(super) term: Option<Arc<Term>>,
    /// Once nothing is tried any more: whether the lease was released.
    pub(super) over: Option<bool>,
}

impl Standing {
    /// The term to act in on `key`, by what is known; whether its time is over is not looked at.
    pub(super) fn term_for(&self, key: &ObjectKey) -> Option<&Arc<Term>> {
        let (part, term) = (self.part.as_ref()?, self.term.as_ref()?);
        part.owns(key).then_some(term)
    }
}

/// A member, as its handles and what works for it share it.
pub(super) struct Office {
    pub(super) environment: SharedEnvironment,
    pub(super) namespace: String,
    pub(super) group: String,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) standing: watch::Sender<Standing>,
    pub(super) stopping: watch::Sender<bool>,
}
