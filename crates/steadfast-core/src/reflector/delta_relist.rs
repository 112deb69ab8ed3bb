//! Relists by difference: metadata of the whole collection, and in full only the objects that differ from the cache.
//!
//! After `410 Expired` everything must be listed, although often almost nothing has changed. Metadata cost a server a
//! half to a third of whole objects. They arrive in pages at one version V, with the UID and version of each object. A
//! cached object with equal UID and version equals the object in a full list, and stays unchanged. A cached object that
//! is missing from the metadata has ended. All other listed objects are requested by name at version V, and their
//! responses must have the listed UID and version. The commit is therefore the collection at V, as for a full list.
//! Both groups are limited. Each differing object costs a request. A large number of ended objects is not accepted from
//! a list of metadata alone.
//!
//! This method only saves cost. Any unexpected content leads to a full list. Requests that an overloaded server delays
//! are repeated for a limited time, since a full list would cost that server more.

use std::sync::Arc;

use super::delta::{Delta, Fetch};
use super::failure::LONGEST_RETRY_AFTER;
use super::list_plan::ListPlan;
use super::{Diagnostic, Failure, FailureKind, ListFrom, Next, Output, Phase, Reflector, Request, RequestId, Verdict};
use crate::freshness::Condition;
use crate::record::{Identity, ListMeta};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Number of objects that are requested at once.
const AT_ONCE: usize = 4;

/// Cause of a rejected list of metadata.
const NOT_OF_ONE_VERSION: &str = "a list of metadata is not of one version that can be compared";

impl Reflector {
    /// Returns whether the list `plan` should be made by difference.
    pub(super) fn spares(&self, now: Instant, plan: &ListPlan) -> bool {
        // Opaque versions and unresolved unnamed records rule the method out: metadata could not be
        // compared with the cache.
        plan.by_difference.is_some_and(|until| now < until)
            && self.synced
            && self.unnamed.is_at_rest()
            && matches!(&plan.from, ListFrom::NotOlderThan(version) if version.is_ordered())
            && self.delta_policy.is_worth_it(now, self.evidence.proven)
    }

    /// Disables lists by difference until `until`, after another informer of the resource detected that metadata are
    /// not available.
    pub fn list_in_full_until(&mut self, until: Instant) {
        self.delta_policy.full_until = Some(until);
    }

    /// Requests metadata instead of a full list.
    pub(super) fn begin_delta(&mut self, now: Instant, plan: ListPlan, out: &mut Vec<Output>) {
        out.push(Output::BeginStaging { anew: false });
        self.phase = Phase::DeltaListing(Delta::begun(now, plan, &self.delta_policy, self.settings.delta_within));
        self.send_metadata(None, out);
    }

    fn send_metadata(&mut self, continue_token: Option<String>, out: &mut Vec<Output>) {
        let (id, limit) = (self.next_id(), self.settings.page_size);
        let Phase::DeltaListing(delta) = &mut self.phase else { return };
        // `opened` distinguishes silence from a failed response of the current request.
        (delta.page, delta.opened) = (Some(id), false);
        out.push(Output::Send(id, Request::Metadata { from: delta.plan.from.clone(), limit, continue_token }));
    }

    /// Returns whether `id` is a request of a list by difference.
    pub(super) fn is_sparing(&self, id: RequestId) -> bool {
        matches!(&self.phase, Phase::DeltaListing(delta) if delta.has(id))
    }

    pub(super) fn delta_opened(&mut self, now: Instant) {
        let Phase::DeltaListing(delta) = &mut self.phase else { return };
        delta.opened = true;
        delta.comes(now);
    }

