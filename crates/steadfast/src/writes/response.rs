//! Response of the server to a write.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde::Deserialize;
use steadfast_core::{ResourceVersion, Uid};

use super::{ObjectLabels, Outcome, Write, object_key};
use crate::environment::SharedEnvironment;

/// Maximum number of response bytes that are parsed. etcd stores objects of up to 1.5 MiB.
const MAX_PARSED_BYTES: usize = 16 * 1024 * 1024;

/// Observer of a write and its response. If the observer is dropped early, the outcome stays uncertain.
pub(crate) struct WriteObserver {
    write: Arc<Write>,
    environment: SharedEnvironment,
    is_delete: bool,
    /// True if the server may have executed an earlier attempt.
    may_have_executed: bool,
    body_bytes: Vec<u8>,
}

/// Fields read from an object or a `Status`.
#[derive(Deserialize)]
struct ResponseFields {
    kind: Option<String>,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(default)]
    finalizers: Vec<String>,
    labels: Option<ObjectLabels>,
}

/// Object that a `Status` refers to.
#[derive(Default, Deserialize)]
struct Details {
    uid: Option<String>,
}

impl WriteObserver {
    /// Starts to observe `write`, a request with `method`.
    pub(crate) fn new(write: Arc<Write>, method: &Method, environment: SharedEnvironment) -> Self {
        Self {
            write,
            environment,
            is_delete: *method == Method::DELETE,
            may_have_executed: false,
            body_bytes: Vec::new(),
        }
    }

    /// Records that an attempt was rejected as overloaded and will be repeated. A proxy may return `503` after the
    /// server has executed the request.
    pub(crate) fn record_retry(&mut self, busy: StatusCode) {
        self.may_have_executed |= busy.is_server_error();
    }

    /// Records that no byte of the last attempt reached the server.
    pub(crate) fn not_sent(&self) {
        self.rejected();
    }

    /// Processes the response head. Returns true if the body must be [observed](Self::observe).
    pub(crate) fn response_head(&self, status: StatusCode) -> bool {
        // A proxy may return a timeout after the server has executed the request.
        if status.is_redirection() || (status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT) {
            self.rejected();
        }
        status.is_success()
    }

    fn rejected(&self) {
        if !self.may_have_executed {
            self.write.set_outcome(Outcome::NoEffect);
        }
    }

    /// Processes a chunk of the body.
    pub(crate) fn observe(&mut self, data: &[u8]) {
        if self.body_bytes.len() <= MAX_PARSED_BYTES {
            self.body_bytes.extend_from_slice(data);
        }
    }

    /// Processes the end of the body.
    pub(crate) fn complete(self) {
        // Without a version, the write is finished but its version is unknown. Any later version of the server includes
        // the write, so the outcome stores no time.
        let outcome = if self.body_bytes.len() <= MAX_PARSED_BYTES { self.read() } else { None };
        self.write.set_outcome(outcome.unwrap_or(Outcome::Unknown(None)));
    }

    /// Returns the outcome of the write by its response, or `None` if the response does not show the outcome.
    fn read(&self) -> Option<Outcome> {
        let response: ResponseFields = serde_json::from_slice(&self.body_bytes).ok()?;
        let target = self.write.target();
        let meta = response.metadata;
        let name = meta.name.as_deref().or(target.name.as_deref())?;
        // A deletion without finalizers returns a `Status` with the UID in `details`, or the deleted object.
        let uid = |uid: Option<&str>| uid.filter(|uid| !uid.is_empty()).map(Uid::from);
        if response.kind.as_deref() == Some("Status") {
            let key = object_key(target.namespace.as_deref(), target.name.as_deref()?);
            let deleted = Outcome::Deleted { key, uid: Some(uid(response.details.uid.as_deref())?), version: None };
            return self.is_delete.then_some(deleted);
        }
        // A deletion without a name concerns a collection, and has no single outcome.
        target.name.as_deref().or((!self.is_delete).then_some(name))?;
        let key = object_key(meta.namespace.as_deref().or(target.namespace.as_deref()), name);
        let version = meta.resource_version.as_deref().filter(|version| !version.is_empty()).map(ResourceVersion::from);
        // Namespaces have finalizers in `spec`, and are never deleted immediately.
        let is_namespace = (target.group.as_str(), target.plural.as_str()) == ("", "namespaces");
        let has_grace_period = meta.deletion_grace_period_seconds.unwrap_or_default() > 0;
        let remains = is_namespace || !meta.finalizers.is_empty() || has_grace_period;
        // A deletion with finalizers or a grace period only sets `deletionTimestamp`. An update that removes the last
        // finalizer of such an object deletes it.
        let is_deleted = if self.is_delete {
            meta.deletion_timestamp.is_none() || !remains
        } else {
            meta.deletion_timestamp.is_some() && !remains
        };
        if is_deleted {
            return Some(Outcome::Deleted { key, uid: uid(meta.uid.as_deref()), version });
        }
        Some(Outcome::Stored { key, version: version?, labels: meta.labels })
    }
}

impl Drop for WriteObserver {
    fn drop(&mut self) {
        self.write.set_outcome(Outcome::Unknown(Some(self.environment.now())));
    }
}

#[cfg(test)]
mod tests {
    use steadfast_core::ObjectKey;

    use super::*;
    use crate::environment::local::LocalEnvironment;
    use crate::writes::WriteTarget;

    fn after(method: &Method, name: Option<&str>, observe: impl FnOnce(WriteObserver)) -> Outcome {
        let target = WriteTarget {
            group: String::new(),
            plural: "pods".into(),
            namespace: Some("shop".into()),
            name: name.map(str::to_owned),
        };
        let write = Arc::new(Write::new(None, target, Outcome::Pending));
        observe(WriteObserver::new(write.clone(), method, Arc::new(LocalEnvironment::over_tcp(1))));
        write.outcome()
    }

