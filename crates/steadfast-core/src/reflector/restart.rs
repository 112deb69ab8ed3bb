//! Start of a reflector from a checkpoint. If the server is known to be of the same cluster, the watch resumes from the
//! version of the checkpoint, as after a broken stream (R4). Otherwise a list is compared with the checkpoint.

use std::sync::Arc;

use super::list_plan::ListPlan;
use super::{Diagnostic, Output, Reflector};
use crate::freshness::Condition;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Relation of the server to the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterMatch {
    /// The server belongs to the cluster of the checkpoint.
    Same,
    /// The cluster cannot be determined. A list is correct in either case and shows the changes.
    Unsure(Arc<str>),
    /// The server belongs to another cluster, in which a cached version may denote another state.
    Other(Arc<str>),
}

/// Cause of the doubt about a restored cache.
const KEPT: &str = "kept by an earlier run of this program; the server has not confirmed it yet";

impl Reflector {
    /// Records that the store contains a checkpoint up to `version`. The cache is not fresh yet.
    /// [`Input::Restart`](super::Input::Restart) must follow instead of a start.
    pub fn restore(&mut self, now: Instant, version: ResourceVersion) {
        self.synced = true;
        self.hold(now, version);
        self.search.broken(now);
        self.set_condition(now, Condition::Resuming, KEPT);
    }

    /// Starts from the checkpoint.
    pub(super) fn restart(&mut self, now: Instant, begun: ClusterMatch, out: &mut Vec<Output>) {
        if !self.is_idle() {
            return;
        }
        self.delta_policy.begin(now);
        // A list would set the time of the first audit, but a list may never be needed.
        self.audit_later(now, None);
        match begun {
            ClusterMatch::Same => self.watch(now, out),
            ClusterMatch::Unsure(why) => {
                out.push(Output::Diagnostic(Diagnostic::NotRestored { why: why.clone() }));
                self.set_condition(now, Condition::Resuming, why);
                self.queue(ListPlan::first(), out);
            }
            ClusterMatch::Other(why) => {
                out.push(Output::Diagnostic(Diagnostic::NotRestored { why: why.clone() }));
                self.set_condition(now, Condition::Stale, why);
                self.queue(ListPlan::new_epoch(), out);
            }
        }
    }
}
