//! Revisions of reads, and reads of one object.

use std::sync::atomic::Ordering;

use tokio::time::timeout;

use super::exchange::Exchange;
use super::options::{ListOptions, Query, VersionMatch};
use super::rendering::Rendering;
use super::response::ApiResponse;
use super::target::Target;
use super::token::ContinueToken;
use crate::status::Status;
use crate::storage::ObjectKey;

/// Returns a revision that includes all previous writes. The cache serves the read if it catches up in time.
async fn consistent_revision(exchange: &Exchange) -> Result<u64, Status> {
    let backend = exchange.backend();
    backend.confirm_newest_revision().await?;
    let newest = backend.newest_revision();
    // With rare progress notifications, only this request advances the version in bookmarks.
    exchange.replica().requested_revision.fetch_max(newest, Ordering::Relaxed);
    if wait_until_reached(exchange, newest).await {
        return Ok(backend.cached_revision());
    }
    // The cache did not catch up in time. As on the real server, the read then falls back to etcd.
    Ok(backend.newest_revision())
}

/// Waits until the cache has reached a revision. Returns false if it does not reach the revision in time.
async fn wait_until_reached(exchange: &Exchange, revision: u64) -> bool {
    let (cluster, backend) = (&exchange.cluster, exchange.backend());
    let until_reached = cluster.changed.until(|| backend.cached_revision() >= revision);
    timeout(cluster.settings.cache_catch_up_timeout, until_reached).await.is_ok()
}

/// Returns the revision of a cache that has reached a version. Returns `504` if the cache does not reach the version in
/// time.
pub(super) async fn revision_not_older_than(exchange: &Exchange, version: u64) -> Result<u64, Status> {
    let in_time = wait_until_reached(exchange, version).await;
    // The error contains the revision after the wait, so the cache is read again.
    let cached = exchange.backend().cached_revision();
    if in_time { Ok(cached) } else { Err(Status::too_large_resource_version(version, cached)) }
}

/// Returns `version` if the history contains this revision. Waits for a future version until the cache timeout.
async fn exact_revision(exchange: &Exchange, version: u64) -> Result<u64, Status> {
    let backend = exchange.backend();
    backend.confirm_newest_revision().await?;
    let oldest = backend.oldest_revision();
    // As on servers with snapshots of the watch cache (Kubernetes 1.34 and later), a future version is awaited. The
    // error is a timeout with a cause in its details, not 410.
    if version > backend.newest_revision() {
        let until_reached = exchange.cluster.changed.until(|| backend.newest_revision() >= version);
        let _ = timeout(exchange.cluster.settings.cache_catch_up_timeout, until_reached).await;
        // Read again even in time: a restore from a backup lowers the newest version.
        let newest = backend.newest_revision();
        if version > newest {
            return Err(Status::too_large_resource_version(version, newest));
        }
    }
    if version < oldest {
        return Err(Status::new(410, "Expired", "The resourceVersion for the provided list is too old."));
    }
    Ok(version)
}

/// Returns the revision at which a list reads.
pub(super) async fn list_revision(
    exchange: &Exchange,
    options: &ListOptions,
    token: Option<&ContinueToken>,
    names_one: bool,
) -> Result<u64, Status> {
    if let Some(token) = token {
        // A token with a negative version continues a list inconsistently, at the newest state.
        let Ok(revision) = u64::try_from(token.rv) else {
            return consistent_revision(exchange).await;
        };
        // Injected fault: the token expires early.
        if exchange.replica().active_faults.take_token_expiry() {
            return Err(expired_token(token));
        }
        return match exact_revision(exchange, revision).await {
            Err(status) if status.code == 410 => Err(expired_token(token)),
            outcome => outcome,
        };
    }
    match (options.version, options.version_match) {
        (None, _) => consistent_revision(exchange).await,
        // Version 0 accepts any cached state, however old.
        (Some(0), _) => Ok(exchange.backend().cached_revision()),
        (Some(version), VersionMatch::Exact) => exact_revision(exchange, version).await,
        // Before `resourceVersionMatch` existed, a version with a limit meant *Exact*. A list of one name has no pages,
        // so the limit does not count.
        (Some(version), VersionMatch::Unset) if options.limit > 0 && !names_one => {
            exact_revision(exchange, version).await
        }
        (Some(version), _) => revision_not_older_than(exchange, version).await,
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
    exchange: &Exchange,
    target: &Target,
    name: &str,
    query: &Query,
    rendering: &Rendering,
) -> Result<ApiResponse, Status> {
    let backend = exchange.backend();
    let revision = match query.text("resourceVersion") {
        "" => {
            backend.confirm_newest_revision().await?;
            backend.newest_revision()
        }
        "0" => backend.cached_revision(),
        version => {
            // Reads of one object accept the version without a match parameter, as "not older than".
            let version = version.parse().map_err(|_| Status::bad_request("invalid resource version"))?;
            revision_not_older_than(exchange, version).await?
        }
    };
    let key = ObjectKey::new(target.namespace.as_deref().unwrap_or_default(), name);
    let found = backend.object(&target.resource, &key, revision).await?;
    let change = found.ok_or_else(|| Status::not_found(&target.resource.name, name))?;
    let mut buffer = bytes::BytesMut::new();
    rendering.put_object(&mut buffer, &change, super::rendering::RenderedState::Current);
    Ok(ApiResponse::bytes(200, buffer.freeze()).with_content_type(rendering.encoding.content_type()))
}
