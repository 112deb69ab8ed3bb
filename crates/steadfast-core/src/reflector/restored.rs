//! How a reflector begins with what an earlier life of its program has kept: as after a stream that broke, from the version
//! that was held (R4), where it is known that the server is of the same cluster; and with a list that is compared with what
//! was kept, where it is not.

use std::sync::Arc;

use super::full::Full;
use super::{Note, Output, Reflector};
use crate::freshness::Condition;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// What is known of the server that goes on where an earlier life of the program has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is of the cluster of which the cache was.
    Same,
    /// It cannot be told whether it is: a list is right in either case, and shows what has changed.
    Unsure(Arc<str>),
    /// It is of another one, in which a version held may represent another state.
    Other(Arc<str>),
}

/// Why what was kept is not fresh.
const KEPT: &str = "kept by an earlier run of this program; the server has not confirmed it yet";

impl Reflector {
    /// The store has what was kept, up to `version`. Nothing is fresh by that, and [`Input::Restart`](super::Input::Restart) is
    /// to follow in place of a start.
    pub fn restore(&mut self, now: Instant, version: ResourceVersion) {
        self.synced = true;
        self.hold(now, version);
        self.search.broken(now);
        self.set_condition(now, Condition::Resuming, KEPT);
    }

    /// Goes on from what was kept.
    pub(super) fn restart(&mut self, now: Instant, begun: Begun, out: &mut Vec<Output>) {
        if !self.is_idle() {
            return;
        }
        self.sparing.begin(now);
        // A list would have set the time of the first audit, and there may never be one.
        self.audit_later(now, None);
        match begun {
            Begun::Same => self.watch(now, out),
            Begun::Unsure(why) => {
                out.push(Output::Note(Note::NotRestored { why: why.clone() }));
                self.set_condition(now, Condition::Resuming, why);
                self.queue(Full::first(), out);
            }
            Begun::Other(why) => {
                out.push(Output::Note(Note::NotRestored { why: why.clone() }));
                self.set_condition(now, Condition::Stale, why);
                self.queue(Full::new_epoch(), out);
            }
        }
    }
}
