//! Connection requirements of a request.

use super::purpose::Purpose;
use super::settings::Placement;

/// Connection requirements of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacementRequest {
    purpose: Purpose,
    placement: Placement,
}

impl PlacementRequest {
    /// Number of combinations of a shared purpose and a placement.
    pub(super) const COUNT: usize = Purpose::SHARED.len() * Placement::ALL.len();

    /// Returns all values in order of service, informers first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Purpose::SHARED
            .into_iter()
            .flat_map(|purpose| Placement::ALL.into_iter().map(move |placement| Self { purpose, placement }))
    }

    /// Returns the index in [`PlacementRequest::all`].
    pub(super) fn index(self) -> usize {
        let Some(index) = Self::all().position(|placement_request| placement_request == self) else {
            unreachable!("an upgrade uses a dedicated connection and never waits for a slot")
        };
        index
    }

    /// Creates the requirements of a request for `purpose`.
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
