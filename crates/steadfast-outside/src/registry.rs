//! The items of a registry by HTTP: one URL lists them, and each has one of its own, at which it is put and deleted.
//!
//! An item is a JSON object that says what it is called, whose it is, and what it has. It is the mirror's if its owner is the mirror's mark;
//! all others are left alone. So nothing about that is kept anywhere else, and a mirror that begins anew knows what is its own.
//!
//! What is new is put with `If-None-Match: *`. Before an item is changed or deleted it is read once more, whether it is still the mirror's, and where that
//! answer has an `ETag`, it comes along in `If-Match`: a registry that heeds both lets nobody's item be overwritten that has come meanwhile.

mod error;
mod key;
mod layout;
mod plain;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value as Json;
use tokio::time::timeout;

use crate::entry::{Found, Step, Target, Value};
use crate::lanes::{Failure, Lanes, Suspects};
pub use error::RegistryError;
pub use layout::Layout;
pub use plain::Plain;

/// Bounds of one run of changes. A run lasts at most 19 s, so that it ends within the mirror's own deadline of 30 s; the rest is left for the
/// next run.
const LANES: Lanes =
    Lanes { width: 8, attempt: Duration::from_secs(4), start_within: Duration::from_secs(15), failures: 8 };

/// Deadline of the request for the list.
const LIST_DEADLINE: Duration = Duration::from_secs(9);

/// What an item has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item(pub Json);

impl Value for Item {}

/// Who carries requests to the registry: it knows its proxy, its certificates and what they are signed with.
pub trait Requests: Send + Sync + 'static {
    /// What is answered to `request`, whose URL is whole; or why nothing is, without anything that is secret.
    fn send(&self, request: Request<Vec<u8>>) -> impl Future<Output = Result<Response<Vec<u8>>, String>> + Send;
}

/// The items of a registry that are a mirror's.
#[derive(Clone, Debug)]
pub struct Registry<R> {
    requests: R,
    layout: Layout,
    suspects: Arc<Suspects>,
}

impl<R: Requests> Registry<R> {
    /// The items of the registry that is as `layout` says.
    ///
    /// # Errors
    ///
    /// Where a URL is none, that of an item does not say where its key comes, both are of different servers, or the mark is empty.
    pub fn new(requests: R, layout: Layout) -> Result<Self, RegistryError> {
        layout.check()?;
        Ok(Self { requests, layout, suspects: Arc::default() })
    }

