//! Revisions of reads, and reads of one object.

use std::sync::atomic::Ordering;

use tokio::time::timeout;

use super::options::{ListOptions, Match, Query};
use super::rendering::Rendering;
use super::response::ApiResponse;
use super::target::Target;
use super::token::ContinueToken;
use crate::cluster::Cluster;
use crate::status::Status;
use crate::storage::{ObjectKey, State};

/// Waits while the store of a replica is frozen. Returns `504` after the request timeout.
pub(super) async fn wait_for_etcd(cluster: &Cluster, replica: usize) -> Result<(), Status> {
    // A frozen store blocks reads that need etcd. Reads from the cache still succeed.
    let moves = |state: &State| state.caches[replica].frozen_at.is_none();
    timeout(cluster.settings.request_timeout, cluster.store.until(moves)).await.map_err(|_| Status::etcd_timeout())
}

/// Returns a revision that includes all previous writes. The cache serves the read if it catches up in time.
pub(super) async fn consistent(cluster: &Cluster, replica: usize) -> Result<u64, Status> {
    wait_for_etcd(cluster, replica).await?;
    let newest = cluster.store.read(State::revision);
    // With rare progress notifications, only this request advances the version in bookmarks.
    cluster.replicas[replica].requested_revision.fetch_max(newest, Ordering::Relaxed);
    let reached = cluster.store.until(|state| state.caches[replica].applied >= newest);
    if timeout(cluster.settings.freshness_wait, reached).await.is_ok() {
        return Ok(cluster.store.read(|state| state.caches[replica].applied));
    }
    // The cache did not catch up in time. As on the real server, the read then falls back to etcd.
    Ok(cluster.store.read(State::revision))
}

/// Returns the revision of a cache that has reached a version. Returns `504` if the cache does not reach the version in
/// time.
pub(super) async fn not_older_than(cluster: &Cluster, replica: usize, version: u64) -> Result<u64, Status> {
    let reached = cluster.store.until(|state| state.caches[replica].applied >= version);
    // The error contains the revision after the wait, so the cache is read again.
    let in_time = timeout(cluster.settings.freshness_wait, reached).await.is_ok();
    let applied = cluster.store.read(|state| state.caches[replica].applied);
    if in_time { Ok(applied) } else { Err(Status::too_large_resource_version(version, applied)) }
}

/// Checks that the history still contains a past revision.
async fn exactly(cluster: &Cluster, replica: usize, version: u64) -> Result<u64, Status> {
    wait_for_etcd(cluster, replica).await?;
    let (newest, compacted) = cluster.store.read(|state| (state.revision(), state.compacted()));
    // A future version results in a timeout with a cause in its details, not in 410.
    if version > newest {
        // A future version may become current within the wait.
        tokio::time::sleep(cluster.settings.freshness_wait).await;
        let newest = cluster.store.read(State::revision);
        if version > newest {
            return Err(Status::too_large_resource_version(version, newest));
        }
    }
    if version < compacted {
        return Err(Status::new(410, "Expired", "The resourceVersion for the provided list is too old."));
    }
    Ok(version)
}

/// Returns the revision at which a list reads.
pub(super) async fn list_revision(
    cluster: &Cluster,
    replica: usize,
    options: &ListOptions,
    token: Option<&ContinueToken>,
    names_one: bool,
) -> Result<u64, Status> {
    if let Some(token) = token {
        // A token with a negative version continues a list inconsistently, at the newest state.
        let Ok(revision) = u64::try_from(token.rv) else {
            return consistent(cluster, replica).await;
        };
        // Injected fault: the token expires early.
        if cluster.replicas[replica].conditions.token_has_expired() {
            return Err(expired_token(token));
        }
        return match exactly(cluster, replica, revision).await {
            Err(status) if status.code == 410 => Err(expired_token(token)),
            outcome => outcome,
        };
    }
    match (options.version, options.matching) {
        (None, _) => consistent(cluster, replica).await,
        // Version 0 accepts any cached state, however old.
        (Some(0), _) => Ok(cluster.store.read(|state| state.caches[replica].applied)),
        (Some(version), Match::Exact) => exactly(cluster, replica, version).await,
        // Before `resourceVersionMatch` existed, a version with a limit meant *Exact*. A list of one name has no pages,
        // so the limit does not count.
        (Some(version), Match::Unset) if options.limit > 0 && !names_one => exactly(cluster, replica, version).await,
        (Some(version), _) => not_older_than(cluster, replica, version).await,
    }
}

fn expired_token(token: &ContinueToken) -> Status {
    let mut status = Status::new(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.continue_token = Some(token.inconsistent().encode().into());
    status
}

/// Responds with one object.
pub(super) async fn get(
    cluster: &Cluster,
    replica: usize,
    target: &Target,
    name: &str,
    query: &Query,
    rendering: &Rendering,
) -> Result<ApiResponse, Status> {
    let revision = match query.text("resourceVersion") {
        "" => {
            wait_for_etcd(cluster, replica).await?;
            cluster.store.read(State::revision)
        }
        "0" => cluster.store.read(|state| state.caches[replica].applied),
        version => {
            // Reads of one object accept the version without a match parameter, as "not older than".
            let version = version.parse().map_err(|_| Status::bad_request("invalid resource version"))?;
            not_older_than(cluster, replica, version).await?
        }
    };
    let key = ObjectKey::new(target.namespace.as_deref().unwrap_or_default(), name);
    let found = cluster.store.read(|state| state.at(target.resource.store(), &key, revision).cloned());
    let change = found.ok_or_else(|| Status::not_found(&target.resource.name, name))?;
    let mut buffer = bytes::BytesMut::new();
    rendering.put_object(&mut buffer, &change, super::rendering::ObjectState::Current);
    Ok(ApiResponse::bytes(200, buffer.freeze()).with_content_type(rendering.encoding.content_type()))
}
