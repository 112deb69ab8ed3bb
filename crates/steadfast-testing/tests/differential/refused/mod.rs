//! Requests that no server takes, and some beside them that only look so.

mod bodies;
mod deletions;
mod objects;
mod options;
mod places;
mod types;

pub use bodies::bodies;
pub use deletions::deletions;
pub use objects::objects;
pub use options::options;
pub use places::places;
pub use types::{duplicates, types};
