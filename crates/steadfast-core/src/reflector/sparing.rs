//! Relists by difference: metadata of the whole collection, and in full only what is not held as they list it.
//!
//! After `410 Expired` all has to be listed, though often next to nothing has changed. Metadata alone cost a server a half
//! to a third of what whole objects do. They come in pages at one version V, and say of each object its UID and version. What
//! is held with the same UID in the same version is what a full list would bring, and stays as it is; what they lack has
//! ended; whatever else they list is requested by its name, as it was at V, and has to come with the very UID and version
//! that they gave. So what is committed is the collection as it was at V, as by a full list. Neither may be many: what differs
//! costs a request each, and that much has ended is not believed of a list that nothing else is ever made from.
//!
//! This is for what it saves, and for nothing else: whatever is not as it should be ends in a full list. What a server in
//! trouble puts off is requested again when it may be, for a while: a full list would cost it more.

use std::sync::Arc;

use super::delta::{Delta, Fetch};
use super::failure::LONGEST_RETRY_AFTER;
use super::full::Full;
use super::{Failure, FailureKind, ListFrom, Next, Note, Output, Phase, Reflector, Request, RequestId, Verdict};
use crate::freshness::Condition;
use crate::record::{Identity, ListMeta};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// So many objects are requested at once.
const AT_ONCE: usize = 4;

/// Why what was requested as metadata does not do.
const NOT_OF_ONE_VERSION: &str = "a list of metadata is not of one version that can be compared";

impl Reflector {
    /// Whether the list `full` is to be made by difference.
    pub(super) fn spares(&self, now: Instant, full: &Full) -> bool {
        full.by_difference.is_some_and(|until| now < until)
            && self.synced
            && self.unnamed.is_at_rest()
            && matches!(&full.from, ListFrom::NotOlderThan(version) if version.is_ordered())
            && self.sparing.is_worth_it(now, self.evidence.proven)
    }

    /// Lists in full until then, as another informer of the resource has found that metadata alone are not to be had.
    pub fn list_in_full_until(&mut self, until: Instant) {
        self.sparing.full_until = Some(until);
    }

    /// Asks for metadata in place of a full list.
    pub(super) fn begin_delta(&mut self, now: Instant, full: Full, out: &mut Vec<Output>) {
        out.push(Output::BeginStaging { anew: false });
        self.phase = Phase::Sparing(Delta::begun(now, full, &self.sparing, self.settings.delta_within));
        self.send_metadata(None, out);
    }

    fn send_metadata(&mut self, continue_token: Option<String>, out: &mut Vec<Output>) {
        let (id, limit) = (self.next_id(), self.settings.page_size);
        let Phase::Sparing(delta) = &mut self.phase else { return };
        (delta.page, delta.opened) = (Some(id), false);
        out.push(Output::Send(id, Request::Metadata { from: delta.full.from.clone(), limit, continue_token }));
    }

    /// Whether `id` is a request of a list by difference.
    pub(super) fn is_sparing(&self, id: RequestId) -> bool {
        matches!(&self.phase, Phase::Sparing(delta) if delta.has(id))
    }

    pub(super) fn delta_opened(&mut self, now: Instant) {
        let Phase::Sparing(delta) = &mut self.phase else { return };
        delta.opened = true;
        delta.comes(now);
    }

    /// Takes in an entry of a page of metadata, or an object that was requested by its name.
    pub(super) fn delta_item(&mut self, now: Instant, id: RequestId, identity: &Identity) -> Verdict {
        let Phase::Sparing(delta) = &mut self.phase else { return Verdict::Skip };
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

    /// Takes in [`super::Input::Differs`]: what is listed is not what is held.
    pub(super) fn differs(&mut self, now: Instant, id: RequestId, identity: Identity, out: &mut Vec<Output>) {
        let Phase::Sparing(delta) = &mut self.phase else { return };
        if delta.page != Some(id) {
            return;
        }
        delta.count += 1;
        let (count, most) = (delta.count, delta.most);
        let odd = !is_plain(identity.key.name()) || !identity.key.namespace().is_none_or(is_plain);
        delta.different.push(identity);
        if count > most {
            self.list_all(now, format!("more than {most} objects differ from what is held").into(), out);
        } else if odd {
            self.list_all(now, "an object has a name that no field selector takes".into(), out);
        }
    }

    /// A page of metadata is complete, or an object that was requested.
    pub(super) fn delta_ended(&mut self, now: Instant, id: RequestId, meta: ListMeta, out: &mut Vec<Output>) {
        let Phase::Sparing(delta) = &mut self.phase else { return };
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
            self.list_all(now, format!("{} was listed, and was not to be had as it was then", wanted.key).into(), out);
        }
    }

