//! Message types of the built-in kinds.

/// Message type of an object: its index in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageType(pub(super) u16);

impl MessageType {
    /// Returns the message type at an index of the table ([`index`](Self::index)).
    pub(crate) fn at(index: u16) -> Self {
        Self(index)
    }

    /// Returns the index in the table.
    pub(crate) fn index(self) -> u16 {
        self.0
    }
}
