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

const WATCHES: usize = 1000;
const CALLERS: usize = 4;
const REQUESTS: usize = 250;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Durations of requests.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn at(&mut self, share: f64) -> f64 {
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
    let callers = (0..CALLERS).map(|_| async {
        let mut times = Vec::with_capacity(REQUESTS);
        for _ in 0..REQUESTS {
            let started = Instant::now();
            let response = connection.send(get(&format!("{PATH}/a"))?).await?;
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

async fn measure(title: &str, rounds: usize, alone: &Connection, crowded: &Connection) -> Result<(), TestError> {
    let (mut without, mut with) = (Times::default(), Times::default());
    for round in 0..rounds {
        // The order alternates, so that neither connection is always first.
        if round % 2 == 0 {
            without.0.extend(measure_requests(alone).await?);
            with.0.extend(measure_requests(crowded).await?);
        } else {
            with.0.extend(measure_requests(crowded).await?);
            without.0.extend(measure_requests(alone).await?);
        }
    }
    println!("{title}, {} requests each:", with.0.len());
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let (without, with) = (without.at(share), with.at(share));
        println!("  {name}  without watches {without:.2} ms, with {with:.2} ms: {:.2} times", with / without);
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), TestError> {
    let rounds = std::env::args().nth(1).map_or(Ok(6), |rounds| rounds.parse())?;
    let server = ApiServer::builder().tls(true).max_streams(100).start().await?;
    server.create(&config_map("a", "0"))?;
    let alone = Connection::new(kube_config(&server).await?)?;
    let crowded = Connection::new(kube_config(&server).await?)?;
    for _ in 0..WATCHES {
        let body = crowded.send(get(&format!("{PATH}?watch=true&timeoutSeconds=3000"))?).await?.into_body();
        tokio::spawn(drain(body));
    }
    println!("{}", steadfast::transport::ConnectionReport::HEAD);
    for report in crowded.connections() {
        println!("{report}");
    }
    measure("1000 quiet watches", rounds, &alone, &crowded).await?;

    let busy = async {
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
        wrong = busy => wrong,
        measured = measure("1000 watches, an event for each once a second", rounds, &alone, &crowded) => measured,
    }
}
