//! Items of a registry over HTTP: one URL lists the items, and each item has its own URL for `PUT` and `DELETE`.
//!
//! An item is a JSON object with a key, an owner and a value. The item belongs to the mirror if its owner is the
//! mirror's mark. The mirror changes no other items. A restarted mirror needs no other record of its items.
//!
//! A new item is sent with `If-None-Match: *`. Before a change or deletion, the mirror reads the item again to check
//! its owner. If the response to this read has an `ETag`, the write carries the tag in `If-Match`. So a registry that
//! honours both headers never overwrites a concurrent change by another client. A registry that rejects weak tags gets
//! the write again without a tag, after a read has shown that the item has the same tag.

mod client;
mod error;
mod key;
mod layout;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value as Json;
use tokio::time::timeout;

use crate::entry::{ActualState, EntryValue, Step, Target};
use crate::step_runner::{SlowEntries, StepFailure, StepRunner};
pub use client::PlainRegistryClient;
pub use error::RegistryError;
pub use layout::Layout;

/// Bounds of one run of changes. A run lasts at most 19 s, so that it ends within the mirror's deadline of 30 s.
/// The next run handles the rest.
const STEP_RUNNER: StepRunner = StepRunner {
    max_concurrent: 8,
    step_timeout: Duration::from_secs(4),
    start_within: Duration::from_secs(15),
    max_failures: 8,
};

/// Deadline of the request for the list.
const LIST_TIMEOUT: Duration = Duration::from_secs(9);

/// Value of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryItem(pub Json);

impl EntryValue for RegistryItem {}

/// Client that sends requests to the registry. The implementation handles proxies, certificates and signatures.
pub trait RegistryClient: Send + Sync + 'static {
    /// Sends `request`, whose URL is absolute, and returns the response. Errors must not contain secrets.
    fn send(&self, request: Request<Vec<u8>>) -> impl Future<Output = Result<Response<Vec<u8>>, String>> + Send;
}

/// Items of a registry that belong to a mirror.
#[derive(Clone, Debug)]
pub struct Registry<R> {
    client: R,
    layout: Layout,
    slow_entries: Arc<SlowEntries>,
}

