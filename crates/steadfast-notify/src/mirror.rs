//! Mirrors: sinks that are made equal to the results of rules for all objects, instead of receiving changes.
//!
//! Entries derive from caches and not from events, so that a missed event leaves no wrong entries. A stale cache
//! affects only the entries of its cluster. If the entries of an object are unknown, only the entries of this object
//! are affected. Affected entries stay unchanged.

mod approvals;
mod claim;
mod collect;
pub(crate) mod constants;
mod credentials;
mod driver;
pub(crate) mod drivers;
mod entry;
mod feed;
pub(crate) mod grouping;
mod input;
mod manager;
mod open;
mod slices;
mod supervised_mirror;
mod term_barrier;

pub use approvals::Approvals;
pub use driver::{MAX_LISTED, MirrorPreview, MirrorSinkStatus};
pub use feed::{MirrorFeed, MirrorInputSource};
pub use input::MirrorInput;
pub use manager::{DryRunCallback, MirrorContext, preview_mirrors};
pub use open::OpenedMirrors;
pub use supervised_mirror::SupervisedMirror;
