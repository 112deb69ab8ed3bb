//! Contents of a lease, as client-go writes them, so that `kubectl` shows the usual fields and client-go's candidates
//! can compete.

use std::time::Duration;

use steadfast::k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use steadfast::k8s_openapi::jiff::{Timestamp, TimestampRound, Unit};

use super::timing::Timing;

/// Returns the holder. None if the lease was released or never held.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    // client-go writes an empty holder on release. Neither an absent nor an empty field names a holder.
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Returns the duration in the lease, or our own if the lease states none.
pub(super) fn duration(lease: &Lease, timing: &Timing) -> Duration {
    let duration = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    duration
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0)
        .map_or(timing.lease, Duration::from_secs)
}

/// Returns the UID.
pub(super) fn uid(lease: &Lease) -> &str {
    lease.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns true if a coordinator manages the lease.
pub(super) fn is_coordinated(lease: &Lease) -> bool {
    lease.spec.as_ref().and_then(|spec| spec.strategy.as_deref()).is_some_and(|strategy| !strategy.is_empty())
}

/// Returns the candidate that the coordinator prefers to the holder.
pub(super) fn preferred(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.preferred_holder.as_deref().filter(|preferred| !preferred.is_empty())
}

/// Returns true if the holder released the lease: the name is empty, not missing.
pub(super) fn is_released(lease: &Lease) -> bool {
    lease.spec.as_ref().is_some_and(|spec| spec.holder_identity.as_deref() == Some(""))
}

/// Returns true if the lease was ever held. Holders count transitions; coordinators do not.
pub(super) fn was_held(lease: &Lease) -> bool {
    lease.spec.as_ref().is_some_and(|spec| spec.lease_transitions.is_some())
}

/// Returns the resource version.
pub(super) fn version(lease: &Lease) -> &str {
    lease.metadata.resource_version.as_deref().unwrap_or_default()
}

/// Returns the resource version as a number, which increases with each write of the lease, even after recreation. If
/// the version is not numeric, returns the number of transitions instead.
pub(super) fn token(lease: &Lease) -> u64 {
    let transitions = || lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    // A resource version is a revision of etcd, which grows with each write. Some servers have opaque versions.
    version(lease).parse().unwrap_or_else(|_| u64::try_from(transitions()).unwrap_or_default())
}

/// Returns the acquire time written by the holder.
pub(super) fn acquired(lease: &Lease) -> Option<&MicroTime> {
    lease.spec.as_ref()?.acquire_time.as_ref()
}

/// Builds a new lease held by `identity`.
pub(super) fn created(namespace: &str, name: &str, identity: &str, timing: &Timing, wall_time: Timestamp) -> Lease {
    let metadata =
        ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() };
    let now = Some(MicroTime(in_micros(wall_time)));
    let spec = LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(timing.seconds()),
        acquire_time: now.clone(),
        renew_time: now,
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    Lease { metadata, spec: Some(spec) }
}

/// Builds an update of `lease` that renews or acquires it for `identity`. All other fields stay.
pub(super) fn held(lease: &Lease, identity: &str, timing: &Timing, wall_time: Timestamp) -> Lease {
    let same = holder(lease) == Some(identity);
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    let now = later(wall_time, spec.renew_time.as_ref());
    if !same {
        spec.holder_identity = Some(identity.to_owned());
        spec.acquire_time = Some(now.clone());
        // client-go counts a transition on each change of the holder, including a takeover from no holder.
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        // A holder without coordinator clears these fields.
        spec.strategy = None;
        spec.preferred_holder = None;
    }
    spec.renew_time = Some(now);
    spec.lease_duration_seconds = Some(timing.seconds());
    lease
}

/// Builds an update that accepts a lease assigned by a coordinator.
pub(super) fn accepted(lease: &Lease, timing: &Timing, wall_time: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    let now = later(wall_time, spec.renew_time.as_ref());
    spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |before| before.saturating_add(1)));
    spec.lease_duration_seconds = Some(timing.seconds());
    spec.acquire_time = Some(now.clone());
    spec.renew_time = Some(now);
    lease
}

/// Builds an update that releases the lease.
pub(super) fn released(lease: &Lease, wall_time: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    let now = later(wall_time, spec.renew_time.as_ref());
    // The holder is empty, as in client-go, because the coordinator of Kubernetes panics on a missing field.
    spec.holder_identity = Some(String::new());
    spec.preferred_holder = None;
    // One second, because a candidate that ignores the empty holder waits for this duration.
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(now.clone());
    spec.renew_time = Some(now);
    lease
}

/// Returns the wall clock, plus one microsecond if the lease already has this time.
fn later(wall_time: Timestamp, before: Option<&MicroTime>) -> MicroTime {
    let now = in_micros(wall_time);
    // The server does not store an update without a change. Other candidates would see no renewal.
    let same = before.is_some_and(|before| before.0 == now);
    let next = now.checked_add(Duration::from_micros(1)).unwrap_or(Timestamp::UNIX_EPOCH);
    MicroTime(if same { next } else { now })
}

/// Rounds to the precision of the API.
fn in_micros(wall_time: Timestamp) -> Timestamp {
    // MicroTime has microseconds. Unrounded times would differ from the stored value.
    wall_time.round(TimestampRound::new().smallest(Unit::Microsecond)).unwrap_or(wall_time)
}
