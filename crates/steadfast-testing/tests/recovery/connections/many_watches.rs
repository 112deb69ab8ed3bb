//! A thousand watches on a server with a limit of a hundred streams per connection, alongside ordinary requests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use http_body_util::BodyExt;
use kube::client::Body;
use steadfast::InjectedFault;
use steadfast_apiserver::Verb;
use steadfast_testing::TestError;
use tokio::time::{Instant, timeout};

use crate::connections::fixture::{ConnectionFixture, ensure};

const WATCHES: usize = 1000;
const STREAMS: usize = 100;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

fn get(path: &str) -> Result<http::Request<Body>, TestError> {
    Ok(http::Request::get(path).body(Body::empty())?)
}

pub(crate) async fn requests_beside_a_thousand_watches(fault: Option<InjectedFault>) -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(fault).await?;
    let watch = format!("{PATH}?watch=true");
    let mut requests = Vec::new();
    for _ in 0..WATCHES {
        requests.push(fixture.connection.send(get(&watch)?));
    }
    let watches =
        timeout(Duration::from_secs(20), join_all(requests)).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    ensure(watches.iter().all(|watch| watch.status() == 200), || "a watch was rejected".to_owned())?;
    let connection_count = fixture.connection.connections().len();
    ensure(connection_count == WATCHES / STREAMS, || format!("{connection_count} connections for {WATCHES} watches"))?;

    for round in 0..20 {
        let start = Instant::now();
        let mut requests = Vec::new();
        for _ in 0..50 {
            let response = fixture.connection.send(get(PATH)?);
            requests.push(async { Ok::<_, TestError>(response.await?.into_body().collect().await?.to_bytes()) });
        }
        let responses = join_all(requests).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        // Virtual time advances only while all tasks wait. A request that waits for a free stream would take longer.
        let elapsed = start.elapsed();
        ensure(elapsed < Duration::from_millis(100), || format!("responses after {elapsed:?} in round {round}"))?;
        ensure(responses.len() == 50, || "not all requests have responses".to_owned())?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    let mut verbs: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for request in fixture.server.requests() {
        let use_name = if request.verb == Verb::Watch { "watches" } else { "requests" };
        verbs.entry(request.connection).or_default().insert(use_name);
    }
    ensure(verbs.values().all(|kinds| kinds.len() == 1), || format!("lists and watches share: {verbs:?}"))?;
    let reports = fixture.connection.connections();
    ensure(reports.iter().all(|report| report.streams <= STREAMS), || format!("{reports:?}"))?;
    ensure(reports.len() == WATCHES / STREAMS + 1, || format!("{} connections", reports.len()))?;
    drop(watches);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn requests_do_not_wait_behind_thousand_watches() -> Result<(), TestError> {
    requests_beside_a_thousand_watches(None).await
}
