//! Dry-run target: reports the commands for the real target, and never contacts it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use parking_lot::Mutex;

use crate::entry::{ActualState, Step, Target};

/// Simulated `target` that is empty at first and then has the applied entries.
pub struct DryRun<T: Target> {
    target: T,
    simulated_entries: Mutex<BTreeMap<String, T::Value>>,
    on_commands: Box<dyn Fn(Vec<String>) + Send + Sync>,
}

impl<T: Target> DryRun<T> {
    /// Creates a dry run of `target`. `on_commands` receives the commands that would be sent.
    pub fn new(target: T, on_commands: impl Fn(Vec<String>) + Send + Sync + 'static) -> Self {
        Self { target, simulated_entries: Mutex::default(), on_commands: Box::new(on_commands) }
    }

    fn simulated_state(&self) -> ActualState<T::Value> {
        let own = self.simulated_entries.lock().clone();
        ActualState { own, others: BTreeSet::new(), busy: BTreeSet::new() }
    }
}

impl<T: Target> Target for DryRun<T> {
    type Value = T::Value;
    type Error = Infallible;

    async fn read(&self) -> Result<ActualState<T::Value>, Infallible> {
        Ok(self.simulated_state())
    }

    async fn apply(&self, steps: &[Step<T::Value>]) -> Result<(), Infallible> {
        (self.on_commands)(self.target.describe(&self.simulated_state(), steps));
        let mut simulated_entries = self.simulated_entries.lock();
        for step in steps {
            match step {
                Step::Add { name, value } | Step::Change { name, to: value, .. } => {
                    simulated_entries.insert(name.clone(), value.clone());
                }
                Step::Remove { name, .. } => drop(simulated_entries.remove(name)),
            }
        }
        Ok(())
    }

    fn describe(&self, found: &ActualState<T::Value>, steps: &[Step<T::Value>]) -> Vec<String> {
        self.target.describe(found, steps)
    }

    fn validate(&self, desired: &mut BTreeMap<String, T::Value>) -> BTreeMap<String, String> {
        self.target.validate(desired)
    }
}
