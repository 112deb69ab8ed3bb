//! Delta relists: metadata of the whole collection, and in full only the objects that differ from the cache.
//!
//! After `410 Expired` everything must be listed, although often almost nothing has changed. Metadata cost a server
//! between a third and a half as much as whole objects. They arrive in pages at one version V, with the UID and version
//! of each object. A cached object with equal UID and version equals the object in a full list, and stays unchanged. A
//! cached object that is missing from the metadata has ended. All other listed objects are requested by name at version
//! V, and their responses must have the listed UID and version. The commit is therefore the collection at V, as for a
//! full list. The numbers of missing and of differing objects are limited. Each differing object costs a request. A
//! full list must confirm a large number of missing objects.
//!
//! This method only saves cost. Any unexpected content leads to a full list. Requests that an overloaded server delays
//! are repeated for a limited time, since a full list would cost that server more.

use std::sync::Arc;

use super::cache_state::CacheState;
use super::delayed_action::DelayedAction;
use super::delta_policy::DeltaPolicy;
use super::effect::{Effect, Effects};
use super::failure::{Failure, FailureKind, MAX_RETRY_AFTER};
use super::list_plan::ListPlan;
use super::output::Output;
use super::paging::Paging;
use super::record_action::RecordAction;
use super::request::{Request, RequestId};
use super::requester::Requester;
use super::settings::ReflectorSettings;
use crate::record::{Identity, ListMeta};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Maximum number of objects that are requested concurrently.
const MAX_FETCHES: usize = 4;

/// Cause of a rejected list of metadata.
const NO_COMMON_VERSION: &str = "the pages of a metadata list have no common version";

const OLDER_METADATA: &str = "the metadata list is older than the cache";

/// Delta relist in progress.
#[derive(Clone, Debug)]
pub(super) struct DeltaList {
    /// The full transfer that this list replaces.
    pub(super) plan: ListPlan,
    /// Set if the server has responded since the last request.
    pub(super) has_head: bool,
    /// Time of the last progress, or of the last repeated request.
    pub(super) last_progress: Instant,
    /// Current page of metadata.
    page: Option<RequestId>,
    paging: Paging,
    /// Version of all pages, from the first page.
    version: Option<ResourceVersion>,
    /// Objects that differ and are not requested yet.
    unfetched: Vec<Identity>,
    /// Objects that are requested.
    fetches: Vec<Fetch>,
    /// Number of objects that differ, and its limit. The same limit applies to objects that are missing from the
    /// metadata.
    different_count: usize,
    max_differences: usize,
    /// Number of cached objects at the start, and number of listed objects.
    cached_count: usize,
    listed_count: usize,
    /// Deadline of the whole list.
    deadline: Instant,
    /// Time before which no object is requested, because the server requested a delay.
    not_before: Option<Instant>,
    /// Time of the first delayed request since the last progress.
    delayed_since: Option<Instant>,
}

/// Request for one object that differs.
#[derive(Clone, Debug)]
struct Fetch {
    id: RequestId,
    /// Identity of the object, with the version that the response must have.
    expected: Identity,
    received: bool,
}

impl DeltaList {
    /// Requests metadata at `now`, instead of the full transfer `plan`.
    pub(super) fn start(
        now: Instant,
        plan: ListPlan,
        policy: &DeltaPolicy,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) -> (Self, Effects) {
        let mut list = Self {
            plan,
            has_head: false,
            last_progress: now,
            page: None,
            paging: Paging::default(),
            version: None,
            unfetched: Vec::new(),
            fetches: Vec::new(),
            different_count: 0,
            max_differences: policy.max_differences(),
            cached_count: policy.cached_objects(),
            listed_count: 0,
            deadline: now + settings.delta_timeout,
            not_before: None,
            delayed_since: None,
        };
        let mut effects = Effects::from(Effect::Perform(Output::BeginStaging { new_epoch: false }));
        list.send_metadata(None, settings, requester, &mut effects);
        (list, effects)
    }

