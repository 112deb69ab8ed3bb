//! Unread responses delay only their own caller (C8).

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use steadfast::transport::Settings;
use steadfast_apiserver::{ApiServer, ApiServerBuilder};
use steadfast_testing::{CachedConfigMap, ConfigMapInForm, EventRecording, TestError, config_map_in};
use tokio::time::{Instant, sleep, timeout};

use crate::connections::fixture::{ConnectionFixture, ensure, until};

/// Number of large objects. Their total size exceeds the bytes that the server may send before the client reads.
const OBJECTS: usize = 6;
const OBJECT_BYTES: usize = 900 * 1024;

/// Number of unread responses: enough to exceed 64 MiB, and fewer than the streams per connection.
const UNREAD_RESPONSES: usize = 20;

/// Maximum duration of an unobstructed response.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(1);

const LARGE_PATH: &str = "/api/v1/namespaces/kube-system/configmaps";
const SMALL_PATH: &str = "/api/v1/namespaces/default/pods";

/// Returns a server that never disconnects a client that does not read.
fn server_without_slow_client_limit() -> ApiServerBuilder {
    ApiServer::builder().slow_watch_limits(1_000_000, Duration::from_secs(100_000))
}

fn get(path: &str) -> Result<Request<Body>, TestError> {
    Ok(Request::get(path).body(Body::empty())?)
}

/// Creates the large objects of the collection [`LARGE_PATH`].
fn create_large_objects(fixture: &ConnectionFixture) -> Result<(), TestError> {
    let value = "x".repeat(OBJECT_BYTES);
    for number in 0..OBJECTS {
        fixture.server.create(&config_map_in("kube-system", &format!("big-{number}"), &value))?;
    }
    Ok(())
}

/// Changes every informer's object, and waits for the events.
async fn change_all(
    fixture: &ConnectionFixture,
    recordings: &[EventRecording<ConfigMapInForm>],
    value: &str,
) -> Result<(), TestError> {
    for index in 0..recordings.len() {
        fixture.update(index, value)?;
    }
    let has_value = |(index, recording): (usize, &EventRecording<ConfigMapInForm>)| {
        let object = recording.informer().snapshot().get(Some(&format!("team-{index}")), "a").found();
        object.is_some_and(|object| object.value("value").as_deref() == Some(value))
    };
    until(MAX_RESPONSE_TIME, "the written changes have arrived", || recordings.iter().enumerate().all(has_value))
        .await?;
    let are_fresh = recordings.iter().all(|recording| recording.informer().freshness().is_fresh());
    ensure(are_fresh, || "an informer has a doubt".to_owned())
}

#[tokio::test(start_paused = true)]
async fn unread_watches_delay_no_informer() -> Result<(), TestError> {
    let fixture = ConnectionFixture::with_builder(server_without_slow_client_limit(), None).await?;
    let recordings = fixture.start_informers(3).await?;
    let client = fixture.connection.client();
    let mut unread_responses = Vec::new();
    for _ in 0..UNREAD_RESPONSES {
        unread_responses.push(client.send(get(&format!("{LARGE_PATH}?watch=true&timeoutSeconds=100000"))?).await?);
    }
    create_large_objects(&fixture)?;
    // The loop lasts several times longer than the timeout of a silent stream.
    for round in 0..40 {
        change_all(&fixture, &recordings, &round.to_string()).await?;
        sleep(Duration::from_secs(5)).await;
    }
    drop(unread_responses);
    fixture.check_contract().await
}

#[tokio::test(start_paused = true)]
async fn unread_responses_delay_no_other_request() -> Result<(), TestError> {
    let fixture = ConnectionFixture::with_builder(server_without_slow_client_limit(), None).await?;
    create_large_objects(&fixture)?;
    let client = fixture.connection.client();
    let mut unread_responses = Vec::new();
    for _ in 0..UNREAD_RESPONSES {
        unread_responses.push(client.send(get(LARGE_PATH)?).await?);
    }
    sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    let response = client.send(get(SMALL_PATH)?).await?;
    let body =
        timeout(MAX_RESPONSE_TIME, response.into_body().collect()).await.map_err(|_| "it does not end")??.to_bytes();
    ensure(body.starts_with(b"{\"kind\":\"PodList\""), || format!("{body:?}"))?;
    ensure(start.elapsed() < MAX_RESPONSE_TIME, || format!("responses after {:?}", start.elapsed()))?;
    let recordings =
        timeout(MAX_RESPONSE_TIME, fixture.start_informers(3)).await.map_err(|_| "no informer syncs")??;
    change_all(&fixture, &recordings, "1").await?;
    drop(unread_responses);
    fixture.check_contract().await
}

/// HTTP/1.1 needs a connection per response. Unread responses must not exhaust the connections.
#[tokio::test(start_paused = true)]
async fn unread_responses_leave_informers_connections() -> Result<(), TestError> {
    let settings = Settings { max_connections: 16, max_waiting: 30, ..Settings::default() };
    let fixture = ConnectionFixture::with_settings(server_without_slow_client_limit(), settings, None).await?;
    create_large_objects(&fixture)?;
    let client = fixture.connection.client();
    let requests: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let response = client.send(get(LARGE_PATH)?).await;
                // If the request gets a connection, its response is never read. Otherwise the request fails.
                if response.is_ok() {
                    std::future::pending::<()>().await;
                }
                response.map(drop).map_err(TestError::from)
            })
        })
        .collect();
    sleep(Duration::from_secs(1)).await;
    let recordings =
        timeout(MAX_RESPONSE_TIME, fixture.start_informers(3)).await.map_err(|_| "no informer syncs")??;
    change_all(&fixture, &recordings, "1").await?;
    sleep(Duration::from_secs(60)).await;
    change_all(&fixture, &recordings, "2").await?;
    let rejected_count = requests.iter().filter(|request| request.is_finished()).count();
    ensure(rejected_count == 50 - 12, || format!("{rejected_count} of 50 were rejected"))?;
    for request in requests {
        request.abort();
    }
    fixture.check_contract().await
}
