//! Mirrors: sinks that are made equal to the results of rules for all objects, instead of receiving changes.
//!
//! Entries derive from caches and not from events, so that a missed event leaves no wrong entries. A stale cache
//! affects only
//! entries of the cluster, and an object with unknown entries affects only entries of the object. Affected entries stay
//! unchanged.

mod approvals;
mod cause;
mod claim;
mod collect;
pub(crate) mod constants;
mod credentials;
mod driver;
pub(crate) mod drivers;
mod entry;
mod feed;
pub(crate) mod grouping;
mod keeper;
mod open;
mod slices;
mod task;
mod view;

pub use approvals::Approvals;
pub use driver::{MAX_LISTED, MirrorStanding, Seen};
pub use feed::{Feed, ViewSource};
pub use keeper::{How, Play, previewed};
pub use open::Openings;
pub use task::MirrorTask;
pub use view::View;
