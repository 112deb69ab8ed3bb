//! Which message something is.

/// The message that an object is: its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub(super) u16);

impl MessageId {
    /// The message at a [`place`](Self::place).
    pub(crate) fn at(place: u16) -> Self {
        Self(place)
    }

    /// Its place in the table.
    pub(crate) fn place(self) -> u16 {
        self.0
    }
}