    /// Returns true if `id` belongs to a request of this relist.
    pub(super) fn has_request(&self, id: RequestId) -> bool {
        self.requests().any(|request| request == id)
    }

    /// Returns the requests in flight.
    fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.page.into_iter().chain(self.fetches.iter().map(|fetch| fetch.id))
    }

    /// Records the head of a response.
    pub(super) fn opened(&mut self, now: Instant) {
        self.has_head = true;
        self.advance(now);
    }

    /// Records progress.
    fn advance(&mut self, now: Instant) {
        (self.last_progress, self.delayed_since) = (now, None);
    }

    /// Returns the time of the next action if no progress occurs: a repeated request, or the cancellation after
    /// `list_stall_timeout` or at the deadline.
    pub(super) fn due(&self, settings: &ReflectorSettings) -> Instant {
        let stalled = self.last_progress + settings.list_stall_timeout;
        let next_action = match self.not_before {
            // A request in flight may stall while another object is delayed.
            Some(until) if self.requests().next().is_some() => until.min(stalled),
            Some(until) => until,
            None => stalled,
        };
        self.deadline.min(next_action)
    }

    fn send_metadata(
        &mut self,
        continue_token: Option<String>,
        settings: &ReflectorSettings,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let (id, limit) = (requester.next_id(), settings.page_size);
        // `has_head` distinguishes silence from a failed response of the current request.
        (self.page, self.has_head) = (Some(id), false);
        effects.send(id, Request::Metadata { from: self.plan.from.clone(), limit, continue_token });
    }

    /// Processes an entry of a page of metadata, or an object that was requested by name. Returns the reason as an
    /// error if a full list is required.
    pub(super) fn item(&mut self, now: Instant, id: RequestId, identity: &Identity) -> Result<RecordAction, String> {
        self.advance(now);
        if self.page == Some(id) {
            self.listed_count += 1;
            self.paging.add(&identity.version);
            if identity.uid.is_from_server() && identity.version.is_ordered() {
                return Ok(RecordAction::StageUnchanged);
            }
            return Err(format!("{} has no UID or no comparable version in the metadata", identity.key));
        }
        let Some(fetch) = self.fetches.iter_mut().find(|fetch| fetch.id == id) else { return Ok(RecordAction::Skip) };
        // Exactly the listed state counts, and only once. A list by name must not contain a second
        // object.
        if fetch.expected == *identity && !std::mem::replace(&mut fetch.received, true) {
            return Ok(RecordAction::Stage);
        }
        Err(format!("{} was returned in another state than requested", fetch.expected.key))
    }

    /// Processes [`super::Input::Differs`]: the listed object differs from the cached one.
    pub(super) fn differs(&mut self, id: RequestId, identity: Identity) -> Effects {
        if self.page != Some(id) {
            return Effects::default();
        }
        self.different_count += 1;
        // Field selectors treat `,`, `=` and `!` as syntax, so a name with these characters needs a
        // full list.
        let is_unselectable = !is_plain(identity.key.name()) || !identity.key.namespace().is_none_or(is_plain);
        self.unfetched.push(identity);
        if self.different_count > self.max_differences {
            self.list_in_full(format!("more than {} objects differ from the cache", self.max_differences).into())
        } else if is_unselectable {
            self.list_in_full("the name of an object cannot be used in a field selector".into())
        } else {
            Effects::default()
        }
    }

    /// Handles a complete page of metadata, or a complete response for an object.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        id: RequestId,
        meta: ListMeta,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        self.advance(now);
        if self.page == Some(id) {
            self.page = None;
            return self.page_ended(meta, cache, requester);
        }
        let Some(index) = self.fetches.iter().position(|fetch| fetch.id == id) else { return Effects::default() };
        let Fetch { expected, received, .. } = self.fetches.swap_remove(index);
        if received {
            self.fetch(requester)
        } else {
            // An exact read at the listed version must contain the object. An empty response
            // contradicts the metadata.
            self.list_in_full(
                format!("{} was listed, but could not be read at the listed version", expected.key).into(),
            )
        }
    }

    fn page_ended(&mut self, meta: ListMeta, cache: &CacheState, requester: &mut Requester) -> Effects {
        let version = meta.version.filter(ResourceVersion::is_ordered);
        let is_same_version = self.version.is_none() || self.version == version;
        let Some(version) = version.filter(|_| is_same_version) else {
            return self.list_in_full(NO_COMMON_VERSION.into());
        };
        // Metadata below the cached version could revive deleted objects.
        if cache.reached_version().is_some_and(|held| version.is_older_than(held)) {
            return self.list_in_full(OLDER_METADATA.into());
        }
        self.version = Some(version);
        let Some(token) = meta.continue_token else { return self.metadata_complete(requester) };
        match self.paging.next_page(&token) {
            Ok(()) => {
                let mut effects = Effects::default();
                self.send_metadata(Some(token), &cache.settings, requester, &mut effects);
                effects
            }
            Err(reason) => self.list_in_full(reason.into()),
        }
    }

    /// Handles complete metadata. If many cached objects are missing, a full list must confirm this. A server that
    /// returns only a version instead of metadata would otherwise end all cached objects.
    fn metadata_complete(&mut self, requester: &mut Requester) -> Effects {
        if self.cached_count.saturating_sub(self.listed_count) > self.max_differences {
            self.list_in_full(
                format!("more than {} cached objects are missing from the metadata", self.max_differences).into(),
            )
        } else {
            self.fetch(requester)
        }
    }

    /// Requests the differing objects, a few concurrently, unless the server requested a delay. The list is complete
    /// after the last object.
    fn fetch(&mut self, requester: &mut Requester) -> Effects {
        let mut effects = Effects::default();
        // The order of these requests is irrelevant: staging sorts by key at the commit.
        while self.page.is_none()
            && self.not_before.is_none()
            && self.fetches.len() < MAX_FETCHES
            && let (Some(version), Some(expected)) = (self.version.clone(), self.unfetched.pop())
        {
            let id = requester.next_id();
            effects.send(id, Request::State { key: expected.key.clone(), version });
            self.fetches.push(Fetch { id, expected, received: false });
            self.has_head = false;
        }
        // Delayed requests return to `unfetched`, so both collections are empty only at the end.
        if self.unfetched.is_empty() && self.requests().next().is_none() {
            effects.push(Effect::ListComplete {
                version: self.version.clone(),
                fetched_count: Some(self.different_count),
            });
        }
        effects
    }

    /// Abandons the delta relist for the reason `reason`, and requests a full list: immediately, unless the server
    /// has requested a delay.
    pub(super) fn list_in_full(&self, reason: Arc<str>) -> Effects {
        let mut effects = self.abandon();
        let plan = ListPlan { delta_until: None, ..self.plan.clone() };
        effects.push(Effect::ListInFull { plan, not_before: self.not_before, reason });
        effects
    }

    /// Cancels the requests in flight and drops the result.
    pub(super) fn abandon(&self) -> Effects {
        let mut effects = Effects::default();
        effects.perform_all(self.requests().map(Output::Cancel));
        effects.perform(Output::DropStaging);
        effects
    }

    /// Handles a failed request. A rejection leads to a full list immediately. If the server requested a delay, the
    /// next request waits for its end.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        id: RequestId,
        failure: &Failure,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) -> Effects {
        let index = self.fetches.iter().position(|fetch| fetch.id == id);
        let fetch = index.map(|index| self.fetches.swap_remove(index));
        if fetch.is_none() {
            self.page = None;
        }
        let is_first = self.version.is_none();
        let can_delay = failure.requests_delay()
            || matches!(failure.kind, FailureKind::ResourceVersionTooLarge | FailureKind::Unreachable);
        match (failure.kind, fetch) {
            // The version of the metadata was compacted: the remaining objects cannot be read at
            // this version.
            (FailureKind::Expired | FailureKind::Unreadable, _) => self.list_in_full(failure.message.clone()),
            (_, fetch) if failure.is_rejection() => {
                let mut effects = Effects::default();
                // Permissions differ between clients, so other informers must not inherit this rejection. A resource or
                // a page's token may also be missing only temporarily.
                if !matches!(failure.code, 401 | 403 | 404) && (fetch.is_some() || is_first) {
                    let until = requester.remembered_until(now);
                    effects.perform(Output::RememberFull { until });
                }
                effects.append(self.list_in_full(failure.message.clone()));
                effects
            }
            (_, Some(fetch)) if can_delay => self.delay_request(now, fetch, failure, settings),
            // A lagging server cannot continue this list, so the whole list ends, as for a full transfer (R5).
            (FailureKind::ResourceVersionTooLarge, None) => {
                let mut effects = self.abandon();
                effects.perform(Output::ReleaseTransfer);
                effects.push(Effect::Lagging { plan: self.plan.clone(), failure: failure.clone() });
                effects
            }
            _ => self.abandon_and_wait(now, failure, settings),
        }
    }

    /// Repeats the request of an object later, because the server requested a delay, did not respond, or has not
    /// reached the version of the metadata.
    fn delay_request(
        &mut self,
        now: Instant,
        fetch: Fetch,
        failure: &Failure,
        settings: &ReflectorSettings,
    ) -> Effects {
        self.unfetched.push(fetch.expected);
        if now.since(*self.delayed_since.get_or_insert(now)) >= settings.list_stall_timeout {
            return self.abandon_and_wait(now, failure, settings);
        }
        if let Some(until) = self.not_before {
            // Another failed request has already set the delay. This failure can only extend it, by its `Retry-After`.
            let retry_after = failure.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
            self.not_before = Some(until.max(now + retry_after));
            return Effects::default();
        }
        Effect::DelayDeltaList(failure.clone()).into()
    }

    /// Sets the time before which no object is requested.
    pub(super) fn delay_until(&mut self, until: Instant) {
        self.not_before = Some(until);
    }

    /// Handles the timer: sends delayed requests again, or cancels a stalled list.
    pub(super) fn timer(&mut self, now: Instant, settings: &ReflectorSettings, requester: &mut Requester) -> Effects {
        let is_delay_over = self.not_before.take_if(|until| now >= *until).is_some();
        if now >= self.deadline {
            let seconds = settings.delta_timeout.as_secs();
            self.list_in_full(format!("not all differing objects arrived within {seconds} s").into())
        } else if is_delay_over {
            // If no request was in flight during the delay, the stall timer restarts here.
            if self.requests().next().is_none() {
                self.last_progress = now;
            }
            self.fetch(requester)
        } else {
            let seconds = settings.list_stall_timeout.as_secs();
            let failure = Failure::unreachable(format!("the list made no progress for {seconds} s"));
            self.abandon_and_wait(now, &failure, settings)
        }
    }

    /// Abandons the delta relist, which counts as a failed list. The next list is full, unless a
    /// full list would have failed in the same way.
    fn abandon_and_wait(&self, now: Instant, failure: &Failure, settings: &ReflectorSettings) -> Effects {
        // Without a response head, the failure does not show that the method fails.
        let is_unanswered = failure.kind == FailureKind::Unreachable && !self.has_head;
        let keeps_method = (failure.requests_delay() || is_unanswered) && self.delayed_since.is_none();
        let delay = failure.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER) + settings.list_stall_timeout;
        let until = self.plan.delta_until.filter(|_| keeps_method).map(|until| until.min(now + delay));
        // A delay that the server requested for one object applies to all.
        let retry_after = self.not_before.map(|until| until.since(now));
        let failure = Failure { retry_after: failure.retry_after.max(retry_after), ..failure.clone() };
        let plan = ListPlan { delta_until: until, ..self.plan.clone() };
        let mut effects = self.abandon();
        effects.perform(Output::ReleaseTransfer);
        effects.push(Effect::Broken(failure.clone()));
        effects.push(Effect::Wait { failure, then: DelayedAction::List(plan) });
        effects
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
