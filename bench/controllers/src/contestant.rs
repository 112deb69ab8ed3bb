//! A library's controller, as the measurement has it.

use std::sync::Arc;

use crate::work::Work;

/// What ends a program before its time.
pub type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// A library's controller of the config maps in `default`, at work until it is dropped.
pub trait Contestant: Sized + Send + Sync + 'static {
    /// One whose calls, so many at a time, are `work`; there are `keys` objects, `map-0` and so on.
    ///
    /// # Errors
    ///
    /// It cannot be begun.
    fn start(config: kube::Config, keys: usize, concurrency: usize, work: Arc<Work>) -> Result<Self, Trouble>;

    /// Has all objects called for once more.
    ///
    /// # Errors
    ///
    /// It has ended.
    fn all(&self) -> Result<(), Trouble>;
}
