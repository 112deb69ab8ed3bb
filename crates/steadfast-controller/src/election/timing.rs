//! Durations of an election.

use std::time::Duration;

use super::fault_injection::ElectionFaults;

/// Jitter factor of client-go: a candidate waits between 1 and 2.2 retry periods. Prevents synchronized requests.
pub(super) const JITTER: f64 = 1.2;

/// Maximum fraction of the lease duration in which its holder acts. A longer renew deadline is shortened to this
/// fraction. The rest covers requests in flight, their processing, and different clock rates.
const MAX_ACTING_FRACTION: f64 = 0.8;

/// Error that prevents an election or sharding.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The lease duration is not a valid `leaseDurationSeconds`.
    #[error("invalid lease duration {0:?}; use whole seconds from 1 s to 2³¹ - 1 s, the range of leaseDurationSeconds")]
    LeaseDuration(Duration),
    /// The renew deadline is not below the lease duration.
    #[error(
        "the renew deadline {renew_deadline:?} is not below the lease duration {lease_duration:?}; raise the lease \
         duration, or lower the renew deadline"
    )]
    RenewDeadline {
        /// The renew deadline.
        renew_deadline: Duration,
        /// The lease duration.
        lease_duration: Duration,
    },
    /// The retry period with its jitter is not below the time for which the leader may act without a renewal.
    #[error(
        "the retry period {retry_period:?} times 1.2 for jitter is not below {renew_deadline:?}; lower the retry \
         period below {:?}, but not to 0, or raise the renew deadline and the lease duration",
         .renew_deadline.div_f64(JITTER)
    )]
    RetryPeriod {
        /// The retry period.
        retry_period: Duration,
        /// The renew deadline, limited to four fifths of the lease duration.
        renew_deadline: Duration,
    },
    /// The identity is empty.
    #[error("the identity is empty; an empty holderIdentity marks a free lease; use a name, such as the pod's name")]
    Identity,
    /// The group is not a valid lease name prefix.
    #[error("{0:?} is not a valid group; use 1 to 63 characters of a-z, 0-9 and -, without - at either end")]
    Group(String),
    /// The version is not a semantic version.
    #[error(
        "{version:?} is not a valid candidate version: {problem}; use three numbers such as 1.2.0 without a leading v"
    )]
    Version {
        /// The rejected version.
        version: String,
        /// The reason.
        problem: String,
    },
    /// The emulation version is later than the binary version.
    #[error(
        "the emulation version {emulation_version} is later than the binary version {binary_version}; use at most the \
         binary version"
    )]
    EmulationVersion {
        /// The emulation version.
        emulation_version: String,
        /// The binary version.
        binary_version: String,
    },
    /// The identity is not a valid `LeaseCandidate` name.
    #[error(
        "{0:?} with a suffix of 17 characters is not a valid LeaseCandidate name; use an identity of 1 to 236 characters \
         of a-z, A-Z, 0-9, -, _ and ., without a leading ."
    )]
    CandidateName(String),
    /// The server has no coordinator.
    #[error(
        "the server has no LeaseCandidates (coordination.k8s.io/v1beta1) and therefore no coordinator; start \
         kube-apiserver with \
         --feature-gates=CoordinatedLeaderElection=true and --runtime-config=coordination.k8s.io/v1beta1=true, or leave \
         `coordinated` out in all candidates"
    )]
    NotCoordinated,
    /// The namespace or the name is empty.
    #[error("a lease needs a namespace and a name; the namespace is {namespace:?} and the name {name:?}")]
    Name {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
}

/// Durations of an election, and the faults that a test injects into its protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Time after which other candidates take over from a silent holder.
    pub(super) lease: Duration,
    /// Time for which a holder without a renewal keeps acting.
    pub(super) renew: Duration,
    /// Interval between attempts.
    pub(super) retry: Duration,
    pub(super) faults: ElectionFaults,
}

impl Default for Timing {
    /// The defaults of client-go and of Kubernetes' components: 15 s, 10 s and 2 s.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            faults: ElectionFaults::default(),
        }
    }
}

impl Timing {
    /// Checks the durations by client-go's rules.
    pub(super) fn check(&self) -> Result<(), ElectionError> {
        let Self { lease, renew, retry, .. } = *self;
        if lease.subsec_nanos() != 0 || lease.is_zero() || i32::try_from(lease.as_secs()).is_err() {
            return Err(ElectionError::LeaseDuration(lease));
        }
        if renew >= lease {
            return Err(ElectionError::RenewDeadline { renew_deadline: renew, lease_duration: lease });
        }
        // The acting time may be shorter than the renew deadline.
        let acting = self.acting_time();
        if retry.is_zero() || retry >= acting || acting <= retry.mul_f64(JITTER) {
            return Err(ElectionError::RetryPeriod { retry_period: retry, renew_deadline: acting });
        }
        Ok(())
    }

    /// Returns the time for which a holder may act after sending a renewal.
    pub(super) fn acting_time(&self) -> Duration {
        self.renew.min(self.lease.mul_f64(MAX_ACTING_FRACTION))
    }

    /// Returns the time after the acting time in which no other candidate can acquire the lease.
    pub(super) fn margin(&self) -> Duration {
        self.lease.saturating_sub(self.acting_time())
    }

    /// Returns the timeout of one request: half the acting time, so that a second attempt is possible, as in client-go.
    pub(super) fn request_timeout(&self) -> Duration {
        self.acting_time() / 2
    }

    /// Returns `leaseDurationSeconds`.
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
        Timing { lease, renew, retry, ..Timing::default() }
    }

    #[test]
    fn default_margin_is_a_third_of_the_lease() {
        let default = Timing::default();
        assert_eq!(default.check(), Ok(()));
        assert_eq!((default.acting_time(), default.margin()), (Duration::from_secs(10), Duration::from_secs(5)));
        assert_eq!(default.seconds(), 15);
    }

    #[test]
    fn invalid_durations_are_rejected_with_advice() {
        let message = |timing: Timing| timing.check().expect_err("rejected").to_string();
        for lease in [0.0, 0.5, 1.5, 3e9] {
            assert!(message(of(lease, 0.4, 0.1)).contains("whole seconds"), "{lease}");
        }
        assert!(message(of(10.0, 10.0, 2.0)).contains("raise the lease duration"));
        assert!(message(of(15.0, 2.4, 2.0)).contains("below 2s"));
        assert!(message(of(15.0, 10.0, 0.0)).contains("not to 0"));
        assert_eq!(of(1.0, 0.5, 0.1).check(), Ok(()), "one second is valid");
    }

    #[test]
    fn acting_time_is_limited_to_four_fifths() {
        let close = of(10.0, 9.9, 2.0);
        assert_eq!(close.check(), Ok(()), "client-go accepts this too");
        assert_eq!((close.acting_time(), close.margin()), (Duration::from_secs(8), Duration::from_secs(2)));
    }
}
