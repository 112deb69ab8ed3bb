//! Interface of a library's controller for the measurement.

use std::sync::Arc;

use crate::work::Work;

/// Error that ends a program early.
pub type BenchError = Box<dyn std::error::Error + Send + Sync>;

/// Controller of one library for the config maps in the namespace `default`. It runs until it is dropped.
pub trait ControllerUnderTest: Sized + Send + Sync + 'static {
    /// Starts the controller with `concurrency` concurrent reconciles. Each reconcile runs `work`. `objects`
    /// is the number of objects, which are named `map-0`, `map-1` and so on.
    ///
    /// # Errors
    ///
    /// Returns an error if the controller cannot be started.
    fn start(config: kube::Config, objects: usize, concurrency: usize, work: Arc<Work>) -> Result<Self, BenchError>;

    /// Enqueues all objects once more.
    ///
    /// # Errors
    ///
    /// Returns an error if the controller has ended.
    fn enqueue_all(&self) -> Result<(), BenchError>;
}
