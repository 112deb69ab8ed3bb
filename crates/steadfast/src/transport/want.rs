//! What a request wants of the connection that carries it.

use super::purpose::Purpose;
use super::settings::Placement;

/// What a request wants of the connection that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Want {
    purpose: Purpose,
    placement: Placement,
}

impl Want {
    /// How many there are.
    pub(super) const COUNT: usize = Purpose::SHARED.len() * Placement::ALL.len();

    /// All there are, in the order in which they are served: informers' first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Purpose::SHARED
            .into_iter()
            .flat_map(|purpose| Placement::ALL.into_iter().map(move |placement| Self { purpose, placement }))
    }

    /// Its place in [`Want::all`].
    pub(super) fn index(self) -> usize {
        let Some(index) = Self::all().position(|want| want == self) else {
            unreachable!("an upgrade has its connection made for it, and waits for no place")
        };
        index
    }

    /// What a request for `purpose` wants.
    pub(super) fn new(purpose: Purpose, placement: Placement) -> Self {
        Self { purpose, placement }
    }

    pub(super) fn purpose(self) -> Purpose {
        self.purpose
    }

    pub(super) fn placement(self) -> Placement {
        self.placement
    }
}
