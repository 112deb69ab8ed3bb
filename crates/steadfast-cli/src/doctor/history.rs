//! Check `history`: the number of versions before the current one from which a watch can still start.

use std::ops::ControlFlow;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use steadfast::unstable::catalog::ServedResource;

use super::context::CheckContext;
use super::finding::Finding;
use super::requests::{RequestError, get_json, stream_error, watch};
use crate::changes::text::plural;

/// Name of the check.
pub(super) const CHECK: &str = "history";

/// Numbers of versions before the current version at which a watch is tried.
const DISTANCES: [u64; 8] = [0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// A window of fewer versions is reported.
const MIN_WINDOW: u64 = 100;

/// Maximum wait for the first record of a watch.
const RECORD_DEADLINE: Duration = Duration::from_secs(3);

const REMEDY: &str = "check whether the API servers restart often; raise --default-watch-cache-size, or the size for this \
                      resource in --watch-cache-sizes, and the interval of etcd's compaction";

/// Tries watches of the first resource from older versions.
pub(super) async fn check(context: &CheckContext) -> Vec<Finding> {
    vec![check_resource(context, context.first_resource()).await]
}

async fn check_resource(context: &CheckContext, resource: &ServedResource) -> Finding {
    let path = context.path(resource);
    let current = match current_version(context, resource).await {
        Ok(version) => version.parse().ok(),
        Err(error) => return Finding::not_checked(CHECK, resource, error),
    };
    let Some(current): Option<u64> = current else {
        return Finding::not_checked(CHECK, resource, "the versions of this resource are not numbers");
    };
    // Version 0 selects any state, so 1 is the oldest version.
    let tried: Vec<u64> = DISTANCES.into_iter().filter(|distance| current > *distance).collect();
    let results = tried.iter().map(|distance| can_start(context, &path, current - distance));
    let mut working = None;
    let mut expired = None;
    for (distance, result) in tried.iter().zip(join_all(results).await) {
        match result {
            Ok(true) => working = Some(*distance),
            Ok(false) => expired = expired.or(Some(*distance)),
            Err(error) => return Finding::not_checked(CHECK, resource, error),
        }
    }
    evaluate(resource, working, expired).with_data(json!({"current": current, "works": working, "expired": expired}))
}

/// Judges the largest working and the smallest expired distance.
fn evaluate(resource: &ServedResource, working: Option<u64>, expired: Option<u64>) -> Finding {
    match (working, expired) {
        (None, _) => Finding::failure(
            CHECK,
            resource,
            "a watch from the current version expires immediately (410)",
            "each watch ends, and informers relist again and again",
            "check the clocks and logs of the API servers and of etcd; restart the API server that responds",
        ),
        (Some(works), Some(expired)) if works < MIN_WINDOW => Finding::warning(
            CHECK,
            resource,
            format!("a watch can start {} before the current one, but not {expired} (410)", plural(works, "version")),
            "after a short interruption, informers need a complete list instead of the missed changes",
            REMEDY,
        ),
        (Some(works), Some(expired)) => {
            let message = format!("a watch can start {works} versions before the current one, but not {expired}");
            Finding::ok(CHECK, resource, message)
        }
        (Some(works), None) => {
            let works = plural(works, "version");
            Finding::ok(CHECK, resource, format!("a watch can start {works} before the current one, or more"))
        }
    }
}

/// Returns the current version of the resource, by a consistent read.
pub(super) async fn current_version(context: &CheckContext, resource: &ServedResource) -> Result<String, RequestError> {
    let list = get_json(&context.connection, &format!("{}?limit=1", context.path(resource))).await?;
    let version = list.pointer("/metadata/resourceVersion").and_then(|version| version.as_str());
    let version = version.filter(|version| !version.is_empty());
    version.map(str::to_owned).ok_or_else(|| RequestError::Unreadable("the list has no resourceVersion".to_owned()))
}

/// Returns whether a watch can start at `version`. Reads only the first record.
async fn can_start(context: &CheckContext, path: &str, version: u64) -> Result<bool, RequestError> {
    let path = format!("{path}?watch=1&resourceVersion={version}&timeoutSeconds=1");
    let mut rejected = None;
    let ended = watch(&context.connection, &path, RECORD_DEADLINE, |record| {
        rejected = stream_error(&record);
        ControlFlow::Break(())
    });
    match ended.await.and_then(|()| rejected.map_or(Ok(()), Err)) {
        Ok(()) => Ok(true),
        Err(error) if error.status() == Some(410) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingSeverity;
    use super::*;
    use crate::discovery::default_resources;

    #[test]
    fn window_is_judged_by_its_length() {
        let pods = default_resources(None).remove(0);
        for (working, expired, severity) in [
            (None, Some(0), FindingSeverity::Failure),
            (Some(0), Some(1), FindingSeverity::Warning),
            (Some(10), None, FindingSeverity::Ok),
            (Some(100), Some(1_000), FindingSeverity::Ok),
        ] {
            assert_eq!(evaluate(&pods, working, expired).severity, severity, "{working:?} {expired:?}");
        }
    }
}
