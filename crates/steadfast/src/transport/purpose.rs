//! Purpose of a connection.

use super::settings::Reader;

/// Role of a connection, so that a large watch never blocks a small request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Endless responses.
    Watches,
    /// Finite responses.
    Requests,
    /// A single request, followed by a protocol upgrade.
    Upgrade,
}

/// Purpose of a connection and reader of its responses. Callers use separate connections, so that a slow caller never
/// blocks an informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    pub(super) role: Role,
    pub(super) reader: Reader,
}

impl Purpose {
    /// Watches of informers.
    pub(super) const INFORMERS_WATCHES: Self = Self { role: Role::Watches, reader: Reader::Informer };

    /// All purposes except upgrades, which use dedicated connections.
    pub(super) const SHARED: [Self; 4] = [
        Self { role: Role::Requests, reader: Reader::Informer },
        Self::INFORMERS_WATCHES,
        Self { role: Role::Requests, reader: Reader::Caller },
        Self { role: Role::Watches, reader: Reader::Caller },
    ];
}
