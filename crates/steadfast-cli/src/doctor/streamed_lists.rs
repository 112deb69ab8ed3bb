//! Check `streamed lists`: whether the server sends initial objects as a stream (`sendInitialEvents`).

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::Value;
use steadfast::unstable::catalog::ServedResource;

use super::context::CheckContext;
use super::finding::Finding;
use super::requests::{RequestError, stream_error, watch};

/// Name of the check.
pub(super) const CHECK: &str = "streamed lists";

/// Maximum wait for the end of the initial objects.
const MARKER_DEADLINE: Duration = Duration::from_secs(4);

/// Name that selects no object: only the end marker of the stream matters.
pub(super) const NO_OBJECT: &str = "steadfast-doctor-selects-no-object";

const EFFECT: &str =
    "informers list pages instead: they start slower, and a large list takes more memory in the API server";

/// Requests an empty streamed list of the first resource.
pub(super) async fn check(context: &CheckContext) -> Vec<Finding> {
    vec![check_resource(context, context.first_resource()).await]
}

async fn check_resource(context: &CheckContext, resource: &ServedResource) -> Finding {
    let path = format!(
        "{}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5\
         &fieldSelector=metadata.name%3D{NO_OBJECT}",
        context.path(resource)
    );
    let mut marker = Marker::Missing;
    let ended = watch(&context.connection, &path, MARKER_DEADLINE, |record| {
        marker = Marker::of(&record);
        if marker == Marker::Missing { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let rejected = |reason: &str| {
        Finding::warning(
            CHECK,
            resource,
            format!("the server rejects streamed lists: {reason}"),
            EFFECT,
            "use Kubernetes 1.34 or later, or enable the feature gate WatchList of the API server",
        )
    };
    match ended.await {
        Ok(()) => match marker {
            Marker::Found => Finding::ok(CHECK, resource, "the server streams lists"),
            Marker::Rejected(reason) => rejected(&reason),
            Marker::Missing => Finding::warning(
                CHECK,
                resource,
                format!("the server did not end a streamed list of no objects within {} s", MARKER_DEADLINE.as_secs()),
                EFFECT,
                "use Kubernetes 1.34 or later; check whether a proxy removes the parameter sendInitialEvents",
            ),
        },
        Err(RequestError::Status(400 | 422, reason)) => rejected(&reason),
        Err(error) => Finding::not_checked(CHECK, resource, error),
    }
}

/// End marker of a streamed list.
#[derive(Debug, PartialEq)]
enum Marker {
    Found,
    Missing,
    Rejected(String),
}

impl Marker {
    fn of(record: &Value) -> Self {
        if let Some(RequestError::Status(_, reason)) = stream_error(record) {
            return Self::Rejected(reason);
        }
        let is_end = record.pointer("/object/metadata/annotations/k8s.io~1initial-events-end").is_some();
        if is_end && record["type"] == "BOOKMARK" { Self::Found } else { Self::Missing }
    }
}
