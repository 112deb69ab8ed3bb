//! Mirrors: sinks that are made equal to what rules send of the whole cluster, and do not only hear of changes.
//!
//! The entries come from the informers' caches and not from events, so that no missed event leaves a target wrong. A cache that is
//! uncertain concerns the entries of its cluster only, and an object whose entries are not known concerns its own entries only: these stay.

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
