//! Mirrors: sinks that are made equal to what rules send of the whole cluster, and do not only hear of changes.
//!
//! What is to be there comes from the informers' caches as they are, so that no event that was missed leaves the outside wrong. A cache
//! that is in doubt, or an object of which nobody knows what it means, puts the whole of it in doubt: then nothing is taken out.

mod approvals;
mod collect;
mod driver;
pub(crate) mod drivers;
mod entry;
mod keeper;
mod open;
mod view;

pub use approvals::Approvals;
pub use driver::{MirrorStanding, Seen};
pub use keeper::{How, Keeper, Play, previewed};
pub use open::Openings;
pub use view::View;
