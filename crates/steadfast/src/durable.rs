//! Handlers that acknowledge events. Unacknowledged events are delivered again, also after a restart of the process.
//!
//! | module | content |
//! |---|---|
//! | `event` | delivered events and statistics |
//! | `calls` | one handler: its pending deliveries, calls and retries |
//! | `all` | all handlers of one informer, including handlers of earlier runs |
//! | `registration` | registration and removal |
//!
//! `steadfast_core::outbox` determines the pending deliveries after each change; `checkpoint::partition` stores them.

mod all;
mod calls;
mod event;
mod registration;

pub(crate) use all::{DurableHandlers, OutboxRows, Rejected};
pub(crate) use calls::{Calls, Durable};
pub use event::{DurableEvent, DurablePosition, DurableStats};
pub use registration::{DurableBuilder, DurableRegistration};