    /// Processes an entry of a page of metadata, or an object that was requested by name.
    pub(super) fn delta_item(&mut self, now: Instant, id: RequestId, identity: &Identity) -> Verdict {
        let Phase::DeltaListing(delta) = &mut self.phase else { return Verdict::Skip };
        delta.comes(now);
        if delta.page == Some(id) {
            delta.listed += 1;
            self.paging.brings(&identity.version);
            if identity.uid.is_given() && identity.version.is_ordered() {
                return Verdict::Offer;
            }
            let why = format!("{} came without a UID and a version to compare", identity.key);
            return self.undo(now, why);
        }
        let Some(fetch) = delta.requested.iter_mut().find(|fetch| fetch.id == id) else { return Verdict::Skip };
        // Exactly the listed state counts, and only once. A list by name must not contain a second
        // object.
        if fetch.wanted == *identity && !std::mem::replace(&mut fetch.came, true) {
            return Verdict::Stage;
        }
        let why = format!("{} was requested as it was at a version, and came as another state", fetch.wanted.key);
        self.undo(now, why)
    }

    fn undo(&mut self, now: Instant, why: String) -> Verdict {
        let mut out = Vec::new();
        self.list_all(now, why.into(), &mut out);
        Verdict::Do(out)
    }

    /// Processes [`super::Input::Differs`]: the listed object differs from the cached one.
    pub(super) fn differs(&mut self, now: Instant, id: RequestId, identity: Identity, out: &mut Vec<Output>) {
        let Phase::DeltaListing(delta) = &mut self.phase else { return };
        if delta.page != Some(id) {
            return;
        }
        delta.count += 1;
        let (count, most) = (delta.count, delta.most);
        // Field selectors treat `,`, `=` and `!` as syntax, so a name with these characters needs a
        // full list.
        let odd = !is_plain(identity.key.name()) || !identity.key.namespace().is_none_or(is_plain);
        delta.different.push(identity);
        if count > most {
            self.list_all(now, format!("more than {most} objects differ from the cache").into(), out);
        } else if odd {
            self.list_all(now, "an object has a name that no field selector takes".into(), out);
        }
    }

    /// Handles a complete page of metadata, or a complete response for an object.
    pub(super) fn delta_ended(&mut self, now: Instant, id: RequestId, meta: ListMeta, out: &mut Vec<Output>) {
        let Phase::DeltaListing(delta) = &mut self.phase else { return };
        delta.comes(now);
        if delta.page == Some(id) {
            delta.page = None;
            return self.metadata_came(now, meta, out);
        }
        let Some(place) = delta.requested.iter().position(|fetch| fetch.id == id) else { return };
        let Fetch { wanted, came, .. } = delta.requested.swap_remove(place);
        if came {
            self.request_different(now, out);
        } else {
            // An exact read at the listed version must contain the object. An empty response
            // contradicts the metadata.
            self.list_all(now, format!("{} was listed, and was not to be had as it was then", wanted.key).into(), out);
        }
    }

    fn metadata_came(&mut self, now: Instant, meta: ListMeta, out: &mut Vec<Output>) {
        let Phase::DeltaListing(delta) = &self.phase else { return };
        let first = delta.version.clone();
        let version = meta.version.filter(ResourceVersion::is_ordered);
        let same = first.is_none() || first == version;
        // Metadata below the cached version could revive deleted objects.
        let older = |version: &ResourceVersion| self.reached().is_some_and(|held| version.is_older_than(held));
        let Some(version) = version.filter(|version| same && !older(version)) else {
            return self.list_all(now, NOT_OF_ONE_VERSION.into(), out);
        };
        if let Phase::DeltaListing(delta) = &mut self.phase {
            delta.version = Some(version);
        }
        let Some(token) = meta.continue_token else { return self.metadata_complete(now, out) };
        match self.paging.turn(&token) {
            Ok(()) => self.send_metadata(Some(token), out),
            Err(why) => self.list_all(now, why.into(), out),
        }
    }

    /// Handles complete metadata. If many cached objects are missing, a full list must confirm it. A server that
    /// returns only a version instead of metadata would otherwise end all cached objects.
    fn metadata_complete(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Phase::DeltaListing(delta) = &self.phase else { return };
        if delta.lacks_too_many() {
            let most = delta.most;
            self.list_all(
                now,
                format!("more than {most} objects that are held are not among the metadata").into(),
                out,
            );
        } else {
            self.request_different(now, out);
        }
    }

