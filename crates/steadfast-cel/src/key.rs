//! Keys of computed maps.

use std::cmp::Ordering;

use crate::text::Text;

/// Key of a map: a bool, an integer or a string. Equal integers are equal keys, signed or not.
#[derive(Clone, Debug)]
pub(crate) enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

impl Key<'_> {
    // Equal integers of both types must be one key, so the rank separates kinds, not types.
    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) | Self::Uint(_) => 1,
            Self::String(_) => 2,
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Int(one), Self::Int(other)) => one.cmp(other),
            (Self::Uint(one), Self::Uint(other)) => one.cmp(other),
            (Self::Int(one), Self::Uint(other)) => i128::from(*one).cmp(&i128::from(*other)),
            (Self::Uint(one), Self::Int(other)) => i128::from(*one).cmp(&i128::from(*other)),
            (Self::String(one), Self::String(other)) => (**one).cmp(&**other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}
