//! What a connection is for, and who reads what comes on it.

use super::settings::Reader;

/// What a connection is for: a large watch is never in the way of a small request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Answers that go on.
    Watches,
    /// Answers that end.
    Requests,
    /// One request alone, after which the connection speaks something else.
    Upgrade,
}

/// What a connection is for, and who reads what comes on it: callers have connections of their own, so that nothing that
/// they do or leave undone meets an informer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    pub(super) role: Role,
    pub(super) reader: Reader,
}

impl Purpose {
    /// What informers read that goes on.
    pub(super) const INFORMERS_WATCHES: Self = Self { role: Role::Watches, reader: Reader::Informer };

    /// All but upgrades, which have their connections made for them.
    pub(super) const SHARED: [Self; 4] = [
        Self { role: Role::Requests, reader: Reader::Informer },
        Self::INFORMERS_WATCHES,
        Self { role: Role::Requests, reader: Reader::Caller },
        Self { role: Role::Watches, reader: Reader::Caller },
    ];
}
