//! Questions to a server: all of a zone, or the records of one name.

use domain::base::Name;
use domain::base::iana::Rtype;

use super::contents::Contents;
use super::error::Asked;
use super::record::Data;

/// A question that may be sent to another address when one does not respond.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    /// All of the zone.
    Transfer,
    /// The records of one name and type.
    Records(&'a Name<Vec<u8>>, Rtype),
}

impl Question<'_> {
    pub(super) fn asked(self) -> Asked {
        match self {
            Self::Transfer => Asked::Transfer,
            Self::Records(..) => Asked::Query,
        }
    }
}

/// Response to a [`Question`].
pub(super) enum Response {
    Contents(Contents),
    /// The records, and the serial number, if it is among them.
    Records(Vec<Data>, Option<u32>),
}

impl Response {
    pub(super) fn contents(self) -> Contents {
        match self {
            Self::Contents(contents) => contents,
            Self::Records(..) => Contents::default(),
        }
    }

    pub(super) fn records(self) -> (Vec<Data>, Option<u32>) {
        match self {
            Self::Contents(_) => (Vec::new(), None),
            Self::Records(records, serial) => (records, serial),
        }
    }
}