    fn metadata_came(&mut self, now: Instant, meta: ListMeta, out: &mut Vec<Output>) {
        let Phase::Sparing(delta) = &self.phase else { return };
        let first = delta.version.clone();
        let version = meta.version.filter(ResourceVersion::is_ordered);
        let same = first.is_none() || first == version;
        let older = |version: &ResourceVersion| self.reached().is_some_and(|held| version.is_older_than(held));
        let Some(version) = version.filter(|version| same && !older(version)) else {
            return self.list_all(now, NOT_OF_ONE_VERSION.into(), out);
        };
        if let Phase::Sparing(delta) = &mut self.phase {
            delta.version = Some(version);
        }
        let Some(token) = meta.continue_token else { return self.metadata_complete(now, out) };
        match self.paging.turn(&token) {
            Ok(()) => self.send_metadata(Some(token), out),
            Err(why) => self.list_all(now, why.into(), out),
        }
    }

    /// All metadata are there. Where many objects are missing from them, whole objects are to say so: a server that makes no
    /// more of metadata than a version would end all that is held.
    fn metadata_complete(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Phase::Sparing(delta) = &self.phase else { return };
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

    /// Requests what differs, a few at once, unless the server asks for patience; once all is there, it is committed.
    fn request_different(&mut self, now: Instant, out: &mut Vec<Output>) {
        while let Phase::Sparing(delta) = &mut self.phase
            && delta.page.is_none()
            && delta.not_before.is_none()
            && delta.requested.len() < AT_ONCE
            && let (Some(version), Some(wanted)) = (delta.version.clone(), delta.different.pop())
        {
            let id = self.next_id();
            out.push(Output::Send(id, Request::State { key: wanted.key.clone(), version }));
            if let Phase::Sparing(delta) = &mut self.phase {
                delta.requested.push(Fetch { id, wanted, came: false });
                delta.opened = false;
            }
        }
        let Phase::Sparing(delta) = &self.phase else { return };
        if !delta.different.is_empty() || delta.requests().next().is_some() {
            return;
        }
        let (full, version, count) = (delta.full.clone(), delta.version.clone(), delta.count);
        if self.commit(now, &full, version, Some(count), out) {
            self.set_streaming(now);
            self.watch_or_poll(now, out);
        }
    }

    /// Gives the differences up, and asks for all of it: at once, unless the server has asked for patience.
    pub(super) fn list_all(&mut self, now: Instant, why: Arc<str>, out: &mut Vec<Output>) {
        let Phase::Sparing(delta) = &self.phase else { return };
        delta.abandon(out);
        out.push(Output::Note(Note::ListingAll { why }));
        let (full, not_before) = (Full { by_difference: None, ..delta.full.clone() }, delta.not_before);
        self.sparing.full_until = Some(self.for_a_while(now));
        if let Some(until) = not_before.filter(|until| now < *until) {
            out.push(Output::ReleaseTransfer);
            self.phase = Phase::Waiting { until, then: Next::List(full), unreachable: false };
        } else {
            self.phase = Phase::Queued(full);
            self.begin_list(now, out);
        }
    }

    /// Until when it is remembered at `now` that something does not work.
    fn for_a_while(&mut self, now: Instant) -> Instant {
        let lasting = self.settings.pages_for;
        now + self.random.between(lasting, lasting + lasting / 10)
    }

    /// A request failed: with a server that refuses it all is listed at once; with one that asks for patience it is put off.
    pub(super) fn delta_failed(&mut self, now: Instant, id: RequestId, failure: &Failure, out: &mut Vec<Output>) {
        let Phase::Sparing(delta) = &mut self.phase else { return };
        let place = delta.requested.iter().position(|fetch| fetch.id == id);
        let fetch = place.map(|place| delta.requested.swap_remove(place));
        if fetch.is_none() {
            delta.page = None;
        }
        let is_first = delta.version.is_none();
        let put_off =
            failure.asks_for_patience() || matches!(failure.kind, FailureKind::TooLarge | FailureKind::Unreachable);
        match (failure.kind, fetch) {
            (FailureKind::Expired | FailureKind::Unreadable, _) => self.list_all(now, failure.why.clone(), out),
            (_, fetch) if failure.is_refusal() => {
                // A permission is another matter for each who asks; and a resource may be gone for a moment, or a page's token.
                if !matches!(failure.code, 401 | 403 | 404) && (fetch.is_some() || is_first) {
                    let until = self.for_a_while(now);
                    out.push(Output::RememberFull { until });
                }
                self.list_all(now, failure.why.clone(), out);
            }
            (_, Some(fetch)) if put_off => self.put_off(now, fetch, failure, out),
            (FailureKind::TooLarge, None) => {
                let full = self.drop_delta(out);
                self.lagging(now, full, failure, out);
            }
            _ => self.leave_delta(now, failure, out),
        }
    }

    /// Requests an object again later, as the server asks for patience, or has not reached the version of the metadata.
    fn put_off(&mut self, now: Instant, fetch: Fetch, failure: &Failure, out: &mut Vec<Output>) {
        let Phase::Sparing(delta) = &mut self.phase else { return };
        delta.different.push(fetch.wanted);
        if now.since(*delta.put_off_since.get_or_insert(now)) >= self.settings.list_patience {
            return self.leave_delta(now, failure, out);
        }
        if let Some(until) = delta.not_before {
            // Others that were under way have been put off already: it is the same trouble.
            let asked = failure.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
            delta.not_before = Some(until.max(now + asked));
            return;
        }
        // What is proven stays so: all that is committed is of a version that was read after the list had been requested.
        self.set_condition(now, Condition::Resuming, failure.why.clone());
        let patience = self.backoff.fail(&mut self.random);
        let retry_in = self.delay(patience, failure.retry_after);
        let (why, attempts) = (failure.why.clone(), self.attempts());
        out.push(Output::Note(Note::Failed { why, attempts, retry_in }));
        if let Phase::Sparing(delta) = &mut self.phase {
            delta.not_before = Some(now + retry_in);
        }
    }

    /// It is time to ask again, or nothing more of it comes.
    pub(super) fn delta_due(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Phase::Sparing(delta) = &mut self.phase else { return };
        let again = delta.not_before.take_if(|until| now >= *until).is_some();
        if now >= delta.deadline {
            let seconds = self.settings.delta_within.as_secs();
            self.list_all(now, format!("what differs from what is held has not all come in {seconds} s").into(), out);
        } else if again {
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

    /// Gives the differences up as a list that failed. What comes next is full, unless this says nothing of differences.
    fn leave_delta(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        let Phase::Sparing(delta) = &self.phase else { return };
        let unheard = failure.kind == FailureKind::Unreachable && !delta.opened;
        let again = (failure.asks_for_patience() || unheard) && delta.put_off_since.is_none();
        let patience = failure.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER) + self.settings.list_patience;
        let until = delta.full.by_difference.filter(|_| again).map(|until| until.min(now + patience));
        // What another object was told holds for all.
        let asked = delta.not_before.map(|until| until.since(now));
        let failure = Failure { retry_after: failure.retry_after.max(asked), ..failure.clone() };
        let full = Full { by_difference: until, ..self.drop_delta(out) };
        self.set_broken(now, &failure);
        self.wait(now, &failure, Next::List(full), out);
    }

    /// Drops what is under way of it, and returns what was to be had.
    fn drop_delta(&mut self, out: &mut Vec<Output>) -> Full {
        let Phase::Sparing(delta) = &self.phase else { return Full::again(self.reached()) };
        delta.abandon(out);
        out.push(Output::ReleaseTransfer);
        delta.full.clone()
    }
}

/// Whether a name means in a field selector, and in a path, what it says.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    !name.is_empty() && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_selector_would_take_for_something_else_are_told() {
        assert!(["web-0", "system:node.a", "A_b"].into_iter().all(is_plain));
        assert!(!["", "a,b", "a=b", "a!", "a\\b", "a b", "ä"].into_iter().any(is_plain));
    }
}
