//! Identifiers of message types.

/// Message type of an object: its index in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub(super) u16);

impl MessageId {
    /// Returns the message type at an index of the table ([`place`](Self::place)).
    pub(crate) fn at(place: u16) -> Self {
        Self(place)
    }

    /// Returns the index in the table.
    pub(crate) fn place(self) -> u16 {
        self.0
    }
}