    /// Requests the differing objects, a few at once, unless the server requested a delay. Commits after the last one.
    fn request_different(&mut self, now: Instant, out: &mut Vec<Output>) {
        // The order of these requests is irrelevant: staging sorts by key at the commit.
        while let Phase::DeltaListing(delta) = &mut self.phase
            && delta.page.is_none()
            && delta.not_before.is_none()
            && delta.requested.len() < AT_ONCE
            && let (Some(version), Some(wanted)) = (delta.version.clone(), delta.different.pop())
        {
            let id = self.next_id();
            out.push(Output::Send(id, Request::State { key: wanted.key.clone(), version }));
            if let Phase::DeltaListing(delta) = &mut self.phase {
                delta.requested.push(Fetch { id, wanted, came: false });
                delta.opened = false;
            }
        }
        let Phase::DeltaListing(delta) = &self.phase else { return };
        // Delayed requests return to `different`, so both collections are empty only at the end.
        if !delta.different.is_empty() || delta.requests().next().is_some() {
            return;
        }
        let (plan, version, count) = (delta.plan.clone(), delta.version.clone(), delta.count);
        if self.commit(now, &plan, version, Some(count), out) {
            self.set_streaming(now);
            self.watch_or_poll(now, out);
        }
    }

    /// Abandons the differences and requests a full list: at once, unless the server has requested a delay.
    pub(super) fn list_all(&mut self, now: Instant, why: Arc<str>, out: &mut Vec<Output>) {
        let Phase::DeltaListing(delta) = &self.phase else { return };
        delta.abandon(out);
        out.push(Output::Diagnostic(Diagnostic::ListingAll { why }));
        let (plan, not_before) = (ListPlan { by_difference: None, ..delta.plan.clone() }, delta.not_before);
        // Without this pause, every relist would pay for the metadata and for the full list.
        self.delta_policy.full_until = Some(self.for_a_while(now));
        if let Some(until) = not_before.filter(|until| now < *until) {
            // A delayed list must not block the transfers of other informers.
            out.push(Output::ReleaseTransfer);
            self.phase = Phase::Waiting { until, then: Next::List(plan), unreachable: false };
        } else {
            // The transfer permit is still held, so the full list starts without queueing again.
            self.phase = Phase::Queued(plan);
            self.begin_list(now, out);
        }
    }

    /// Returns the time until which a failed method is remembered at `now`.
    fn for_a_while(&mut self, now: Instant) -> Instant {
        let lasting = self.settings.pages_for;
        now + self.random.between(lasting, lasting + lasting / 10)
    }

    /// Handles a failed request. A rejection leads to a full list at once; a requested delay is respected.
    pub(super) fn delta_failed(&mut self, now: Instant, id: RequestId, failure: &Failure, out: &mut Vec<Output>) {
        let Phase::DeltaListing(delta) = &mut self.phase else { return };
        let place = delta.requested.iter().position(|fetch| fetch.id == id);
        let fetch = place.map(|place| delta.requested.swap_remove(place));
        if fetch.is_none() {
            delta.page = None;
        }
        let is_first = delta.version.is_none();
        let put_off =
            failure.asks_for_patience() || matches!(failure.kind, FailureKind::TooLarge | FailureKind::Unreachable);
        match (failure.kind, fetch) {
            // The version of the metadata was compacted: the remaining objects cannot be read at
            // this version.
            (FailureKind::Expired | FailureKind::Unreadable, _) => self.list_all(now, failure.why.clone(), out),
            (_, fetch) if failure.is_refusal() => {
                // A permission differs between clients, so other informers must not inherit it. A resource or a page's
                // token may also be missing only temporarily.
                if !matches!(failure.code, 401 | 403 | 404) && (fetch.is_some() || is_first) {
                    let until = self.for_a_while(now);
                    out.push(Output::RememberFull { until });
                }
                self.list_all(now, failure.why.clone(), out);
            }
            (_, Some(fetch)) if put_off => self.put_off(now, fetch, failure, out),
            // A lagging server concerns the whole list, as for a full transfer (R5).
            (FailureKind::TooLarge, None) => {
                let plan = self.drop_delta(out);
                self.lagging(now, plan, failure, out);
            }
            _ => self.leave_delta(now, failure, out),
        }
    }

