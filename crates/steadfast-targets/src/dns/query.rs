//! Queries to a server: the whole zone, or the records of one name.

use domain::base::Name;
use domain::base::iana::Rtype;

use super::contents::TransferredZone;
use super::error::DnsOperation;
use super::record::RecordData;

/// Query that may be repeated at another address if an address does not respond.
#[derive(Clone, Copy)]
pub(super) enum ZoneQuery<'a> {
    /// Transfer of the whole zone.
    Transfer,
    /// The records of one name and type.
    Records(&'a Name<Vec<u8>>, Rtype),
}

impl ZoneQuery<'_> {
    pub(super) fn operation(self) -> DnsOperation {
        match self {
            Self::Transfer => DnsOperation::Transfer,
            Self::Records(..) => DnsOperation::Query,
        }
    }
}

/// Response to a [`ZoneQuery`].
pub(super) enum Response {
    Transfer(TransferredZone),
    /// Records, and the serial number if requested.
    Records(Vec<RecordData>, Option<u32>),
}

impl Response {
    pub(super) fn transferred_zone(self) -> TransferredZone {
        match self {
            Self::Transfer(contents) => contents,
            Self::Records(..) => TransferredZone::default(),
        }
    }

    pub(super) fn records(self) -> (Vec<RecordData>, Option<u32>) {
        match self {
            Self::Transfer(_) => (Vec::new(), None),
            Self::Records(records, serial) => (records, serial),
        }
    }
}
