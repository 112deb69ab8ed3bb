//! For each clause of the contract, a fault is injected into the library, and the checker must report it. Without the
//! fault, the same scenario must pass. This proves that each check can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Connection, Informer, InformerFactory, InjectedFault, Scope};
use steadfast_apiserver::{ApiServer, ApiServerBuilder, InjectedResponse, RequestRule, Status, Verb};
use steadfast_contract::{Bounds, Clause, Record, Report};
use steadfast_testing::proxy::FaultProxy;
use steadfast_testing::{
    CachedForm, ConfigMapInForm, Recorder, TestError, builder_with_form, config_map, connection, history, until,
};

const NAME: &str = "config maps";

/// Timeout for an expected event, on a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a server that supports the form of this run.
fn server() -> ApiServerBuilder {
    ApiServer::builder().protobuf(CachedForm::current().protobuf)
}

/// Server with one config map, and an informer with this injected fault.
struct Fixture {
    server: ApiServer,
    recorder: Recorder,
    informer: Informer<ConfigMapInForm>,
    _factory: InformerFactory,
}

impl Fixture {
    async fn new(fault: Option<InjectedFault>) -> Result<Self, TestError> {
        Self::with_server(server().start().await?, fault).await
    }

    async fn with_server(server: ApiServer, fault: Option<InjectedFault>) -> Result<Self, TestError> {
        let connection = connection(&server).await?;
        Self::with_connection(&connection, server, fault)
    }

    fn with_connection(
        connection: &Connection,
        server: ApiServer,
        fault: Option<InjectedFault>,
    ) -> Result<Self, TestError> {
        server.create(&config_map("a", "1"))?;
        let factory = InformerFactory::new(connection);
        // The test runs in real time, so the period is shorter than the default.
        let builder = builder_with_form(&factory, Scope::all()).period(Duration::from_millis(400));
        let informer = builder.inject_fault(fault).start()?;
        Ok(Self { recorder: Recorder::of(&server), server, informer, _factory: factory })
    }

    /// Sets the value of `a`.
    fn update(&self, value: &str) -> Result<(), TestError> {
        let patch = serde_json::json!({ "data": { "value": value } });
        self.server.merge_patch("configmaps", "default", "a", patch)?;
        Ok(())
    }

    async fn check(self) -> Report {
        self.recorder.settle(&self.server).await;
        self.report()
    }