    /// Repeats the request of an object later, because the server requested a delay or has not reached the version of
    /// the metadata.
    fn put_off(&mut self, now: Instant, fetch: Fetch, failure: &Failure, out: &mut Vec<Output>) {
        let Phase::DeltaListing(delta) = &mut self.phase else { return };
        delta.different.push(fetch.wanted);
        if now.since(*delta.put_off_since.get_or_insert(now)) >= self.settings.list_patience {
            return self.leave_delta(now, failure, out);
        }
        if let Some(until) = delta.not_before {
            // The failures of other requests in flight have the same cause and already set the delay.
            let asked = failure.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
            delta.not_before = Some(until.max(now + asked));
            return;
        }
        // Earlier proofs remain valid: the commit has a version that was read after the request of the list.
        self.set_condition(now, Condition::Resuming, failure.why.clone());
        let patience = self.backoff.fail(&mut self.random);
        let retry_in = self.delay(patience, failure.retry_after);
        let (why, attempts) = (failure.why.clone(), self.attempts());
        out.push(Output::Diagnostic(Diagnostic::Failed { why, attempts, retry_in }));
        if let Phase::DeltaListing(delta) = &mut self.phase {
            delta.not_before = Some(now + retry_in);
        }
    }

    /// Handles the timer: sends delayed requests again, or cancels a stalled list.
    pub(super) fn delta_due(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Phase::DeltaListing(delta) = &mut self.phase else { return };
        let again = delta.not_before.take_if(|until| now >= *until).is_some();
        if now >= delta.deadline {
            let seconds = self.settings.delta_within.as_secs();
            self.list_all(now, format!("the differing objects did not all arrive within {seconds} s").into(), out);
        } else if again {
            // No request was in flight during the delay, so the stall timer restarts here.
            if delta.requests().next().is_none() {
                delta.progress = now;
            }
            self.request_different(now, out);
        } else {
            let seconds = self.settings.list_patience.as_secs();
            let failure = Failure::unreachable(format!("no progress of the list for {seconds} s"));
            self.leave_delta(now, &failure, out);
        }
    }

    /// Abandons the differences as a failed list. The next list is full, unless the failure is independent of the
    /// differences.
    fn leave_delta(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        let Phase::DeltaListing(delta) = &self.phase else { return };
        // Without a response head, the failure is no evidence against the method.
        let unheard = failure.kind == FailureKind::Unreachable && !delta.opened;
        let again = (failure.asks_for_patience() || unheard) && delta.put_off_since.is_none();
        let patience = failure.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER) + self.settings.list_patience;
        let until = delta.plan.by_difference.filter(|_| again).map(|until| until.min(now + patience));
        // A delay that the server requested for one object applies to all.
        let asked = delta.not_before.map(|until| until.since(now));
        let failure = Failure { retry_after: failure.retry_after.max(asked), ..failure.clone() };
        let plan = ListPlan { by_difference: until, ..self.drop_delta(out) };
        self.set_broken(now, &failure);
        self.wait(now, &failure, Next::List(plan), out);
    }

    /// Cancels the requests in flight, and returns the full transfer that this list replaced.
    fn drop_delta(&mut self, out: &mut Vec<Output>) -> ListPlan {
        let Phase::DeltaListing(delta) = &self.phase else { return ListPlan::again(self.reached()) };
        delta.abandon(out);
        out.push(Output::ReleaseTransfer);
        delta.plan.clone()
    }
}

/// Returns whether a name can be used literally in a field selector and in a path.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    !name.is_empty() && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_names_are_detected() {
        assert!(["web-0", "system:node.a", "A_b"].into_iter().all(is_plain));
        assert!(!["", "a,b", "a=b", "a!", "a\\b", "a b", "ä"].into_iter().any(is_plain));
    }
}
