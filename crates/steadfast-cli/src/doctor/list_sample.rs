//! A page of objects of each resource. The checks `sizes` and `large objects` evaluate them.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream;
use serde_json::Value;
use steadfast::unstable::catalog::ServedResource;

use super::context::CheckContext;
use super::requests::{REQUEST_DEADLINE, RequestError, get};

/// Numbers of objects in a page. The next smaller page is requested if the response is too large.
const PAGE_SIZES: [usize; 3] = [100, 10, 1];

/// Maximum number of concurrent lists.
const MAX_CONCURRENT_LISTS: usize = 2;

/// A page of objects of a resource.
#[derive(Clone, Debug, Default)]
pub(super) struct ListSample {
    pub(super) objects: Vec<Value>,
    /// Number of all objects; `None` if the server does not report it.
    pub(super) count: Option<usize>,
}

/// Results by resource.
pub(super) type ListSamples = Vec<(ServedResource, Result<ListSample, RequestError>)>;

/// Requests a page of each resource.
pub(super) async fn collect(context: &CheckContext) -> ListSamples {
    let lists = stream::iter(context.resources.clone()).map(|resource| async move {
        let sample = sample_resource(context, &resource).await;
        (resource, sample)
    });
    lists.buffered(MAX_CONCURRENT_LISTS).collect().await
}

async fn sample_resource(context: &CheckContext, resource: &ServedResource) -> Result<ListSample, RequestError> {
    let mut ended = Err(RequestError::TooLarge);
    for size in PAGE_SIZES {
        let path = format!("{}?limit={size}", context.path(resource));
        ended = get(&context.connection, &path, REQUEST_DEADLINE).await;
        if !matches!(ended, Err(RequestError::TooLarge)) {
            break;
        }
    }
    let mut list = ended?.json()?;
    let objects: Vec<Value> = match list["items"].take() {
        Value::Array(objects) => objects,
        _ => Vec::new(),
    };
    let metadata = &list["metadata"];
    let is_complete = metadata["continue"].as_str().is_none_or(str::is_empty);
    let remaining = metadata["remainingItemCount"].as_u64().and_then(|remaining| usize::try_from(remaining).ok());
    let remaining = if is_complete { Some(0) } else { remaining };
    Ok(ListSample { count: remaining.map(|remaining| remaining + objects.len()), objects })
}

/// Returns the size of `object` as JSON, and the sizes of its largest top-level fields.
pub(super) fn json_sizes(object: &Value) -> (usize, BTreeMap<&str, usize>) {
    let size = |value: &Value| value.to_string().len();
    let fields = object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), size(value)));
    (size(object), fields.collect())
}
