//! Full transfers: the first list, relists, and the reactions to their failures (R3, R5, R9).

use std::sync::Arc;
use std::time::Duration;

use super::list_plan::{Form, ListPlan};
use super::{
    Diagnostic, Failure, FailureKind, ListFrom, Next, Output, Phase, Record, Reflector, ReflectorSettings, Request,
    RequestId, Verdict,
};
use crate::backoff::BackoffSettings;
use crate::fault_injection::InjectedFault;
use crate::freshness::Condition;
use crate::record::{ListMeta, RecordKind};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Start of a list, and evidence from its pages that it will end.
#[derive(Debug, Default)]
pub(super) struct Paging {
    /// Time at which the first page was requested. The list contains all earlier writes; later writes may be missing.
    pub(super) asked: Instant,
    /// Continue token of the current page.
    token: String,
    /// Set if the current page has delivered an object.
    brought: bool,
    /// Number of consecutive pages without an object.
    barren: u32,
    /// Set after an object without a version.
    unversioned: bool,
}

/// Maximum number of consecutive empty pages. With selectors, a server may check many objects for each match.
const MOST_BARREN_PAGES: u32 = 1000;

/// Maximum length of a continue token that is sent back, in bytes. Real tokens have a few hundred bytes, and servers
/// accept 1 MiB of headers.
const LONGEST_TOKEN: usize = 64 * 1024;

impl Paging {
    fn begun(now: Instant) -> Self {
        Self { asked: now, ..Self::default() }
    }

    /// Returns whether the current page continues another one.
    fn goes_on(&self) -> bool {
        !self.token.is_empty()
    }

    /// Records an object of the current page.
    pub(super) fn brings(&mut self, version: &ResourceVersion) {
        self.brought = true;
        self.unversioned |= !version.is_given();
    }

    /// Returns the version of the complete list. If its objects have no versions, a watch would deliver none either.
    /// Then no version exists to watch from (C12).
    fn version(&self, told: Option<ResourceVersion>) -> Option<ResourceVersion> {
        told.filter(|_| !self.unversioned)
    }

    /// Continues with the page of `token`. Returns the reason as an error if the list shows no sign of an end.
    pub(super) fn turn(&mut self, token: &str) -> Result<(), String> {
        if token.len() > LONGEST_TOKEN {
            let bytes = token.len();
            return Err(format!("a continue token of {bytes} bytes; none above {LONGEST_TOKEN} is sent back"));
        }
        // An equal token would request the same page forever.
        if self.token == token {
            return Err("the list has no end: a page's continue token is the one that it was requested with".to_owned());
        }
        token.clone_into(&mut self.token);
        self.barren = if std::mem::take(&mut self.brought) { 0 } else { self.barren + 1 };
        if self.barren > MOST_BARREN_PAGES {
            return Err(format!("the list has no end: {} pages in a row without an object", self.barren));
        }
        Ok(())
    }
}

/// Backoff between lists that watches required; the first list follows after jitter (R5).
pub(super) fn relist_backoff(settings: &ReflectorSettings) -> BackoffSettings {
    BackoffSettings { first: settings.relist_jitter, ceiling: settings.period / 2, ..settings.backoff }
}

impl Reflector {
    /// Waits for a permit for a full transfer; few may run at once.
    pub(super) fn queue(&mut self, plan: ListPlan, out: &mut Vec<Output>) {
        self.phase = Phase::Queued(plan);
        out.push(Output::AwaitTransfer);
    }

    /// Lists again after a short random delay, for the reason `why`.
    pub(super) fn relist(&mut self, now: Instant, plan: ListPlan, why: Arc<str>, out: &mut Vec<Output>) {
        out.push(Output::Diagnostic(Diagnostic::Relisting { why: why.clone() }));
        self.drop_comparison(out);
        self.search.broken(now);
        self.set_condition(now, if self.synced { Condition::Resuming } else { Condition::Starting }, why);
        self.list_later(now, plan, None);
    }

    pub(super) fn list_later(&mut self, now: Instant, plan: ListPlan, asked: Option<Duration>) {
        // Successful lists count as well: only a healthy watch resets this backoff (R6).
        let patience = self.relist_backoff.fail(&mut self.random);
        let until = now + self.delay(patience, asked);
        self.phase = Phase::Waiting { until, then: Next::List(plan), unreachable: false };
    }

