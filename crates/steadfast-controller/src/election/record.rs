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

/// Whether a coordinator says who is to hold the lease, or has said so.
pub(super) fn is_coordinated(lease: &Lease) -> bool {
    lease.spec.as_ref().and_then(|spec| spec.strategy.as_deref()).is_some_and(|strategy| !strategy.is_empty())
}

/// Whom the coordinator wants to hold the lease instead.
pub(super) fn preferred(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.preferred_holder.as_deref().filter(|preferred| !preferred.is_empty())
}

/// Whether its holder has given it up: the name is empty, and not only missing.
pub(super) fn is_released(lease: &Lease) -> bool {
    lease.spec.as_ref().is_some_and(|spec| spec.holder_identity.as_deref() == Some(""))
}

/// Whether anybody has ever held it: holders count, and coordinators do not.
pub(super) fn was_held(lease: &Lease) -> bool {
    lease.spec.as_ref().is_some_and(|spec| spec.lease_transitions.is_some())
}

/// Which of all its states it is.
pub(super) fn version(lease: &Lease) -> &str {
    lease.metadata.resource_version.as_deref().unwrap_or_default()
}

/// A number that is higher for each later write of the lease, also of one that was created again. Versions are revisions of the
/// server's database; where they are not numbers, the transitions count.
pub(super) fn token(lease: &Lease) -> u64 {
    let transitions = || lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    version(lease).parse().unwrap_or_else(|_| u64::try_from(transitions()).unwrap_or_default())
}

/// Since when it is held, as its holder has written.
pub(super) fn acquired(lease: &Lease) -> Option<&MicroTime> {
    lease.spec.as_ref()?.acquire_time.as_ref()
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
        // Nobody coordinates who takes it.
        spec.strategy = None;
        spec.preferred_holder = None;
    }
    spec.renew_time = Some(now);
    spec.lease_duration_seconds = Some(timing.seconds());
    lease
}

/// `lease`, which a coordinator gives to us, held from now on; an update of the version that it has.
pub(super) fn taken_up(lease: &Lease, timing: &Timing, wall: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    let now = later(wall, spec.renew_time.as_ref());
    spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |before| before.saturating_add(1)));
    spec.lease_duration_seconds = Some(timing.seconds());
    spec.acquire_time = Some(now.clone());
    spec.renew_time = Some(now);
    lease
}

/// `lease` held by nobody, an update of the version that it has.
pub(super) fn released(lease: &Lease, wall: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    let now = later(wall, spec.renew_time.as_ref());
    // Empty, as client-go writes it: at a field that is missing the coordinator of Kubernetes panics.
    spec.holder_identity = Some(String::new());
    spec.preferred_holder = None;
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