impl<R: RegistryClient> Registry<R> {
    /// Creates the target for the items of the registry described by `layout`.
    ///
    /// # Errors
    ///
    /// Returns an error if a URL or the mark is invalid, the item URL lacks `{key}`, or the URLs have different
    /// servers.
    pub fn new(client: R, layout: Layout) -> Result<Self, RegistryError> {
        layout.check()?;
        Ok(Self { client, layout, slow_entries: Arc::default() })
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        condition: Option<(HeaderName, HeaderValue)>,
        body: Option<Json>,
    ) -> Result<Response<Vec<u8>>, RegistryError> {
        let mut request = Request::builder().method(method.clone()).uri(url);
        if let Some((name, value)) = condition {
            request = request.header(name, value);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = request.body(body).map_err(|error| error.to_string());
        let response = match request {
            Ok(request) => self.client.send(request).await,
            Err(reason) => Err(reason),
        };
        response.map_err(|reason| RegistryError::Unreachable {
            request: format!("{method} {}", layout::display_url(url)),
            reason,
        })
    }

    /// Returns an error if the registry rejected the request.
    fn check_status(method: &Method, url: &str, response: &Response<Vec<u8>>) -> Result<(), RegistryError> {
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        Err(RegistryError::Rejected { request: format!("{method} {}", layout::display_url(url)), status })
    }

    /// Returns the `ETag` of an item of the mirror. The outer `None` means that the item does not exist, the inner one
    /// that the response has no `ETag`. Returns an error for an item of another owner.
    async fn own_item_tag(&self, key: &str, url: &str) -> Result<Option<Option<HeaderValue>>, RegistryError> {
        let response = self.send(Method::GET, url, None, None).await?;
        if is_missing(response.status()) {
            return Ok(None);
        }
        Self::check_status(&Method::GET, url, &response)?;
        let item: Json = serde_json::from_slice(response.body()).map_err(|error| RegistryError::Unexpected {
            request: format!("GET {}", layout::display_url(url)),
            reason: format!("it is not valid JSON: {error}"),
        })?;
        if self.layout.is_own(&item) {
            Ok(Some(response.headers().get(ETAG).cloned()))
        } else {
            Err(RegistryError::Conflict { key: key.to_owned() })
        }
    }

    async fn apply_step(&self, step: &Step<RegistryItem>) -> Result<(), RegistryError> {
        let key = step.name();
        let url = self.layout.item_url(key)?;
        let (method, condition, body) = match step {
            Step::Add { value, .. } => {
                let condition = Some((IF_NONE_MATCH, HeaderValue::from_static("*")));
                (Method::PUT, condition, Some(self.layout.item_body(key, &value.0)))
            }
            Step::Change { to, .. } => {
                // The item is read before the write, so that a registry that ignores conditions does not lose foreign
                // items.
                let Some(tag) = self.own_item_tag(key, &url).await? else {
                    return Err(RegistryError::Conflict { key: key.to_owned() });
                };
                (Method::PUT, tag.map(|tag| (IF_MATCH, tag)), Some(self.layout.item_body(key, &to.0)))
            }
            Step::Remove { .. } => {
                let Some(tag) = self.own_item_tag(key, &url).await? else { return Ok(()) };
                (Method::DELETE, tag.map(|tag| (IF_MATCH, tag)), None)
            }
        };
        let mut response = self.send(method.clone(), &url, condition.clone(), body.clone()).await?;
        // A weak tag matches only at servers that deviate from RFC 9110, section 13.1.1. At all others, the write would
        // fail forever. An unchanged tag shows that the item did not change, so the write is sent without a condition.
        if let Some((_, sent)) = condition.filter(|(_, tag)| is_weak(tag))
            && response.status() == StatusCode::PRECONDITION_FAILED
            && self.own_item_tag(key, &url).await?.flatten() == Some(sent)
        {
            response = self.send(method.clone(), &url, None, body).await?;
        }
        match response.status() {
            // The item changed between the read and the write.
            StatusCode::PRECONDITION_FAILED => Err(RegistryError::Conflict { key: key.to_owned() }),
            status if method == Method::DELETE && is_missing(status) => Ok(()),
            _ => Self::check_status(&method, &url, &response),
        }
    }
}

/// Returns true for a weak entity tag, and false for a strong tag or `*`.
fn is_weak(tag: &HeaderValue) -> bool {
    tag.as_bytes().starts_with(b"W/")
}

fn is_missing(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

impl<R: RegistryClient> Target for Registry<R> {
    type Value = RegistryItem;
    type Error = RegistryError;

    async fn read(&self) -> Result<ActualState<RegistryItem>, RegistryError> {
        let url = self.layout.list_url();
        let response = timeout(LIST_TIMEOUT, self.send(Method::GET, &url, None, None)).await;
        let timeout_error =
            |_| RegistryError::Timeout { request: format!("GET {}", layout::display_url(&url)), within: LIST_TIMEOUT };
        let response = response.map_err(timeout_error)??;
        Self::check_status(&Method::GET, &url, &response)?;
        let parsed = self.layout.parse_items(response.body());
        let items = parsed.map_err(|reason| RegistryError::Unexpected {
            request: format!("GET {}", layout::display_url(&url)),
            reason,
        })?;
        let mut found = ActualState { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
        for (key, value) in items {
            match value {
                Some(value) => _ = found.own.insert(key, RegistryItem(value)),
                None => _ = found.others.insert(key),
            }
        }
        // A key that the list contains twice, once with another owner, counts as foreign.
        found.own.retain(|key, _| !found.others.contains(key));
        Ok(found)
    }

    /// Changes up to eight items concurrently, each within 4 s. An item without a response delays no other item.
    async fn apply(&self, steps: &[Step<RegistryItem>]) -> Result<(), RegistryError> {
        let execute = |number: usize| async move {
            let step: &Step<RegistryItem> = &steps[number];
            let classify = |error: RegistryError| {
                if error.concerns_one_item() { StepFailure::Entry(error) } else { StepFailure::MaybeTarget(error) }
            };
            self.apply_step(step).await.map_err(classify)
        };
        let timeout_error = |number: usize| {
            let method = if matches!(steps[number], Step::Remove { .. }) { Method::DELETE } else { Method::PUT };
            let url = self.layout.item_url(steps[number].name()).unwrap_or_default();
            RegistryError::Timeout {
                request: format!("{method} {}", layout::display_url(&url)),
                within: STEP_RUNNER.step_timeout,
            }
        };
        let errors = STEP_RUNNER.run(steps, &self.slow_entries, execute, timeout_error).await;
        RegistryError::combined(
            errors.into_iter().map(|(number, error)| (steps[number].name().to_owned(), error)).collect(),
        )
    }

    /// Removes entries whose key a server could interpret as another key.
    fn validate(&self, desired: &mut BTreeMap<String, RegistryItem>) -> BTreeMap<String, String> {
        let invalid =
            desired.keys().filter_map(|name| Some((name.clone(), self.layout.item_url(name).err()?.to_string())));
        let invalid: BTreeMap<_, _> = invalid.collect();
        desired.retain(|name, _| !invalid.contains_key(name));
        invalid
    }

    fn describe(&self, _found: &ActualState<RegistryItem>, steps: &[Step<RegistryItem>]) -> Vec<String> {
        let quote = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let described = steps.iter().map(|step| {
            let key = step.name();
            let url = match self.layout.item_url(key) {
                Ok(url) => quote(&layout::display_url(&url)),
                Err(error) => return format!("# {error}"),
            };
            let put = |condition: &str, value: &RegistryItem| {
                let body = quote(&self.layout.item_body(key, &value.0).to_string());
                format!("curl -X PUT -H 'Content-Type: application/json'{condition} -d {body} {url}")
            };
            match step {
                Step::Add { value, .. } => put(" -H 'If-None-Match: *'", value),
                Step::Change { to, .. } => put("", to),
                Step::Remove { .. } => format!("curl -X DELETE {url}"),
            }
        });
        described.collect()
    }
}

#[cfg(test)]
mod tests;