    fn outcome_of(method: &Method, name: Option<&str>, body: &str) -> Outcome {
        after(method, name, |mut observer| {
            assert!(observer.response_head(StatusCode::OK));
            let (begin, end) = body.as_bytes().split_at(body.len() / 2);
            observer.observe(begin);
            observer.observe(end);
            observer.complete();
        })
    }

    #[test]
    fn terminating_namespace_exists_until_finalized() {
        let target = WriteTarget {
            group: String::new(),
            plural: "namespaces".into(),
            namespace: None,
            name: Some("web".into()),
        };
        let write = Arc::new(Write::new(None, target, Outcome::Pending));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let _current = runtime.enter();
        let mut observer = WriteObserver::new(write.clone(), &Method::DELETE, Arc::new(LocalEnvironment::over_tcp(1)));
        let response = r#"{"kind":"Namespace","metadata":{"name":"web","uid":"u","resourceVersion":"7","deletionTimestamp":"t"},
            "spec":{"finalizers":["kubernetes"]}}"#;
        observer.observe(response.as_bytes());
        observer.complete();
        let stored = Outcome::Stored { key: ObjectKey::cluster("web"), version: "7".into(), labels: None };
        assert_eq!(write.outcome(), stored);
    }

    fn web() -> ObjectKey {
        ObjectKey::namespaced("shop", "web")
    }

    const POD: &str = r#"{"kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7"}}"#;

    #[tokio::test]
    async fn response_version_becomes_outcome() {
        let stored = Outcome::Stored { key: web(), version: "7".into(), labels: None };
        assert_eq!(outcome_of(&Method::POST, None, POD), stored);
        assert_eq!(outcome_of(&Method::PUT, Some("web"), POD), stored);
        let deleted = POD.replace(r#""uid""#, r#""deletionTimestamp":"t","finalizers":["f"],"uid""#);
        assert_eq!(outcome_of(&Method::DELETE, Some("web"), &deleted), stored);
        let graceful = POD.replace(r#""uid""#, r#""deletionTimestamp":"t","deletionGracePeriodSeconds":30,"uid""#);
        assert_eq!(outcome_of(&Method::DELETE, Some("web"), &graceful), stored);
        assert_eq!(outcome_of(&Method::PATCH, Some("web"), &graceful), stored);
    }

    #[tokio::test]
    async fn delete_without_finalizers_removes_object() {
        let deleted = |version: Option<&str>| Outcome::Deleted {
            key: web(),
            uid: Some("u".into()),
            version: version.map(ResourceVersion::from),
        };
        assert_eq!(outcome_of(&Method::DELETE, Some("web"), POD), deleted(Some("7")));
        let last = POD.replace(r#""uid""#, r#""deletionTimestamp":"t","deletionGracePeriodSeconds":0,"uid""#);
        assert_eq!(outcome_of(&Method::PUT, Some("web"), &last), deleted(Some("7")));
        let status = r#"{"kind":"Status","metadata":{},"status":"Success","details":{"name":"web","uid":"u"}}"#;
        assert_eq!(outcome_of(&Method::DELETE, Some("web"), status), deleted(None));
    }

    #[tokio::test]
    async fn rejection_without_earlier_execution_has_no_effect() {
        let rejected = |observer: WriteObserver| assert!(!observer.response_head(StatusCode::CONFLICT));
        assert_eq!(after(&Method::POST, None, rejected), Outcome::NoEffect);
        assert_eq!(after(&Method::POST, None, |observer| observer.not_sent()), Outcome::NoEffect);
        let on_retry = |mut observer: WriteObserver| {
            observer.record_retry(StatusCode::TOO_MANY_REQUESTS);
            rejected(observer);
        };
        assert_eq!(after(&Method::POST, None, on_retry), Outcome::NoEffect);
        let on_retry = |mut observer: WriteObserver| {
            observer.record_retry(StatusCode::SERVICE_UNAVAILABLE);
            rejected(observer);
        };
        assert!(matches!(after(&Method::POST, None, on_retry), Outcome::Unknown(_)));
    }

    #[tokio::test]
    async fn missing_response_version_leaves_write_unconfirmed() {
        let unknown = |outcome: Outcome| assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
        unknown(after(&Method::POST, None, drop));
        unknown(after(&Method::POST, None, |observer| {
            assert!(!observer.response_head(StatusCode::INTERNAL_SERVER_ERROR));
        }));
        unknown(after(&Method::POST, None, |mut observer| {
            assert!(observer.response_head(StatusCode::CREATED));
            observer.observe(POD.as_bytes());
            // The body is still incomplete.
        }));
        unknown(outcome_of(&Method::POST, None, "{"));
        unknown(outcome_of(
            &Method::DELETE,
            None,
            r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}"#,
        ));
        unknown(outcome_of(&Method::POST, Some("web"), r#"{"kind":"Status","metadata":{},"status":"Success"}"#));
        unknown(outcome_of(&Method::POST, None, r#"{"kind":"Pod","metadata":{"name":"web"}}"#));
    }

    #[tokio::test]
    async fn oversized_response_is_not_buffered() {
        let outcome = after(&Method::POST, None, |mut observer| {
            let piece = vec![b' '; MAX_PARSED_BYTES / 2 + 1];
            for _ in 0..8 {
                observer.observe(&piece);
            }
            assert!(observer.body_bytes.len() <= 2 * piece.len());
            observer.complete();
        });
        assert!(matches!(outcome, Outcome::Unknown(_)));
    }
}
