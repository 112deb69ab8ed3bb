//! Reasons why a candidate cannot read or write leases, such as a missing permission.

use std::fmt;

use parking_lot::{Mutex, MutexGuard};
use steadfast::kube;
use steadfast::kube::core::Status;

/// API group of leases and of their candidates.
const GROUP: &str = "coordination.k8s.io";

/// Reason why a candidate cannot read or write a lease: a missing permission, a missing namespace, or a server that
/// does not respond.
///
/// `Display` prints one sentence with the failed request, the cause, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseError {
    /// Verb of the request that failed, as a role states it: `get`, `list`, `watch`, `create`, `update` or `delete`.
    pub verb: &'static str,
    /// Resource of the request, in the API group `coordination.k8s.io`.
    pub resource: &'static str,
    /// HTTP code of the response, none if there was no response.
    pub code: Option<u16>,
    /// Full message: the failed request, the cause, and the remedy.
    pub message: String,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Description of a request for errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestInfo<'a> {
    pub(super) verb: &'static str,
    pub(super) resource: &'static str,
    pub(super) namespace: &'a str,
    /// None for a list.
    pub(super) name: Option<&'a str>,
}

impl RequestInfo<'_> {
    /// Returns the error of a request without a usable response, with this `reason`.
    pub(super) fn no_response(self, reason: impl fmt::Display) -> LeaseError {
        self.lease_error(None, &reason.to_string())
    }

    /// Returns the error of a request that returned an error.
    pub(super) fn error_response(self, error: &kube::Error) -> LeaseError {
        match error {
            kube::Error::Api(status) => self.lease_error(Some(status.code), &self.rejected(status)),
            error => self.no_response(error),
        }
    }

    fn rejected(self, Status { code, reason, message, details, .. }: &Status) -> String {
        let Self { verb, resource, namespace, .. } = self;
        let status_text = format!("{code} {reason}: {message}");
        let kind = details.as_ref().map(|details| details.kind.as_str());
        let mut causes = details.iter().flat_map(|details| &details.causes);
        match code {
            401 => format!("{status_text}; the server does not accept the credentials of this program"),
            403 if causes.any(|cause| cause.reason == "NamespaceTerminating") => {
                format!("{status_text}; the namespace is being deleted")
            }
            403 => format!(
                "{status_text}; grant the verb `{verb}` on `{resource}` in the API group `{GROUP}` in the namespace \
                 `{namespace}`"
            ),
            404 if kind == Some("namespaces") => {
                format!("{status_text}; create the namespace `{namespace}`, or name another one")
            }
            _ => status_text,
        }
    }

    fn lease_error(self, code: Option<u16>, reason: &str) -> LeaseError {
        let Self { verb, resource, namespace, name } = self;
        let name = name.map_or_else(String::new, |name| format!(" {name}"));
        let message = format!("cannot {verb} {resource}.{GROUP}{name} in namespace {namespace}: {reason}");
        LeaseError { verb, resource, code, message }
    }
}

/// Errors of one candidate: the last error of each cause since a success of the same verb and resource.
#[derive(Debug, Default)]
pub(super) struct LeaseErrors(Mutex<Vec<LeaseError>>);

impl LeaseErrors {
    /// Adds `lease_error`. Returns true if no error with the same cause is known, so that each cause is logged once.
    pub(super) fn add(&self, lease_error: LeaseError) -> bool {
        let mut lease_errors = self.lock();
        let cause = |lease_error: &LeaseError| (lease_error.verb, lease_error.resource, lease_error.code);
        let known = lease_errors.iter().position(|known| cause(known) == cause(&lease_error));
        if let Some(known) = known {
            lease_errors.remove(known);
        }
        lease_errors.push(lease_error);
        known.is_none()
    }

    /// Clears the errors of a verb and resource after a success, or when such a request is no longer needed.
    pub(super) fn end(&self, verb: &str, resource: &str) {
        self.lock().retain(|lease_error| lease_error.verb != verb || lease_error.resource != resource);
    }

    /// Clears all errors.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Returns the last error.
    pub(super) fn last(&self) -> Option<LeaseError> {
        self.lock().last().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LeaseError>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(verb: &'static str, code: u16) -> LeaseError {
        let info = RequestInfo { verb, resource: "leases", namespace: "default", name: Some("it") };
        let status = Status { code, reason: "Forbidden".into(), message: "no".into(), ..Status::default() };
        info.error_response(&kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn lease_error_is_new_once_for_each_cause() {
        let lease_errors = LeaseErrors::default();
        assert!(lease_errors.add(of("get", 403)));
        assert!(!lease_errors.add(of("get", 403)));
        assert!(lease_errors.add(of("get", 500)));
        assert!(!lease_errors.add(of("get", 403)));
        assert!(lease_errors.add(of("create", 403)));
        lease_errors.end("get", "leases");
        assert_eq!(lease_errors.last(), Some(of("create", 403)));
        assert!(lease_errors.add(of("get", 403)));
        lease_errors.clear();
        assert_eq!(lease_errors.last(), None);
    }

    #[test]
    fn missing_permission_is_fully_named() {
        assert_eq!(
            of("update", 403).to_string(),
            "cannot update leases.coordination.k8s.io it in namespace default: 403 Forbidden: no; grant the verb `update` \
             on \
             `leases` in the API group `coordination.k8s.io` in the namespace `default`"
        );
    }
}
