//! A target that is only played: what would be done is told in the words of the real one, which is never asked.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use crate::entry::{Found, Step, Target};

/// Plays `target`: nothing is there at first, and then what was put there.
pub struct Rehearsal<T: Target> {
    target: T,
    own: Mutex<BTreeMap<String, T::Value>>,
    say: Box<dyn Fn(Vec<String>) + Send + Sync>,
}

impl<T: Target> Rehearsal<T> {
    /// Tells `say` what would be done to `target`.
    pub fn new(target: T, say: impl Fn(Vec<String>) + Send + Sync + 'static) -> Self {
        Self { target, own: Mutex::default(), say: Box::new(say) }
    }

    fn found(&self) -> Found<T::Value> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Found { own, others: BTreeSet::new(), busy: BTreeSet::new() }
    }
}

impl<T: Target> Target for Rehearsal<T> {
    type Value = T::Value;
    type Error = Infallible;

    async fn look(&self) -> Result<Found<T::Value>, Infallible> {
        Ok(self.found())
    }

    async fn act(&self, steps: &[Step<T::Value>]) -> Result<(), Infallible> {
        (self.say)(self.target.describe(&self.found(), steps));
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        for step in steps {
            match step {
                Step::Add { name, value } | Step::Change { name, to: value, .. } => {
                    own.insert(name.clone(), value.clone());
                }
                Step::Remove { name, .. } => drop(own.remove(name)),
            }
        }
        Ok(())
    }

    fn describe(&self, found: &Found<T::Value>, steps: &[Step<T::Value>]) -> Vec<String> {
        self.target.describe(found, steps)
    }

    fn settle(&self, wanted: &mut BTreeMap<String, T::Value>) -> BTreeMap<String, String> {
        self.target.settle(wanted)
    }
}
