//! The clauses of the contract.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Clause of the informer contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Clause {
    /// Identity is the UID.
    C1,
    /// Nothing final is lost.
    C2,
    /// Order.
    C3,
    /// No time travel.
    C4,
    /// Old and new.
    C5,
    /// Cache first.
    C6,
    /// One at a time.
    C7,
    /// Isolation.
    C8,
    /// Sync.
    C9,
    /// Freshness.
    C10,
    /// Convergence.
    C11,
    /// Read your writes.
    C12,
}

impl Clause {
    /// All clauses, in order.
    pub const ALL: [Self; 12] = [
        Self::C1,
        Self::C2,
        Self::C3,
        Self::C4,
        Self::C5,
        Self::C6,
        Self::C7,
        Self::C8,
        Self::C9,
        Self::C10,
        Self::C11,
        Self::C12,
    ];

    /// Returns the clause's title.
    pub fn title(self) -> &'static str {
        match self {
            Self::C1 => "identity is the UID",
            Self::C2 => "nothing final is lost",
            Self::C3 => "order",
            Self::C4 => "no time travel",
            Self::C5 => "old and new",
            Self::C6 => "cache first",
            Self::C7 => "one at a time",
            Self::C8 => "isolation",
            Self::C9 => "sync",
            Self::C10 => "freshness",
            Self::C11 => "convergence",
            Self::C12 => "read your writes",
        }
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?} ({})", self.title())
    }
}
