//! Versions of a candidate, by which a coordinator chooses the leader.

use std::cmp::Ordering;

use semver::Version;
use steadfast::k8s_openapi::api::coordination::v1beta1::{LeaseCandidate, LeaseCandidateSpec};
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use steadfast::k8s_openapi::jiff::Timestamp;

use super::timing::ElectionError;

/// The only strategy of Kubernetes' coordinator.
const STRATEGY: &str = "OldestEmulationVersion";

/// Maximum length of a `LeaseCandidate` name.
const MAX_NAME_LENGTH: usize = 253;

/// Versions of a candidate in a coordinated election. The candidate with the oldest emulation version leads. The oldest
/// binary version, and then the oldest candidate, decides a tie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateVersions {
    binary: String,
    emulation: Option<String>,
}

impl CandidateVersions {
    /// Builds the versions of a candidate. `binary_version` is usually `env!("CARGO_PKG_VERSION")`: a semantic version
    /// without a leading `v`.
    pub fn new(binary_version: impl Into<String>) -> Self {
        Self { binary: binary_version.into(), emulation: None }
    }

    /// Sets the version whose behaviour the candidate emulates, at most the binary version. Defaults to the binary
    /// version.
    #[must_use]
    pub fn emulation_version(mut self, emulation_version: impl Into<String>) -> Self {
        self.emulation = Some(emulation_version.into());
        self
    }

    /// Checks the versions by the server's rules.
    pub(super) fn check(&self) -> Result<(), ElectionError> {
        let parsed = |version: &str| {
            Version::parse(version)
                .map_err(|problem| ElectionError::Version { version: version.to_owned(), problem: problem.to_string() })
        };
        let (binary, emulation) = (parsed(&self.binary)?, parsed(self.emulated())?);
        if emulation.cmp_precedence(&binary) == Ordering::Greater {
            let [binary_version, emulation_version] = [&self.binary, self.emulated()].map(ToString::to_string);
            return Err(ElectionError::EmulationVersion { emulation_version, binary_version });
        }
        if emulation.cmp_precedence(&Version::new(0, 0, 0)) == Ordering::Equal {
            let problem = "the server rejects version 0.0.0".to_owned();
            return Err(ElectionError::Version { version: self.emulated().to_owned(), problem });
        }
        Ok(())
    }

    fn emulated(&self) -> &str {
        self.emulation.as_ref().unwrap_or(&self.binary)
    }

    /// Builds the `LeaseCandidate` object `name` for the lease `lease`.
    pub(super) fn entry(&self, namespace: &str, name: &str, lease: &str, now: Timestamp) -> LeaseCandidate {
        LeaseCandidate {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            spec: LeaseCandidateSpec {
                lease_name: lease.to_owned(),
                binary_version: self.binary.clone(),
                emulation_version: Some(self.emulated().to_owned()),
                strategy: STRATEGY.to_owned(),
                renew_time: Some(MicroTime(now)),
                ..LeaseCandidateSpec::default()
            },
        }
    }
}

/// Returns true if `name` is a valid `LeaseCandidate` name.
pub(super) fn is_valid_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.starts_with('.') && (1..=MAX_NAME_LENGTH).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(versions: &CandidateVersions) -> String {
        versions.check().expect_err("rejected").to_string()
    }

    #[test]
    fn invalid_versions_are_rejected_locally() {
        for fine in ["1.2.3", "0.1.0", "1.30.0-alpha.1+build.7"] {
            assert_eq!(CandidateVersions::new(fine).check(), Ok(()), "{fine}");
        }
        assert_eq!(CandidateVersions::new("1.31.0").emulation_version("1.30.9").check(), Ok(()));
        assert_eq!(
            CandidateVersions::new("1.31.0+a").emulation_version("1.31.0+b").check(),
            Ok(()),
            "builds are not compared"
        );
        for not in ["", "v1.2.3", "1.2", "1.02.3", "1.2.3.4"] {
            assert!(rejection(&CandidateVersions::new(not)).contains("such as 1.2.0"), "{not}");
        }
        assert!(rejection(&CandidateVersions::new("0.0.0")).contains("rejects version 0.0.0"));
        let message = rejection(&CandidateVersions::new("1.30.0").emulation_version("1.31.0"));
        assert!(
            message.contains("1.31.0") && message.contains("later than") && message.contains("1.30.0"),
            "{message}"
        );
    }

    #[test]
    fn entry_contains_all_fields() {
        let entry =
            CandidateVersions::new("1.31.0").emulation_version("1.30.0").entry("ns", "me", "it", Timestamp::UNIX_EPOCH);
        assert_eq!((entry.metadata.namespace.as_deref(), entry.metadata.name.as_deref()), (Some("ns"), Some("me")));
        let spec = entry.spec;
        assert_eq!((spec.lease_name.as_str(), spec.strategy.as_str()), ("it", "OldestEmulationVersion"));
        assert_eq!((spec.binary_version.as_str(), spec.emulation_version.as_deref()), ("1.31.0", Some("1.30.0")));
        assert_eq!((spec.renew_time, spec.ping_time), (Some(MicroTime(Timestamp::UNIX_EPOCH)), None));
    }

    #[test]
    fn invalid_path_names_are_rejected() {
        assert!(is_valid_name("web-0.b_1f") && is_valid_name(&"a".repeat(253)));
        for not in ["", ".", "..a", "a/b", "a b", "ü", &"a".repeat(254)] {
            assert!(!is_valid_name(not), "{not}");
        }
    }
}
