//! A server restart with fifty informers.

use std::collections::BTreeMap;
use std::time::Duration;

use steadfast::transport::Protocol;
use steadfast::{Connection, InformerFactory, Scope};
use steadfast_apiserver::{ApiServer, ApiServerBuilder};
use steadfast_contract::check;
use steadfast_testing::proxy::FaultProxy;
use steadfast_testing::{
    CachedForm, ConfigMapInForm, EventRecording, Recorder, TestError, builder_with_form, config_map_in, history,
    kube_config,
};

const INFORMERS: usize = 50;

/// Fifty synced informers over HTTP/2, each of its own namespace.
struct InformerFleet {
    recorder: Recorder,
    recordings: Vec<EventRecording<ConfigMapInForm>>,
    connection: Connection,
    _factory: InformerFactory,
}

async fn start_fleet(server: &ApiServer, config: kube::Config) -> Result<InformerFleet, TestError> {
    for index in 0..INFORMERS {
        let namespace = format!("team-{index}");
        server.create(&serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace }
        }))?;
        server.create(&config_map_in(&namespace, "a", "1"))?;
    }
    let connection = Connection::new(config)?;
    let factory = InformerFactory::new(&connection);
    let recorder = Recorder::of(server);
    let mut recordings = Vec::new();
    for index in 0..INFORMERS {
        let informer = builder_with_form(&factory, Scope::namespace(format!("team-{index}"))).start()?;
        recordings.push(recorder.record(&informer));
    }
    factory.wait_for_sync(Duration::from_secs(20)).await?;
    for recording in &recordings {
        recording.until_synced().await;
    }
    Ok(InformerFleet { recorder, recordings, connection, _factory: factory })
}

fn builder() -> ApiServerBuilder {
    ApiServer::builder().tls(true).protobuf(CachedForm::current().protobuf)
}

/// Changes the object in each namespace, so that no informer has a version within a restarted server's window.
fn change_everything(server: &ApiServer, value: &str) -> Result<(), TestError> {
    for index in 0..INFORMERS {
        let patch = serde_json::json!({ "data": { "value": value } });
        server.merge_patch("configmaps", &format!("team-{index}"), "a", patch)?;
    }
    Ok(())
}

async fn assert_fresh_and_correct(server: &ApiServer, fleet: &InformerFleet) -> Result<(), TestError> {
    fleet.recorder.settle(server).await;
    let doubts: Vec<String> = fleet
        .recordings
        .iter()
        .filter(|recording| !recording.informer().freshness().is_fresh())
        .map(|recording| format!("{}: {}", recording.informer().name(), recording.informer().freshness()))
        .collect();
    assert_eq!(doubts, [""; 0], "every informer must be fresh again");
    check(&history(server, "", "configmaps")?, &fleet.recorder.trace())?;
    Ok(())
}

/// Checks that no request was sent on a connection after it had failed.
fn assert_no_request_after_failure(server: &ApiServer) {
    let failure_times: BTreeMap<u64, Duration> = server
        .connections()
        .into_iter()
        .filter_map(|connection| {
            let ended = connection.ended.map(|(at, _)| at);
            Some((connection.id, connection.failed_at.or(ended)?))
        })
        .collect();
    assert!(!failure_times.is_empty(), "the restart must break connections");
    for request in server.requests() {
        if let Some(failed_at) = failure_times.get(&request.connection) {
            assert!(request.at <= *failed_at, "{request:?} was sent on a connection that had failed at {failed_at:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_of_single_replica_lists_once_each() -> Result<(), TestError> {
    let server = builder().start().await?;
    let fleet = start_fleet(&server, kube_config(&server).await?).await?;
    assert!(fleet.connection.connections().iter().all(|c| c.protocol == Some(Protocol::Http2)));
    let counts_before = server.request_counts();

    server.faults().stop();
    change_everything(&server, "2")?;
    server.faults().start();
    assert_fresh_and_correct(&server, &fleet).await?;

    let lists = server.request_counts().full_transfers() - counts_before.full_transfers();
    // A restarted server has an empty watch window, so a watch from an older version expires and needs a list.
    assert!((1..=INFORMERS).contains(&lists), "{lists} lists for {INFORMERS} informers");
    assert!(server.request_counts().most_concurrent_transfers <= 4);
    assert_no_request_after_failure(&server);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_with_second_replica_resumes_without_list() -> Result<(), TestError> {
    let server = builder().replicas(2).start().await?;
    let proxy = FaultProxy::start([0, 1].map(|replica| server.address(replica)))?;
    let mut config = kube_config(&server).await?;
    config.cluster_url = format!("https://{}", proxy.address()).parse()?;
    let fleet = start_fleet(&server, config).await?;
    let counts_before = server.request_counts();

    // The second replica has the full window of events, so each watch resumes from its version.
    proxy.faults().send_to(1);
    server.faults().replica(0).stop();
    change_everything(&server, "2")?;
    server.faults().replica(0).start();
    assert_fresh_and_correct(&server, &fleet).await?;

    assert_eq!(
        server.request_counts().full_transfers(),
        counts_before.full_transfers(),
        "every watch must resume without a list"
    );
    assert_no_request_after_failure(&server);
    Ok(())
}
