//! Permissions of the client, and entries whose object the client cannot identify.

use std::time::Duration;

use steadfast_core::Instant;
use steadfast_core::random::Random;
use steadfast_core::reflector::{Request, RequestId};

use super::{Arrivals, ScheduledAction, Server};

/// Permissions and unidentified entries. The separate random numbers keep the other faults of a seed.
pub(super) struct Access {
    random: Random,
    /// Set if records and list entries may be unidentified in this run.
    hides_objects: bool,
    forbids_watches: bool,
    forbids_lists: bool,
}

impl Access {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xACCE);
        Self { hides_objects: random.fraction() < 0.3, random, forbids_watches: false, forbids_lists: false }
    }

    pub(super) fn end_faults(&mut self) {
        (self.forbids_watches, self.forbids_lists) = (false, false);
    }

    /// Returns whether the next record or list entry is unidentified.
    pub(super) fn hides_next(&mut self, injects_faults: bool) -> bool {
        self.hides_objects && injects_faults && self.random.fraction() < 0.04
    }

    /// Returns whether the server rejects the request with 403. A streamed list is a watch.
    pub(super) fn forbids(&self, request: &Request) -> bool {
        match request {
            Request::State { .. } => false,
            request if request.is_stream() => self.forbids_watches,
            _ => self.forbids_lists,
        }
    }
}

impl Server {
    /// Returns whether the cache may lack objects until a list without unidentified entries.
    pub(crate) fn hides_objects(&self) -> bool {
        self.access.hides_objects
    }

    /// Grants and revokes the permissions for watches and for lists.
    pub(super) fn change_permissions(&mut self, now: Instant, out: &mut Arrivals) {
        if !self.injects_faults {
            return;
        }
        let random = &mut self.access.random;
        let pause = random.between(Duration::from_secs(2), Duration::from_secs(120));
        (self.access.forbids_watches, self.access.forbids_lists) = match random.draw() % 10 {
            0..=2 => (true, false),
            3 | 4 => (false, true),
            5 => (true, true),
            _ => (false, false),
        };
        self.schedule(now + pause, ScheduledAction::ChangePermissions);
        if self.access.forbids_watches {
            // An open stream would continue until its end.
            let open = self.requests.iter().filter(|(_, pending)| pending.open);
            let open: Vec<RequestId> = open.map(|(id, _)| *id).collect();
            self.cut(&open, out);
        }
    }
}
