//! Wall clock, as an argument so that tests can set the time.

use std::sync::Arc;

use steadfast::k8s_openapi::jiff::Timestamp;

/// Function that returns the wall-clock time.
pub(crate) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