    async fn ask(
        &self,
        method: Method,
        url: &str,
        condition: Option<(HeaderName, HeaderValue)>,
        body: Option<Json>,
    ) -> Result<Response<Vec<u8>>, RegistryError> {
        let asked = || format!("{method} {}", layout::shown(url));
        let mut request = Request::builder().method(method.clone()).uri(url);
        if let Some((name, value)) = condition {
            request = request.header(name, value);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let made = request.body(body).map_err(|error| error.to_string());
        let answered = match made {
            Ok(request) => self.requests.send(request).await,
            Err(why) => Err(why),
        };
        answered.map_err(|why| RegistryError::Server { asked: asked(), why })
    }

    /// What a request was refused with, unless it was not.
    fn heeded(method: &Method, url: &str, response: &Response<Vec<u8>>) -> Result<(), RegistryError> {
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        Err(RegistryError::Refused { asked: format!("{method} {}", layout::shown(url)), status })
    }

    /// Whether the item of `key` is there and still the mirror's, and what says that it has not changed since.
    async fn own(&self, key: &str, url: &str) -> Result<Option<Option<HeaderValue>>, RegistryError> {
        let response = self.ask(Method::GET, url, None, None).await?;
        if is_gone(response.status()) {
            return Ok(None);
        }
        Self::heeded(&Method::GET, url, &response)?;
        let item: Json = serde_json::from_slice(response.body()).map_err(|error| RegistryError::Unexpected {
            asked: format!("GET {}", layout::shown(url)),
            why: format!("it is no JSON: {error}"),
        })?;
        if self.layout.is_own(&item) {
            Ok(Some(response.headers().get(ETAG).cloned()))
        } else {
            Err(RegistryError::Taken { key: key.to_owned() })
        }
    }

    async fn carry_out(&self, step: &Step<Item>) -> Result<(), RegistryError> {
        let key = step.name();
        let url = self.layout.item(key)?;
        let (method, condition, body) = match step {
            Step::Add { value, .. } => {
                let condition = Some((IF_NONE_MATCH, HeaderValue::from_static("*")));
                (Method::PUT, condition, Some(self.layout.body(key, &value.0)))
            }
            Step::Change { to, .. } => {
                let Some(unchanged) = self.own(key, &url).await? else {
                    return Err(RegistryError::Taken { key: key.to_owned() });
                };
                (Method::PUT, unchanged.map(|tag| (IF_MATCH, tag)), Some(self.layout.body(key, &to.0)))
            }
            Step::Remove { .. } => {
                let Some(unchanged) = self.own(key, &url).await? else { return Ok(()) };
                (Method::DELETE, unchanged.map(|tag| (IF_MATCH, tag)), None)
            }
        };
        let response = self.ask(method.clone(), &url, condition, body).await?;
        match response.status() {
            StatusCode::PRECONDITION_FAILED => Err(RegistryError::Taken { key: key.to_owned() }),
            status if method == Method::DELETE && is_gone(status) => Ok(()),
            _ => Self::heeded(&method, &url, &response),
        }
    }
}

fn is_gone(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

impl<R: Requests> Target for Registry<R> {
    type Value = Item;
    type Error = RegistryError;

    async fn look(&self) -> Result<Found<Item>, RegistryError> {
        let url = self.layout.list();
        let response = timeout(LIST_DEADLINE, self.ask(Method::GET, &url, None, None)).await;
        let late = |_| RegistryError::Late { asked: format!("GET {}", layout::shown(&url)), within: LIST_DEADLINE };
        let response = response.map_err(late)??;
        Self::heeded(&Method::GET, &url, &response)?;
        let read = self.layout.read(response.body());
        let items =
            read.map_err(|why| RegistryError::Unexpected { asked: format!("GET {}", layout::shown(&url)), why })?;
        let mut found = Found { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
        for (key, value) in items {
            match value {
                Some(value) => _ = found.own.insert(key, Item(value)),
                None => _ = found.others.insert(key),
            }
        }
        // What is listed twice is not the mirror's alone.
        found.own.retain(|key, _| !found.others.contains(key));
        Ok(found)
    }

    /// Changes up to eight items at a time, each within 4 s: an item that the registry does not respond about delays no other.
    async fn act(&self, steps: &[Step<Item>]) -> Result<(), RegistryError> {
        let carry_out = |number: usize| async move {
            let step: &Step<Item> = &steps[number];
            let wrap =
                |error: RegistryError| if error.is_of_one() { Failure::Entry(error) } else { Failure::Unclear(error) };
            self.carry_out(step).await.map_err(wrap)
        };
        let late = |number: usize| {
            let method = if matches!(steps[number], Step::Remove { .. }) { Method::DELETE } else { Method::PUT };
            let url = self.layout.item(steps[number].name()).unwrap_or_default();
            RegistryError::Late { asked: format!("{method} {}", layout::shown(&url)), within: LANES.attempt }
        };
        let errors = LANES.run(steps, &self.suspects, carry_out, late).await;
        RegistryError::of_run(
            errors.into_iter().map(|(number, error)| (steps[number].name().to_owned(), error)).collect(),
        )
    }

    /// Removes entries whose key a server could take for another one.
    fn settle(&self, wanted: &mut BTreeMap<String, Item>) -> BTreeMap<String, String> {
        let bad = wanted.keys().filter_map(|name| Some((name.clone(), self.layout.item(name).err()?.to_string())));
        let bad: BTreeMap<_, _> = bad.collect();
        wanted.retain(|name, _| !bad.contains_key(name));
        bad
    }

    fn describe(&self, _found: &Found<Item>, steps: &[Step<Item>]) -> Vec<String> {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let described = steps.iter().map(|step| {
            let key = step.name();
            let url = match self.layout.item(key) {
                Ok(url) => quoted(&layout::shown(&url)),
                Err(error) => return format!("# {error}"),
            };
            let put = |condition: &str, value: &Item| {
                let body = quoted(&self.layout.body(key, &value.0).to_string());
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
