//! The baseline: a client that reads the same bytes and discards them.

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use memchr::memmem;
use tokio::time::timeout;

use super::request::{ClientArgs, SYNC_TIMEOUT};
use crate::BenchError;

const COLLECTION: &str = "/api/v1/pods";

/// Text in the last of the initial events.
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";

/// Maximum size of the last initial event, in bytes.
const MAX_LAST_EVENT_BYTES: usize = 1024;

/// Text before the token of the next page. The items may contain this text too, but they come after the token. So the
/// first occurrence belongs to the token.
const CONTINUE_TOKEN_PREFIX: &str = r#""continue":""#;

/// Maximum number of bytes before the items of a page.
const MAX_HEAD_BYTES: usize = 1024;

/// Reads the whole collection, and returns the number of bytes.
pub(super) async fn read(config: kube::Config, args: &ClientArgs) -> Result<u64, BenchError> {
    let client = Client::try_from(config)?;
    if args.resource != "pods" {
        // The position of the continue token depends on the server and the resource.
        return Err("this client reads only pods".into());
    }
    let read_all = async { if args.paged { read_pages(&client).await } else { read_stream(&client, args).await } };
    timeout(SYNC_TIMEOUT, read_all).await?
}

async fn read_stream(client: &Client, args: &ClientArgs) -> Result<u64, BenchError> {
    let accept = if args.protobuf {
        "application/vnd.kubernetes.protobuf;stream=watch"
    } else {
        "application/json;stream=watch"
    };
    let query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut body = get(client, &format!("{COLLECTION}?{query}"), accept).await?;
    let (mut bytes_read, mut last_bytes) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        bytes_read += data.len() as u64;
        // Nothing follows this event, so only the last bytes must be checked.
        last_bytes.extend_from_slice(&data[data.len().saturating_sub(MAX_LAST_EVENT_BYTES)..]);
        last_bytes.drain(..last_bytes.len().saturating_sub(MAX_LAST_EVENT_BYTES));
        if memmem::find(&last_bytes, INITIAL_EVENTS_END).is_some() {
            return Ok(bytes_read);
        }
    }
    Err("the stream ended before the last object".into())
}

async fn read_pages(client: &Client) -> Result<u64, BenchError> {
    let (mut bytes_read, mut next_page) = (0, String::new());
    loop {
        let uri = format!("{COLLECTION}?limit=500{next_page}");
        let (mut body, mut page_start) = (get(client, &uri, "application/json").await?, Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            bytes_read += data.len() as u64;
            // The token precedes the items in JSON, so that the head of each page suffices.
            page_start.extend_from_slice(&data[..data.len().min(MAX_HEAD_BYTES - page_start.len())]);
        }
        let page_start = String::from_utf8_lossy(&page_start);
        let before_items = page_start.split(r#""items""#).next().unwrap_or_default();
        match before_items
            .split_once(CONTINUE_TOKEN_PREFIX)
            .and_then(|(_, rest)| rest.split('"').next())
            .unwrap_or_default()
        {
            "" => return Ok(bytes_read),
            token => next_page = format!("&continue={token}"),
        }
    }
}

async fn get(client: &Client, uri: &str, accept: &str) -> Result<Body, BenchError> {
    let request = http::Request::get(uri).header(http::header::ACCEPT, accept).body(Body::empty())?;
    let response = client.send(request).await?;
    if response.status().is_success() {
        Ok(response.into_body())
    } else {
        Err(format!("{uri} returned {}", response.status()).into())
    }
}
