//! C10, freshness: an informer never reports `Fresh` with an age above two periods, and never hides that its cache is
//! stale.
//!
//! Every change that is older than the age of `Fresh` plus the lag of the stream is in the cache. The version of such a
//! change is not above the reported version. After `Resuming`, only a newer proof makes the cache fresh again. An open
//! watch is not a proof.

use std::time::Duration;

use crate::clause::Clause;
use crate::parsed_trace::{Informer, ParsedTrace, StoreRead, TracePosition};
use crate::trace::Freshness;
use crate::view::TimelinePosition;
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for informer in &parsed.informers {
        let mut stopped_at = None;
        let mut resuming_since = None;
        for (position, state) in &informer.freshness {
            let violation = match (state, stopped_at) {
                (Freshness::Stopped, _) => {
                    stopped_at = Some(*position);
                    continue;
                }
                // `Stopped` is final. Any later state would claim that the informer still works.
                (_, Some(since)) => Some((since.at, format!("{state:?} after the informer was stopped"))),
                (Freshness::Fresh { version, age }, None) => {
                    let proof_violation =
                        resuming_since.take().and_then(|since| check_proof(parsed, since, *position, *age));
                    proof_violation.or_else(|| check_fresh(parsed, informer, *position, version, *age))
                }
                (Freshness::Resuming, None) => {
                    // The first `Resuming` of an interruption counts; later samples do not restart it.
                    resuming_since.get_or_insert(position.at);
                    None
                }
                _ => None,
            };
            if let Some((since, description)) = violation {
                violations.push(informer.violation(Clause::C10, None, (since, position.at), description));
            }
        }
        for read in &parsed.reads(informer) {
            if let Some((since, description)) = check_read(parsed, informer, read) {
                violations.push(informer.violation(
                    Clause::C10,
                    Some(read.key),
                    (since, read.position.at),
                    description,
                ));
            }
        }
    }
}

/// Detects a `Fresh` that is too old, or that lacks changes older than its age.
fn check_fresh(
    parsed: &ParsedTrace<'_>,
    informer: &Informer<'_>,
    position: TracePosition,
    version: &str,
    age: Duration,
) -> Option<(Duration, String)> {
    let TracePosition { at, .. } = position;
    // The cache was proven current at this time, because the age counts from the proof.
    let proven_at = at.saturating_sub(age);
    // Proofs are requested once per period. The second period covers a request in flight.
    if age > 2 * parsed.bounds.period {
        return Some((proven_at, format!("`Fresh` with an age of {age:.1?}, beyond two periods")));
    }
    let reported_version: u64 = version.parse().ok().filter(|_| informer.has_ordered_versions)?;
    let epoch = parsed.epoch_of(informer, position);
    // Changes up to this time must be visible. They precede the proof by at least the tolerated delays.
    let visible_until = at.checked_sub(age + tolerance(parsed))?;
    let visible = &parsed.view(informer).visible_changes;
    let next = visible.partition_point(|change| (change.epoch, change.version) <= (epoch, reported_version));
    let mut old_changes = visible[next..].iter().take_while(|change| change.at <= visible_until);
    // After an undetected restore of etcd (R12), a client cannot detect changes with versions up to its reported
    // version. Only higher versions count.
    let missed_change = old_changes.find(|change| change.version > reported_version)?;
    let description = format!(
        "`Fresh` at v{reported_version} with an age of {age:.1?}, without v{} of {}",
        missed_change.version, missed_change.key
    );
    Some((missed_change.at, description))
}

/// Detects a `Fresh` after `Resuming` whose proof is older than the interruption.
fn check_proof(
    parsed: &ParsedTrace<'_>,
    resuming_since: Duration,
    position: TracePosition,
    age: Duration,
) -> Option<(Duration, String)> {
    let proven_at = position.at.saturating_sub(age);
    let description = || format!("`Fresh` with an age of {age:.1?}, without a proof since `Resuming`");
    // A proof from before the interruption does not cover the changes during it.
    (proven_at + parsed.bounds.slack < resuming_since).then(|| (resuming_since, description()))
}

/// Returns the maximum delay of a change, without the age of the proof.
fn tolerance(parsed: &ParsedTrace<'_>) -> Duration {
    parsed.bounds.lag + parsed.bounds.slack + parsed.bounds.audit.unwrap_or_default()
}

/// Detects a read that is older than the version that the informer reported as reached while fresh.
fn check_read(parsed: &ParsedTrace<'_>, informer: &Informer<'_>, read: &StoreRead<'_>) -> Option<(Duration, String)> {
    let StoreRead { position, key, content } = read;
    let end = informer.freshness.partition_point(|(reported_at, _)| reported_at < position);
    // The latest report before the read is in force.
    let (reported_at, state) = informer.freshness[..end].last()?;
    let Freshness::Fresh { version, .. } = state else { return None };
    let timeline = parsed.timeline(informer, key);
    let missed_state_from =
        |from: usize| match timeline.find_content(content, from, parsed.latest_reflected(position.at)) {
            Some(TimelinePosition::Before(_)) => Some(&timeline.states[from]),
            _ => None,
        };
    // A server that loses an event still reports higher versions, so its versions prove nothing.
    let version: Option<u64> = version.parse().ok().filter(|_| informer.has_ordered_versions && !parsed.loses_events());
    let by_version = version
        .map(|version| timeline.index_at_version(parsed.epoch_of(informer, *reported_at), version))
        .and_then(missed_state_from);
    let visible_until = position.at.checked_sub(2 * parsed.bounds.period + tolerance(parsed));
    // Even without an order of versions, a change must be visible after two periods and the tolerated delays.
    let by_time =
        || visible_until.map(|visible_until| timeline.index_at_time(visible_until)).and_then(missed_state_from);
    let missed_state = by_version.or_else(by_time)?;
    Some((
        missed_state.at,
        format!("reported as `Fresh` while the cache held {content} and not v{}", missed_state.wire_version),
    ))
}