    /// Starts the transfer after its permit was granted.
    pub(super) fn begin_list(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Phase::Queued(plan) = &self.phase else {
            // The phase changed while the permit was pending, so the unused permit returns.
            out.push(Output::ReleaseTransfer);
            return;
        };
        let mut plan = plan.clone();
        if self.settings.rules.faults.is_injected(InjectedFault::OlderList) && self.synced {
            plan.from = ListFrom::NotOlderThan(ResourceVersion::from("0"));
        }
        if self.spares(now, &plan) {
            self.paging = Paging::begun(now);
            return self.begin_delta(now, plan, out);
        }
        // A list that is full now does not become a list by difference after a failure.
        plan.by_difference = None;
        let id = self.next_id();
        let streamed = matches!(plan.form, Form::AsItWorks) && self.streaming.begin(now);
        let request = if streamed {
            Request::StreamedList { from: plan.from.clone(), timeout_seconds: self.watch_seconds() }
        } else {
            let limit = self.settings.page_size.filter(|_| !plan.whole);
            Request::Page { from: plan.from.clone(), limit, continue_token: None }
        };
        self.unnamed.list_begins();
        self.paging = Paging::begun(now);
        let anew = plan.new_epoch;
        self.phase = Phase::Listing { id, plan, streamed, sent: now, opened: false, progress: now };
        out.extend([Output::BeginStaging { anew }, Output::Send(id, request)]);
    }

    /// Processes a record of a streamed list.
    pub(super) fn listed(&mut self, now: Instant, record: Record<'_>) -> Verdict {
        let Phase::Listing { id, progress, plan, .. } = &mut self.phase else { return Verdict::Skip };
        match record {
            Record::Object(kind, identity) => {
                // Initial events are all `ADDED`. Other events are later changes, which never end on a server that does
                // not mark the end of a list. They therefore do not count as progress (R3).
                if kind == RecordKind::Added && self.streaming.is_progress(&identity.version) {
                    *progress = now;
                }
                Verdict::Stage
            }
            Record::Bookmark(bookmark) if bookmark.initial_events_end => {
                let (id, plan) = (*id, plan.clone());
                let mut out = Vec::new();
                if self.commit(now, &plan, Some(bookmark.version.clone()), None, &mut out) {
                    self.streaming.works();
                    // The stream continues as the watch, so its records follow the list without a
                    // gap.
                    self.listed_by = Some(id);
                    self.phase = Phase::Watching { id, sent: now, opened: Some(now), proven: false };
                    self.bookmark_interval.begin();
                    self.set_streaming(now);
                } else {
                    // `commit` pushed its reaction already. The cancellation of this stream must
                    // precede the reaction.
                    out.insert(0, Output::Cancel(id));
                }
                Verdict::Do(out)
            }
            Record::Bookmark(_) => {
                // A server without streamed lists treats the request as a plain watch and sends
                // ordinary bookmarks.
                let mut out = vec![Output::Cancel(*id)];
                self.fall_back(now, Arc::from("a bookmark came before the end of the initial events"), &mut out);
                Verdict::Do(out)
            }
            Record::Error(_) => Verdict::Skip,
        }
    }

