//! The floor: a client that reads the same bytes and does nothing with them.

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use memchr::memmem;
use tokio::time::timeout;

use super::request::{ClientArgs, PATIENCE};
use crate::Trouble;

const COLLECTION: &str = "/api/v1/pods";

/// What the last of the initial events says.
const END: &[u8] = b"k8s.io/initial-events-end";

/// An event that says no more than this is no longer.
const LAST: usize = 1024;

/// What comes before the token of the next page. The items, which could say it too, come later.
const NEXT: &str = r#""continue":""#;

/// So much of a page is before its items at most.
const HEAD: usize = 1024;

/// Reads everything there is, and returns how many bytes that were.
pub(super) async fn read(config: kube::Config, args: &ClientArgs) -> Result<u64, Trouble> {
    let client = Client::try_from(config)?;
    if args.resource != "pods" {
        // Where a server writes the token of the next page is not the same for all.
        return Err("only pods are read alone".into());
    }
    let all = async { if args.paged { pages(&client).await } else { streamed(&client, args).await } };
    timeout(PATIENCE, all).await?
}

async fn streamed(client: &Client, args: &ClientArgs) -> Result<u64, Trouble> {
    let accept = if args.protobuf {
        "application/vnd.kubernetes.protobuf;stream=watch"
    } else {
        "application/json;stream=watch"
    };
    let query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut body = get(client, &format!("{COLLECTION}?{query}"), accept).await?;
    let (mut read, mut last) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        read += data.len() as u64;
        // Nothing follows it, so that only what came last has to be looked at.
        last.extend_from_slice(&data[data.len().saturating_sub(LAST)..]);
        last.drain(..last.len().saturating_sub(LAST));
        if memmem::find(&last, END).is_some() {
            return Ok(read);
        }
    }
    Err("the stream ended before all objects had come".into())
}

async fn pages(client: &Client) -> Result<u64, Trouble> {
    let (mut read, mut next) = (0, String::new());
    loop {
        let uri = format!("{COLLECTION}?limit=500{next}");
        let (mut body, mut head) = (get(client, &uri, "application/json").await?, Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            read += data.len() as u64;
            head.extend_from_slice(&data[..data.len().min(HEAD - head.len())]);
        }
        let head = String::from_utf8_lossy(&head);
        let before_items = head.split(r#""items""#).next().unwrap_or_default();
        match before_items.split_once(NEXT).and_then(|(_, rest)| rest.split('"').next()).unwrap_or_default() {
            "" => return Ok(read),
            token => next = format!("&continue={token}"),
        }
    }
}

async fn get(client: &Client, uri: &str, accept: &str) -> Result<Body, Trouble> {
    let request = http::Request::get(uri).header(http::header::ACCEPT, accept).body(Body::empty())?;
    let response = client.send(request).await?;
    if response.status().is_success() {
        Ok(response.into_body())
    } else {
        Err(format!("{uri} was answered with {}", response.status()).into())
    }
}