    fn report(&self) -> Report {
        let bounds = Bounds { period: Duration::from_millis(400), ..Bounds::default() };
        bounds.report(&history(&self.server, "", "configmaps").expect("config maps are served"), &self.recorder.trace())
    }
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

/// Runs `scenario` without and with the fault, and requires that the checker reports a violation of `clause` only with
/// the fault.
macro_rules! assert_detected {
    ($name:ident, $clause:ident, $fault:ident, $scenario:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() -> Result<(), TestError> {
            let report = $scenario(None).await?;
            assert!(report.has_no_violation(), "without the fault, the scenario must keep the contract: {:#?}", report);
            let faulty_report = $scenario(Some(InjectedFault::$fault)).await?;
            assert!(
                faulty_report.violations.iter().any(|violation| violation.clause == Clause::$clause),
                "with the fault, the checker must report {:?}: {:#?}",
                Clause::$clause,
                faulty_report,
            );
            Ok(())
        }
    };
}

assert_detected!(c1_recreation_as_update_is_detected, C1, MergedIdentities, recreated_while_cut_off);
assert_detected!(c2_missing_deletion_is_detected, C2, LostDeletes, deleted_while_cut_off);
assert_detected!(c3_repeated_records_are_detected, C3, RepeatedRecords, repeated_after_a_resume);
assert_detected!(c4_older_list_is_detected, C4, OlderList, moved_to_a_lagging_replica);
assert_detected!(c5_unseen_old_object_is_detected, C5, StoreAsOld, updated_while_the_handler_is_busy);
assert_detected!(c6_delivery_before_store_is_detected, C6, HandlerFirst, updated_while_watched);
assert_detected!(c7_overlapping_calls_are_detected, C7, OverlappingCalls, updated_while_the_handler_is_busy);
assert_detected!(c8_unbounded_queue_is_detected, C8, UnboundedQueue, updated_while_the_handler_is_stuck);
assert_detected!(c9_premature_sync_is_detected, C9, SyncedTooEarly, synced_from_a_slow_server);
assert_detected!(c10_false_freshness_is_detected, C10, AlwaysFresh, changed_behind_a_black_hole);
assert_detected!(c11_dropped_records_are_detected, C11, DroppedRecords, created_while_watched);
assert_detected!(c12_premature_wait_is_detected, C12, EarlyWaitEnd, waited_for_behind_a_stalled_stream);

async fn recreated_while_cut_off(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let recreated = config_map("a", "2");
    cut_off(fault, |server| server.create(&recreated).map(drop)).await
}

async fn deleted_while_cut_off(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    cut_off(fault, |_| Ok(())).await
}

/// Deletes `a` while the client is disconnected, runs `after_deletion`, and expires the history.
async fn cut_off(
    fault: Option<InjectedFault>,
    after_deletion: impl FnOnce(&ApiServer) -> Result<(), Status>,
) -> Result<Report, TestError> {
    let fixture = Fixture::new(fault).await?;
    fixture.recorder.record_as(&fixture.informer, NAME).until_synced().await;
    fixture.server.faults().cut();
    fixture.server.delete_named("configmaps", "default", "a")?;
    after_deletion(&fixture.server)?;
    // Without the window of events, only a relist can show the deletion.
    fixture.server.faults().expire_events();
    fixture.server.faults().heal();
    Ok(fixture.check().await)
}

async fn repeated_after_a_resume(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let fixture = Fixture::new(fault).await?;
    let recording = fixture.recorder.record_as(&fixture.informer, NAME);
    recording.until_synced().await;
    for (event_count, value) in (1..).zip(["2", "3", "4", "5"]) {
        fixture.update(value)?;
        until(EVENT_TIMEOUT, || recording.descriptions("default/a").len() > event_count).await?;
    }
    fixture.server.faults().repeat_events(3);
    fixture.server.faults().reset();
    // An event after the repeated ones shows that those were processed.
    fixture.server.create(&config_map("b", "1"))?;
    until(EVENT_TIMEOUT, || !recording.descriptions("default/b").is_empty()).await?;
    Ok(fixture.check().await)
}

/// Makes the second replica lag, and directs the client's next connection to it, with an expired version.
async fn moved_to_a_lagging_replica(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let server = server().replicas(2).cache_catch_up_timeout(Duration::from_millis(300)).start().await?;
    let proxy = FaultProxy::start([0, 1].map(|replica| server.address(replica)))?;
    let mut config = steadfast_testing::kube_config(&server).await?;
    config.cluster_url = format!("http://{}", proxy.address()).parse()?;
    let fixture = Fixture::with_connection(&Connection::new(config)?, server, fault)?;
    fixture.recorder.record_as(&fixture.informer, NAME).until_synced().await;
    fixture.server.faults().replica(1).lag(true);
    for value in ["2", "3"] {
        fixture.update(value)?;
    }
    fixture.recorder.wait_for(&fixture.informer, NAME, &get_a(&fixture.server)?).await?;
    pause(100).await;
    proxy.faults().send_to(1);
    let rule = RequestRule::any().verb(Verb::Watch).times(1);
    fixture.server.faults().replica(1).respond(rule, InjectedResponse::code(410));
    fixture.server.faults().replica(0).stop();
    pause(1500).await;
    fixture.server.faults().replica(1).lag(false);
    Ok(fixture.check().await)
}

fn get_a(server: &ApiServer) -> Result<ConfigMap, TestError> {
    Ok(serde_json::from_value(server.get("configmaps", "default", "a")?)?)
}

async fn updated_while_the_handler_is_busy(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let fixture = Fixture::new(fault).await?;
    fixture.recorder.record_as(&fixture.informer, NAME).until_synced().await;
    fixture.recorder.handle(&fixture.informer, NAME, |_| std::thread::sleep(Duration::from_millis(150)));
    for value in ["2", "3", "4", "5"] {
        pause(40).await;
        fixture.update(value)?;
    }
    Ok(fixture.check().await)
}

async fn updated_while_watched(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let fixture = Fixture::new(fault).await?;
    fixture.recorder.record_as(&fixture.informer, NAME).until_synced().await;
    for value in 2..20 {
        fixture.update(&value.to_string())?;
        pause(5).await;
    }
    Ok(fixture.check().await)
}

async fn created_while_watched(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let fixture = Fixture::new(fault).await?;
    fixture.recorder.record_as(&fixture.informer, NAME).until_synced().await;
    for name in 0..20 {
        fixture.server.create(&config_map(&format!("b-{name}"), "1"))?;
    }
    Ok(fixture.check().await)
}

async fn updated_while_the_handler_is_stuck(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let fixture = Fixture::new(fault).await?;
    let is_released = Arc::new(AtomicBool::new(false));
    let is_released_in_handler = is_released.clone();
    fixture.recorder.record_as(&fixture.informer, NAME).until_synced().await;
    let recording = fixture.recorder.handle(&fixture.informer, NAME, move |_| {
        while !is_released_in_handler.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    for value in 0..100 {
        fixture.update(&value.to_string())?;
    }
    pause(300).await;
    // One object needs at most one entry, independent of its number of changes.
    let entries = recording.registration().stats().entries;
    fixture.recorder.write(Record::QueueDepth {
        handler: recording.name().to_owned(),
        entries,
        stored: 1,
        undeleted: 0,
    });
    is_released.store(true, Ordering::Relaxed);
    Ok(fixture.check().await)
}

async fn synced_from_a_slow_server(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let server = server().start().await?;
    server.faults().delay(Duration::from_millis(300));
    let fixture = Fixture::with_server(server, fault).await?;
    let recording = fixture.recorder.record_as(&fixture.informer, NAME);
    pause(600).await;
    fixture.server.faults().delay(Duration::ZERO);
    recording.until_synced().await;
    Ok(fixture.check().await)
}

async fn changed_behind_a_black_hole(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let fixture = Fixture::new(fault).await?;
    fixture.recorder.record_as(&fixture.informer, NAME).until_synced().await;
    fixture.server.faults().black_hole(true);
    fixture.update("2")?;
    // Longer than two periods and than the tolerance of the checker for a backlog.
    for _ in 0..8 {
        pause(500).await;
        fixture.recorder.sample(&fixture.informer, NAME);
    }
    Ok(fixture.report())
}

async fn waited_for_behind_a_stalled_stream(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let fixture = Fixture::new(fault).await?;
    fixture.recorder.record_as(&fixture.informer, NAME).until_synced().await;
    // The stream must not deliver the write before the wait starts.
    fixture.server.faults().respond(RequestRule::any().verb(Verb::Watch).times(2), InjectedResponse::code(500));
    fixture.server.faults().stall_streams(true);
    fixture.update("2")?;
    let object = get_a(&fixture.server)?;
    let wait = fixture.recorder.wait_for(&fixture.informer, NAME, &object);
    let heal = async {
        pause(300).await;
        fixture.server.faults().stall_streams(false);
    };
    let (wait_result, ()) = tokio::join!(wait, heal);
    wait_result?;
    Ok(fixture.check().await)
}
