//! Construction of the mirrors of a plan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_targets::{Limits, MirrorMemory, MirrorSettings};
use tokio::time::timeout;

use super::collect::CollectedEntries;
use super::driver::{AnyDriver, OpenError};
use super::drivers;
use super::grouping::Grouping;
use crate::config::sinks::SinkConfig;
use crate::entry_fields::EntryFields;
use crate::plan::Plan;
use crate::problem::{Problem, Problems};

/// Opened mirrors of a plan, without connections.
pub struct OpenedMirrors(pub(super) BTreeMap<String, OpenedMirror>);

pub(super) struct OpenedMirror {
    pub(super) driver: Box<dyn AnyDriver>,
    pub(super) settings: MirrorSettings,
    pub(super) entry_fields: EntryFields,
    pub(super) grouping: Grouping,
}

impl OpenedMirrors {
    /// Opens all mirrors of `plan`.
    ///
    /// # Errors
    ///
    /// Returns the problems of all mirrors that cannot be opened.
    pub async fn open_all(plan: &Plan) -> Result<Self, Problems> {
        let (opened, problems) = Self::open_possible(plan).await;
        ok_or_problems(opened, problems)
    }

    /// Opens as many mirrors of `plan` as possible. Returns the problems of the others.
    pub async fn open_possible(plan: &Plan) -> (Self, Vec<Problem>) {
        let (opened, unopened) = Self::open_each(plan).await;
        (Self(opened), unopened.into_iter().map(|unopened| unopened.problem).collect())
    }

    /// Checks the configuration of all mirrors. Unreadable secrets and certificates are not errors here, since the
    /// files may become readable later.
    ///
    /// # Errors
    ///
    /// Returns all errors in the configuration, with positions.
    pub async fn check(plan: &Plan) -> Result<(), Problems> {
        let (_, unopened) = Self::open_each(plan).await;
        let errors = unopened.into_iter().filter(|unopened| !unopened.has_external_cause);
        ok_or_problems((), errors.map(|unopened| unopened.problem).collect())
    }

    async fn open_each(plan: &Plan) -> (BTreeMap<String, OpenedMirror>, Vec<UnopenedMirror>) {
        let (mut opened, mut unopened) = (BTreeMap::new(), Vec::new());
        for name in plan.mirrors() {
            match open(plan, name).await {
                Ok(opened_mirror) => drop(opened.insert(name.to_owned(), opened_mirror)),
                Err(reason) => unopened.push(reason),
            }
        }
        (opened, unopened)
    }

    /// Returns mirrors with an unreadable target, with reasons. Waits at most `limit` for each. Changes no target.
    pub(crate) async fn unreadable_targets(&self, limit: Duration) -> Vec<(String, Arc<str>)> {
        // The memory is volatile, because the check must not store anything about the target.
        let (mut unreadable, memory, no_entries) = (Vec::new(), MirrorMemory::volatile(), CollectedEntries::default());
        for (name, OpenedMirror { driver, settings, .. }) in &self.0 {
            let preview = driver.preview(name, settings, &memory, &no_entries);
            match timeout(limit, preview).await {
                Ok(Ok(_)) => {}
                Ok(Err(reason)) => unreadable.push((name.clone(), reason)),
                Err(_) => unreadable.push((name.clone(), format!("no response within {} s", limit.as_secs()).into())),
            }
        }
        unreadable
    }

    /// Returns true if the plan has no mirror.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Error of opening a mirror.
pub(super) struct UnopenedMirror {
    pub(super) problem: Problem,
    /// True if the cause is outside of the configuration and may disappear.
    pub(super) has_external_cause: bool,
}

/// Opens the mirror `name` of `plan` without connecting to the target.
pub(super) async fn open(plan: &Plan, name: &str) -> Result<OpenedMirror, UnopenedMirror> {
    let not_a_mirror = || UnopenedMirror {
        problem: plan.problem_with_sink(name, "this sink is not a mirror", "use the name of a mirror"),
        has_external_cause: false,
    };
    let sink = plan.sinks.get(name).ok_or_else(not_a_mirror)?;
    let entry_fields = drivers::entry_fields(sink).ok_or_else(not_a_mirror)?;
    match drivers::open(name, sink, &plan.folder).await {
        Ok(Some(driver)) => {
            let grouping = Grouping::new(plan.groups.get(name).cloned());
            Ok(OpenedMirror { driver, settings: settings(sink), entry_fields, grouping })
        }
        Ok(None) => Err(not_a_mirror()),
        Err(OpenError { path, description, remedy, has_external_cause }) => {
            let problem = plan.problem_with_sink(&format!("{name}.{path}"), description, remedy);
            Err(UnopenedMirror { problem, has_external_cause })
        }
    }
}

fn ok_or_problems<T>(value: T, mut problems: Vec<Problem>) -> Result<T, Problems> {
    if problems.is_empty() {
        return Ok(value);
    }
    problems.sort_by_key(|problem| problem.position);
    Err(Problems(problems))
}

/// Returns the configured settings of a mirror.
fn settings(sink: &SinkConfig) -> MirrorSettings {
    let (guard, defaults) = (sink.guard.clone().unwrap_or_default(), MirrorSettings::default());
    let limits = Limits {
        share: guard.share.unwrap_or(defaults.limits.share),
        always_allowed: guard.always_allowed.unwrap_or(defaults.limits.always_allowed),
        window: guard.window.map_or(defaults.limits.window, |span| span.0),
    };
    let drain = sink.drain.map_or(defaults.drain, |span| span.0);
    let compare = sink.compare.map_or(defaults.compare, |span| span.0);
    let allow_empty = guard.allow_empty;
    MirrorSettings { limits, drain, compare, allow_empty, upsert_only: sink.upsert_only, ..defaults }
}
