//! Requests that servers reject, and similar valid requests.

mod bodies;
mod deletions;
mod objects;
mod options;
mod paths;
mod types;

pub use bodies::add_invalid_body;
pub use deletions::add_odd_deletion;
pub use objects::add_invalid_object;
pub use options::add_odd_options;
pub use paths::add_invalid_path;
pub use types::{add_duplicate_fields, add_wrong_type};
