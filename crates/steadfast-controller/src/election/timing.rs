//! How long a lease lasts, and how much of it is used.

use std::sync::Arc;
use std::time::Duration;

use steadfast::k8s_openapi::jiff::Timestamp;

/// Says what the wall clock says.
pub(super) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// By how much a retry period may be drawn out, so that candidates do not ask in step: client-go's `JitterFactor`.
pub(super) const JITTER: f64 = 1.2;

/// The part of a lease within which its holder may act at most, whatever its renew deadline: the rest is for what it has sent
/// to arrive and to be acted on, and for clocks that do not run alike.
const ACTING: f64 = 0.8;

/// Why there is no such election.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// A lease lasts whole seconds, as `leaseDurationSeconds` says it.
    #[error(
        "a lease cannot last {0:?}: give it whole seconds, 1 s to 2³¹ s, for that is what leaseDurationSeconds can say"
    )]
    LeaseDuration(Duration),
    /// The leader would act when another may have the lease.
    #[error(
        "with a renew deadline of {renew_deadline:?} a leader acts longer than its lease of {lease_duration:?} may last: raise the \
         lease duration, or lower the renew deadline"
    )]
    RenewDeadline {
        /// How long a leader tries to renew.
        renew_deadline: Duration,
        /// How long others wait for it.
        lease_duration: Duration,
    },
    /// The leader would not try to renew in time.
    #[error(
        "with a retry period of {retry_period:?}, drawn out by up to 1.2 of it, a leader does not come to renew within \
         {renew_deadline:?}: lower the retry period below {:?}, but not to 0, or raise the renew deadline and the lease duration", .renew_deadline.div_f64(JITTER)
    )]
    RetryPeriod {
        /// How often is tried.
        retry_period: Duration,
        /// How long a leader tries to renew: four fifths of the lease duration at most.
        renew_deadline: Duration,
    },
    /// Nobody would hold the lease.
    #[error("the identity is empty, which in a lease means that nobody holds it: give it a name, such as the pod's")]
    Identity,
    /// No lease can be called so.
    #[error(
        "{0:?} cannot be the name of a group, which labels leases and begins their names: take 1 to 63 of a-z, 0-9 and -, with no - \
         at either end"
    )]
    Group(String),
    /// No semantic version, by which a coordinator compares.
    #[error(
        "{version:?} is not the version of a candidate: {problem}; give it three numbers, such as 1.2.0, and no v before them"
    )]
    Version {
        /// The version given.
        version: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It would behave as what it does not know yet.
    #[error(
        "the emulation version {emulation_version} is later than that of the binary, {binary_version}: give it that one or an earlier \
         one"
    )]
    EmulationVersion {
        /// As which it behaves.
        emulation_version: String,
        /// What it is.
        binary_version: String,
    },
    /// The name of the candidate's object.
    #[error(
        "{0:?} cannot be the name of a LeaseCandidate, which the identity of a coordinated candidate is, with an ending of 17 \
         characters: take 1 to 236 of a-z, A-Z, 0-9, -, _ and ., not beginning with a ."
    )]
    CandidateName(String),
    /// No coordinator.
    #[error(
        "the server has no LeaseCandidates (coordination.k8s.io/v1beta1), and so nobody who coordinates: start kube-apiserver with \
         --feature-gates=CoordinatedLeaderElection=true and --runtime-config=coordination.k8s.io/v1beta1=true, or leave \
         `coordinated` out in all candidates"
    )]
    NotCoordinated,
    /// There is no such lease.
    #[error("a lease needs a namespace and a name, and has {namespace:?} and {name:?}")]
    Name {
        /// The namespace given.
        namespace: String,
        /// The name given.
        name: String,
    },
}

/// How long a lease lasts, and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    /// How long the others wait for a holder of whom nothing is seen.
    pub(super) lease: Duration,
    /// How long a holder goes on that cannot renew.
    pub(super) renew: Duration,
    /// How often is tried.
    pub(super) retry: Duration,
}

impl Default for Timing {
    /// The values of client-go's and Kubernetes' own components.
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

impl Timing {
    /// What is wrong with it, if something is: client-go's rules.
    pub(super) fn check(&self) -> Result<(), ElectionError> {
        let Self { lease, renew, retry } = *self;
        if lease.subsec_nanos() != 0 || lease.is_zero() || i32::try_from(lease.as_secs()).is_err() {
            return Err(ElectionError::LeaseDuration(lease));
        }
        if renew >= lease {
            return Err(ElectionError::RenewDeadline { renew_deadline: renew, lease_duration: lease });
        }
        // It acts no longer than that, whatever the deadline.
        let acting = self.acting();
        if retry.is_zero() || retry >= acting || acting <= retry.mul_f64(JITTER) {
            return Err(ElectionError::RetryPeriod { retry_period: retry, renew_deadline: acting });
        }
        Ok(())
    }

    /// How long a holder may act after it has sent what renewed its lease.
    pub(super) fn acting(&self) -> Duration {
        self.renew.min(self.lease.mul_f64(ACTING))
    }

    /// How long after that nobody can have acquired the lease.
    pub(super) fn margin(&self) -> Duration {
        self.lease.saturating_sub(self.acting())
    }

    /// How long one request may take: there is time for another, as in client-go.
    pub(super) fn patience(&self) -> Duration {
        self.acting() / 2
    }

    /// `leaseDurationSeconds`.
    pub(super) fn seconds(&self) -> i32 {
        i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX)
    }
}

debug_as_message!(ElectionError);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lease: f64, renew: f64, retry: f64) -> Timing {
        let [lease, renew, retry] = [lease, renew, retry].map(Duration::from_secs_f64);
        Timing { lease, renew, retry }
    }

    #[test]
    fn the_usual_values_leave_a_third_of_the_lease_unused() {
        let usual = Timing::default();
        assert_eq!(usual.check(), Ok(()));
        assert_eq!((usual.acting(), usual.margin()), (Duration::from_secs(10), Duration::from_secs(5)));
        assert_eq!(usual.seconds(), 15);
    }

    #[test]
    fn what_cannot_work_is_refused_and_says_what_to_change() {
        let told = |timing: Timing| timing.check().expect_err("refused").to_string();
        for lease in [0.0, 0.5, 1.5, 3e9] {
            assert!(told(of(lease, 0.4, 0.1)).contains("whole seconds"), "{lease}");
        }
        assert!(told(of(10.0, 10.0, 2.0)).contains("raise the lease duration"));
        assert!(told(of(15.0, 2.4, 2.0)).contains("below 2s"));
        assert!(told(of(15.0, 10.0, 0.0)).contains("not to 0"));
        assert_eq!(of(1.0, 0.5, 0.1).check(), Ok(()), "a second is short, and enough on one machine");
    }

    #[test]
    fn a_fifth_of_the_lease_is_never_acted_in() {
        let close = of(10.0, 9.9, 2.0);
        assert_eq!(close.check(), Ok(()), "client-go takes that too");
        assert_eq!((close.acting(), close.margin()), (Duration::from_secs(8), Duration::from_secs(2)));
    }
}
