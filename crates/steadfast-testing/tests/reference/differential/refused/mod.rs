//! Requests that servers reject, and similar valid requests.

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