    /// Handles a complete page.
    pub(super) fn list_ended(&mut self, now: Instant, id: RequestId, meta: ListMeta, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Listing { id: listing, plan, .. } if *listing == id => {
                let plan = plan.clone();
                if let Some(token) = meta.continue_token {
                    if let Err(why) = self.paging.turn(&token) {
                        self.list_failed(now, &Failure::unreadable(why), out);
                        return;
                    }
                    let id = self.next_id();
                    let request = Request::Page {
                        from: plan.from.clone(),
                        limit: self.settings.page_size,
                        continue_token: Some(token),
                    };
                    self.phase = Phase::Listing { id, plan, streamed: false, sent: now, opened: false, progress: now };
                    out.push(Output::Send(id, request));
                } else if self.commit(now, &plan, self.paging.version(meta.version), None, out) {
                    self.set_streaming(now);
                    self.watch_or_poll(now, out);
                    if let Phase::Watching { id, .. } = self.phase
                        && plan.from == ListFrom::Consistent
                    {
                        self.listed_by = Some(id);
                    }
                }
            }
            Phase::DeltaListing(_) if self.is_sparing(id) => self.delta_ended(now, id, meta, out),
            _ => self.compared_page(now, id, meta, out),
        }
    }

    /// Handles the response to a probe that was sent at `sent`.
    pub(super) fn probed(
        &mut self,
        now: Instant,
        id: RequestId,
        version: Option<ResourceVersion>,
        sent: Instant,
        out: &mut Vec<Output>,
    ) {
        match &self.phase {
            Phase::Deciding { id: deciding, plan, .. } if *deciding == id => {
                let plan = plan.clone();
                // A probe from before the cached version was reached may return a lower version
                // without another history.
                self.decided(now, plan, version.filter(|_| self.held_since <= sent), out);
            }
            _ => self.side_probed(now, id, version, sent, out),
        }
    }

    /// Replaces the content of the store by the staged list, unless the list is older than the store (C4). `fetched` is
    /// the number of objects that were transferred in full by a list by difference.
    pub(super) fn commit(
        &mut self,
        now: Instant,
        plan: &ListPlan,
        version: Option<ResourceVersion>,
        fetched: Option<usize>,
        out: &mut Vec<Output>,
    ) -> bool {
        let older = match (version.as_ref(), self.reached()) {
            (Some(new), Some(held)) => new.is_older_than(held),
            _ => false,
        };
        let older_is_fine = plan.new_epoch || self.settings.rules.faults.is_injected(InjectedFault::OlderList);
        if older && !older_is_fine {
            // The cache never goes back within an epoch: the server lags (C4).
            let why = format!("a list came at {}, older than the cache", display(version.as_ref()));
            if let Phase::DeltaListing(_) = self.phase {
                self.list_all(now, why.into(), out);
            } else {
                self.list_failed(now, &Failure::of(FailureKind::TooLarge, why), out);
            }
            return false;
        }
        let initial = !self.synced;
        out.push(Output::Commit { version: version.clone(), initial, new_epoch: plan.new_epoch || older });
        out.push(Output::ReleaseTransfer);
        out.push(Output::Diagnostic(if initial {
            Diagnostic::Synced { version: version.clone() }
        } else {
            Diagnostic::Relisted { held: self.version.clone(), version: version.clone(), fetched }
        }));
        if let Form::PagesFallback(instead) = &plan.form {
            self.pages_came(now, instead, out);
        }
        if initial {
            self.delta_policy.begin(now);
        }
        self.synced = true;
        self.list_came();
        self.listed_all(now, out);
        self.unnamed.list_complete(now, self.settings.period);
        self.evidence.unnamed = !self.unnamed.is_at_rest();
        self.evidence.version.clone_from(&version);
        let newer = match (version.as_ref(), self.reached()) {
            (Some(new), Some(held)) => !new.is_older_than(held) && new != held,
            _ => true,
        };
        // A short watch's evidence about the old version does not apply to the new content.
        self.search.told = None;
        (self.version, self.held_since) = (version, now);
        // A consistent read is a proof. A state from the server's cache is a proof only if newer. Both prove the state
        // at the time of the request, however long the pages or initial events took.
        if newer || plan.from == ListFrom::Consistent {
            let late = self.settings.rules.faults.is_injected(InjectedFault::LateList);
            self.proven(now, if late { now } else { self.paging.asked });
        }
        true
    }

    /// Handles a failed full transfer and drops the staged objects.
    pub(super) fn list_failed(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        let Phase::Listing { plan, streamed, opened, .. } = &self.phase else { return };
        let (mut plan, streamed, opened) = (plan.clone(), *streamed, *opened);
        if streamed && self.stream_failed(failure, opened, &mut plan) {
            self.ask_for_pages(now, plan, failure.why.clone(), out);
            return;
        }
        out.extend([Output::DropStaging, Output::ReleaseTransfer]);
        self.set_broken(now, failure);
        match failure.kind {
            FailureKind::TooLarge => self.lagging(now, plan, failure, out),
            FailureKind::Expired => {
                if !self.paging.goes_on() {
                    // The version expired, not a continue token. The server's current version cannot have expired.
                    plan.from = ListFrom::Consistent;
                }
                // A list in a single response uses no continue token that could expire (F14).
                plan.whole = true;
                out.push(Output::Diagnostic(Diagnostic::Relisting { why: failure.why.clone() }));
                self.list_later(now, plan, failure.retry_after);
            }
            _ => {
                if !streamed {
                    self.pages_failed(failure, &mut plan);
                }
                let in_place = plan.in_place && self.poll_failed(now, failure);
                self.wait(now, failure, if in_place { Next::Watch } else { Next::List(plan) }, out);
            }
        }
    }

    /// Handles a response that ended regularly before the end of the list.
    pub(super) fn list_cut(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Phase::Listing { streamed, sent, .. } = &self.phase else { return };
        let why: Arc<str> = Arc::from("the server ended the response before the list was complete");
        if *streamed && now.since(*sent) >= self.settings.list_patience {
            // The stream lasted long enough to indicate a plain watch instead of a list.
            self.fall_back(now, why, out);
        } else {
            self.list_failed(now, &Failure::unreadable(why), out);
        }
    }

    /// Handles a list that stalls or exceeds its maximum duration (R3).
    pub(super) fn list_stalled(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        let Phase::Listing { streamed, opened, progress, plan, .. } = &self.phase else { return };
        out.push(Output::Cancel(id));
        let (streamed, opened, mut plan) = (*streamed, *opened, plan.clone());
        let seconds = self.settings.list_patience.as_secs();
        if streamed && now < *progress + self.settings.list_patience {
            // Events still arrive, so only the total duration was exceeded: probably a plain watch
            // without an end.
            let seconds = self.settings.initial_events_within.as_secs();
            self.fall_back(now, format!("the initial events did not end within {seconds} s").into(), out);
        } else if streamed && opened {
            self.fall_back(now, format!("no progress of the initial events for {seconds} s").into(), out);
        } else {
            let failure = Failure::unreachable(format!("no progress of the list for {seconds} s"));
            if streamed {
                // Silence before the response head is weak evidence against streaming, unless it repeats.
                self.doubt_streams(failure.why.clone(), &mut plan);
                self.with_plan(plan);
            }
            self.list_failed(now, &failure, out);
        }
    }

    fn with_plan(&mut self, new: ListPlan) {
        if let Phase::Listing { plan, .. } = &mut self.phase {
            *plan = new;
        }
    }

    /// Handles a cached version that is too large for the responding server (R5).
    ///
    /// A retry comes first: another replica may respond. If it fails in the same way, a consistent list is requested,
    /// which is never older. If the response is older even so, a probe distinguishes a lagging replica from another
    /// history.
    pub(super) fn lagging(&mut self, now: Instant, mut plan: ListPlan, failure: &Failure, out: &mut Vec<Output>) {
        self.set_broken(now, failure);
        if plan.lagging.is_none() {
            out.push(Output::Diagnostic(Diagnostic::Lagging { why: failure.why.clone() }));
            plan.lagging = Some(now);
            self.list_later(now, plan, failure.retry_after);
        } else if plan.make_consistent() {
            self.wait(now, failure, Next::List(plan), out);
        } else {
            self.decide(now, plan, out);
        }
    }

    /// Sends the probe that distinguishes a lagging replica from another history.
    pub(super) fn decide(&mut self, now: Instant, plan: ListPlan, out: &mut Vec<Output>) {
        let id = self.next_id();
        self.phase = Phase::Deciding { id, plan, deadline: now + self.settings.probe_deadline };
        out.push(Output::Send(id, Request::Probe { since: now - self.settings.probe_deadline }));
    }

    fn decided(&mut self, now: Instant, plan: ListPlan, proof: Option<ResourceVersion>, out: &mut Vec<Output>) {
        match (self.reached(), proof) {
            // A consistent read below the cached version proves another history. A read from a
            // cache would prove nothing.
            (Some(held), Some(proof)) if proof.is_older_than(held) => self.begin_epoch(now, proof, out),
            _ => {
                let patience = self.backoff.fail(&mut self.random);
                self.phase = Phase::Waiting { until: now + patience, then: Next::List(plan), unreachable: false };
            }
        }
    }

    /// Repeats the probe after it decided nothing (R5).
    pub(super) fn decision_failed(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        let Phase::Deciding { plan, .. } = &self.phase else { return };
        let mut plan = plan.clone();
        // A list decides as well as a probe. It is requested once a period, and if the server rejects probes.
        let list = failure.is_refusal() || plan.has_lagged_for(self.settings.period, now);
        let then = if list { Next::List(plan) } else { Next::Decide(plan) };
        self.wait(now, failure, then, out);
    }

    /// Starts a new epoch: `proof` is lower than the cached version, although the read was consistent.
    pub(super) fn begin_epoch(&mut self, now: Instant, proof: ResourceVersion, out: &mut Vec<Output>) {
        let Some(held) = self.reached().cloned() else { return };
        self.epoch_proven(now, held, proof, ListPlan::new_epoch(), out);
    }

    /// Lists another history. `proof` proves it, since the cache has the higher version `held`.
    pub(super) fn epoch_proven(
        &mut self,
        now: Instant,
        held: ResourceVersion,
        proof: ResourceVersion,
        plan: ListPlan,
        out: &mut Vec<Output>,
    ) {
        let note = Diagnostic::NewEpoch { held, proof };
        let why: Arc<str> = Arc::from(note.to_string());
        out.push(Output::Diagnostic(note));
        self.drop_comparison(out);
        // Proofs from the old history do not cover the new history.
        self.search.broken(now);
        self.set_condition(now, Condition::Stale, why);
        self.list_later(now, plan, None);
    }
}

fn display(version: Option<&ResourceVersion>) -> &str {
    version.map_or("no version", ResourceVersion::as_str)
}
