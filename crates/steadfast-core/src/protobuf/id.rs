//! Which message something is.

/// The message that an object is: its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub(super) u16);
