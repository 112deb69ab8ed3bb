//! GOAWAY of the server, and its limit of streams per connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Connection, Diagnostic, InformerFactory, Scope};
use steadfast_contract::check;
use steadfast_testing::cluster::Writer;
use steadfast_testing::reference::Reference;
use steadfast_testing::{EventRecording, Recorder, TestError};

const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

const WATCHES: usize = 300;
const STREAMS: usize = 100;
/// Number of requests. One in fifty receives a GOAWAY.
const REQUESTS: usize = 600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaway_and_stream_limit_lose_no_event() -> Result<(), TestError> {
    let Some(mut reference) = Reference::start_with_flags(&["--goaway-chance=0.02"]).await? else { return Ok(()) };
    let limited = reference.start_another_with_flags(&["--http2-max-streams-per-connection=100"], None).await?;
    let goaway_recorder = reference.recorder();
    let stream_recorder = reference.recorder();
    let limited = reference.connection_by(reference.address(limited)).await?;
    many_requests_during_goaways(&reference, &goaway_recorder).await?;
    requests_beside_many_watches(&reference, &limited, &stream_recorder).await?;
    for recorder in [&goaway_recorder, &stream_recorder] {
        reference.settle(recorder).await?;
    }
    let history = reference.history("", "configmaps").await?;
    for recorder in [goaway_recorder, stream_recorder] {
        let verdict = check(&history, &recorder.trace())?;
        assert_eq!((verdict.total().lost, verdict.total().repeated), (0, 0), "{verdict:?}");
    }
    Ok(())
}

async fn many_requests_during_goaways(reference: &Reference, recorder: &Recorder) -> Result<(), TestError> {
    let connection = reference.connection().await?;
    let writer = Writer::new(connection.client(), "default");
    let factory = InformerFactory::new(&connection);
    let mut recordings = Vec::new();
    let relists = Arc::new(AtomicUsize::new(0));
    for number in 0..10 {
        let informer = factory.informer::<ConfigMap>(Scope::namespace("default").labels(format!("app=g{number}")))?;
        let captured_relists = relists.clone();
        informer.on_diagnostic(move |note| {
            captured_relists.fetch_add(usize::from(matches!(note, Diagnostic::Relisted { .. })), Ordering::Relaxed);
        });
        recordings.push(recorder.record(&informer));
    }
    factory.wait_for_sync(EVENT_TIMEOUT).await?;
    let dials_before = steadfast::unstable::dial_count(&connection);
    for number in 0..10 {
        let label = format!("g{number}");
        writer.create_labelled(&label, &label).await?;
    }
    for round in 1..REQUESTS / 10 {
        try_join_all((0..10).map(|number| {
            let (writer, value) = (&writer, round.to_string());
            async move { writer.set(&format!("g{number}"), &value).await }
        }))
        .await?;
    }
    let new_connections = steadfast::unstable::dial_count(&connection) - dials_before;
    // With a chance of 2 %, 600 requests receive about 12 GOAWAYs.
    assert!(new_connections >= 2, "{new_connections} new connections for {REQUESTS} requests: no GOAWAY was received");
    println!("goaway: {REQUESTS} requests, {new_connections} new connections");
    for (number, recording) in recordings.iter().enumerate() {
        recorder
            .wait_for(recording.informer(), recording.informer().name(), &writer.get(&format!("g{number}")).await?)
            .await?;
    }
    assert_eq!(relists.load(Ordering::Relaxed), 0, "all watches were resumed");
    recordings.iter().for_each(assert_fresh);
    Ok(())
}

async fn requests_beside_many_watches(
    reference: &Reference,
    connection: &Connection,
    recorder: &Recorder,
) -> Result<(), TestError> {
    let factory = InformerFactory::new(connection);
    let mut recordings: Vec<EventRecording<ConfigMap>> = Vec::new();
    for number in 0..WATCHES {
        let scope = Scope::namespace("default").labels(format!("app=w{number}"));
        recordings.push(recorder.record(&factory.informer::<ConfigMap>(scope)?));
    }
    factory.wait_for_sync(2 * EVENT_TIMEOUT).await?;
    let writer = Writer::new(connection.client(), "default");
    let requests = async {
        let mut max_time = Duration::ZERO;
        for number in (0..WATCHES).step_by(3) {
            let (label, start) = (format!("w{number}"), std::time::Instant::now());
            writer.create_labelled(&label, &label).await?;
            max_time = max_time.max(start.elapsed());
        }
        Ok::<_, TestError>(max_time)
    };
    let max_time = tokio::time::timeout(EVENT_TIMEOUT, requests).await??;
    let connections = connection.connections();
    let watch_streams: Vec<usize> =
        connections.iter().filter(|one| one.carries_watches).map(|one| one.streams).collect();
    println!(
        "streams: {WATCHES} watches on {watch_streams:?}, {} requests, the slowest {max_time:?}",
        WATCHES.div_ceil(3)
    );
    assert_eq!(watch_streams.iter().sum::<usize>(), WATCHES, "{connections:#?}");
    assert!(watch_streams.iter().all(|streams| *streams <= STREAMS), "{connections:#?}");
    for number in (0..WATCHES).step_by(3) {
        until_delivered(&recordings[number], &format!("default/w{number}"), 1).await?;
    }
    reference.settle(recorder).await?;
    recordings.iter().for_each(assert_fresh);
    Ok(())
}

/// Waits until the handler has received this number of events of `key`.
async fn until_delivered(recording: &EventRecording<ConfigMap>, key: &str, count: usize) -> Result<(), TestError> {
    let delivered = async {
        while recording.of(key).len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let result = tokio::time::timeout(EVENT_TIMEOUT, delivered).await;
    result.map_err(|_| format!("{key} has {:?} after {EVENT_TIMEOUT:?}", recording.descriptions(key)).into())
}

fn assert_fresh(recording: &EventRecording<ConfigMap>) {
    let freshness = recording.informer().freshness();
    assert!(freshness.is_fresh(), "{}: {freshness}", recording.informer().name());
}
