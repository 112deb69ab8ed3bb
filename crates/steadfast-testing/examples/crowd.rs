//! Measures the duration of ordinary requests next to a thousand watches, over TCP and TLS, on a server that allows a
//! hundred streams per connection. `cargo run --release -p steadfast-testing --example crowd [rounds]`.
//!
//! Two connections to one server, one with watches and one without, are measured alternately, so that other load of the
//! machine affects both equally. The second measurement has an event for each watch once a second.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http_body_util::BodyExt;
use kube::client::Body;
use steadfast::Connection;
use steadfast::transport::ResponseBody;
use steadfast_apiserver::ApiServer;
use steadfast_testing::{TestError, config_map, kube_config};

const WATCH_COUNT: usize = 1000;
const CALLER_COUNT: usize = 4;
const REQUESTS_PER_CALLER: usize = 250;
const BUSY_TITLE: &str = "1000 watches, an event for each once a second";
const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Durations of requests.
#[derive(Default)]
struct RequestTimes(Vec<Duration>);

impl RequestTimes {
    fn quantile_millis(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let index = (self.0.len() as f64 * share) as usize;
        self.0.get(index).copied().unwrap_or_default().as_secs_f64() * 1e3
    }
}

fn get(path: &str) -> Result<http::Request<Body>, TestError> {
    Ok(http::Request::get(path).body(Body::empty())?)
}

/// Requests one object repeatedly, at a steady rate, with several callers.
async fn measure_requests(connection: &Connection) -> Result<Vec<Duration>, TestError> {
    let callers = (0..CALLER_COUNT).map(|_| async {
        let mut times = Vec::with_capacity(REQUESTS_PER_CALLER);
        for _ in 0..REQUESTS_PER_CALLER {
            let started = Instant::now();
            let response = connection.send(get(&format!("{CONFIG_MAPS_PATH}/a"))?).await?;
            response.into_body().collect().await?;
            times.push(started.elapsed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok::<_, TestError>(times)
    });
    Ok(try_join_all(callers).await?.concat())
}

async fn drain(mut body: ResponseBody) {
    while let Some(Ok(_)) = body.frame().await {}
}

async fn measure(
    title: &str,
    rounds: usize,
    idle_connection: &Connection,
    crowded_connection: &Connection,
) -> Result<(), TestError> {
    let (mut idle_times, mut crowded_times) = (RequestTimes::default(), RequestTimes::default());
    for round in 0..rounds {
        // The order alternates, so that neither connection is always first.
        if round % 2 == 0 {
            idle_times.0.extend(measure_requests(idle_connection).await?);
            crowded_times.0.extend(measure_requests(crowded_connection).await?);
        } else {
            crowded_times.0.extend(measure_requests(crowded_connection).await?);
            idle_times.0.extend(measure_requests(idle_connection).await?);
        }
    }
    println!("{title}, {} requests each:", crowded_times.0.len());
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let (idle_times, crowded_times) = (idle_times.quantile_millis(share), crowded_times.quantile_millis(share));
        println!(
            "  {name}  without watches {idle_times:.2} ms, with {crowded_times:.2} ms: {:.2} times",
            crowded_times / idle_times
        );
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), TestError> {
    let rounds = std::env::args().nth(1).map_or(Ok(6), |rounds| rounds.parse())?;
    let server = ApiServer::builder().tls(true).max_streams(100).start().await?;
    server.create(&config_map("a", "0"))?;
    let idle_connection = Connection::new(kube_config(&server).await?)?;
    let crowded_connection = Connection::new(kube_config(&server).await?)?;
    for _ in 0..WATCH_COUNT {
        let body = crowded_connection
            .send(get(&format!("{CONFIG_MAPS_PATH}?watch=true&timeoutSeconds=3000"))?)
            .await?
            .into_body();
        tokio::spawn(drain(body));
    }
    println!("{}", steadfast::transport::ConnectionReport::HEAD);
    for report in crowded_connection.connections() {
        println!("{report}");
    }
    measure("1000 quiet watches", rounds, &idle_connection, &crowded_connection).await?;

    let write_changes = async {
        let mut value: u64 = 0;
        loop {
            value += 1;
            let patch = serde_json::json!({ "data": { "value": value.to_string() } });
            server.merge_patch("configmaps", "default", "a", patch)?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        #[allow(unreachable_code)]
        Ok::<_, TestError>(())
    };
    tokio::select! {
        result = write_changes => result,
                result = measure(BUSY_TITLE, rounds, &idle_connection, &crowded_connection) => result,
    }
}
