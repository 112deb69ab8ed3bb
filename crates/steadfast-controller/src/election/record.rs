//! What is written into a lease, as client-go writes it: `kubectl` shows the usual, and its clients may compete for it.

use std::time::Duration;

use steadfast::k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use steadfast::k8s_openapi::jiff::{Timestamp, TimestampRound, Unit};

use super::timing::Timing;

/// Who holds the lease; nobody, where it is released or was never held.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// How long the lease lasts by what it says, or as long as ours would.
pub(super) fn duration(lease: &Lease, timing: &Timing) -> Duration {
    let said = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    said.and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0)
        .map_or(timing.lease, Duration::from_secs)
}

/// Which of all the leases that ever had this name it is.
pub(super) fn uid(lease: &Lease) -> &str {
    lease.metadata.uid.as_deref().unwrap_or_default()
}

/// A lease that was not there, held by `identity`.
pub(super) fn created(namespace: &str, name: &str, identity: &str, timing: &Timing, wall: Timestamp) -> Lease {
    let metadata =
        ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() };
    let now = Some(MicroTime(in_micros(wall)));
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

/// `lease` held by `identity`, renewed or acquired; an update of the version that it has, and of nothing else in it.
pub(super) fn held(lease: &Lease, identity: &str, timing: &Timing, wall: Timestamp) -> Lease {
    let same = holder(lease) == Some(identity);
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    let now = later(wall, spec.renew_time.as_ref());
    if !same {
        spec.holder_identity = Some(identity.to_owned());
        spec.acquire_time = Some(now.clone());
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    }
    spec.renew_time = Some(now);
    spec.lease_duration_seconds = Some(timing.seconds());
    lease
}

/// `lease` held by nobody, an update of the version that it has.
pub(super) fn released(lease: &Lease, wall: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    let now = later(wall, spec.renew_time.as_ref());
    spec.holder_identity = None;
    // For those that do not look who holds it.
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(now.clone());
    spec.renew_time = Some(now);
    lease
}

/// The time of the wall clock; a microsecond beside what the lease has, if it is the same: a record that does not change
/// is no renewal to the others, and to a server no write.
fn later(wall: Timestamp, before: Option<&MicroTime>) -> MicroTime {
    let now = in_micros(wall);
    let same = before.is_some_and(|before| before.0 == now);
    let next = now.checked_add(Duration::from_micros(1)).unwrap_or(Timestamp::UNIX_EPOCH);
    MicroTime(if same { next } else { now })
}

/// What the wire has of it.
fn in_micros(wall: Timestamp) -> Timestamp {
    wall.round(TimestampRound::new().smallest(Unit::Microsecond)).unwrap_or(wall)
}
