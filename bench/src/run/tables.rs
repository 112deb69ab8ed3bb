//! Tables in Markdown.

pub(super) mod faults;
pub(super) mod measurements;
