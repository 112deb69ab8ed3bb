//! Writes through a client, and waits for caches that contain them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use steadfast::{Connection, Scope, WaitError, Writes};
use steadfast_apiserver::{InjectedResponse, RequestRule, Verb};
use steadfast_testing::{InMemory, TestError, config_map, config_map_in};

use super::{EVENT_TIMEOUT, InformerFixture, settle};

const LONG_TIMEOUT: Duration = Duration::from_secs(60);

fn connection_and_api(fixture: &InformerFixture) -> (Connection, Api<ConfigMap>) {
    let connection = fixture.factory.connection().clone();
    let maps = Api::namespaced(connection.client(), "default");
    (connection, maps)
}

#[tokio::test(start_paused = true)]
async fn cache_contains_write_at_its_version() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, maps) = connection_and_api(&fixture);
    let informer = fixture.synced_informer().await?;
    fixture.server.faults().lag(true);
    let recording = connection.record_writes();
    recording.scope(maps.create(&PostParams::default(), &config_map("a", "1"))).await?;
    let writes = recording.writes();
    assert_eq!((writes.len(), format!("{writes:?}")), (1, "[\"configmaps default/a at version 6\"]".into()));
    assert!(!fixture.factory.has_writes(&writes));
    let timeout_result = fixture.factory.wait_for_writes(&writes, EVENT_TIMEOUT).await;
    let Err(timeout_result @ WaitError::Deadline { .. }) = timeout_result else { panic!("{timeout_result:?}") };
    assert!(
        timeout_result
            .to_string()
            .starts_with("configmaps in all namespaces did not reach configmaps default/a at version 6 within 2.0 s"),
        "{timeout_result}"
    );
    fixture.server.faults().lag(false);
    fixture.factory.wait_for_writes(&writes, LONG_TIMEOUT).await?;
    assert!(fixture.factory.has_writes(&writes));
    assert!(informer.lister()?.get("default", "a")?.is_some());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deletion_is_awaited_until_removed() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, maps) = connection_and_api(&fixture);
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    fixture.server.faults().lag(true);
    let recording = connection.record_writes();
    recording.scope(maps.delete("a", &DeleteParams::default())).await?;
    let writes = recording.writes();
    assert!(!informer.has_writes(&writes));
    assert!(informer.wait_for_writes(&writes, EVENT_TIMEOUT).await.is_err());
    fixture.server.faults().lag(false);
    informer.wait_for_writes(&writes, LONG_TIMEOUT).await?;
    assert!(informer.lister()?.get("default", "a")?.is_none());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn removed_object_needs_no_version_of_server() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, maps) = connection_and_api(&fixture);
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    let recording = connection.record_writes();
    recording.scope(maps.delete("a", &DeleteParams::default())).await?;
    while informer.lister()?.get("default", "a")?.is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The server's version is now past the deletion, and this cache receives no further event.
    let secrets = Api::<Secret>::namespaced(connection.client(), "default");
    let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": "s" } }))?;
    secrets.create(&PostParams::default(), &secret).await?;
    let start = tokio::time::Instant::now();
    assert!(fixture.factory.has_writes(&recording.writes()), "{recording:?}");
    fixture.factory.wait_for_writes(&recording.writes(), LONG_TIMEOUT).await?;
    assert_eq!(start.elapsed(), Duration::ZERO);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rejected_and_dry_run_writes_are_ignored() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, maps) = connection_and_api(&fixture);
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::namespace("default"))?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    fixture.server.faults().lag(true);
    let recording = connection.record_writes();
    recording
        .scope(async {
            let conflict = maps.create(&PostParams::default(), &config_map("a", "1")).await;
            assert!(matches!(conflict, Err(kube::Error::Api(status)) if status.code == 409));
            let dry_run = PostParams { dry_run: true, ..PostParams::default() };
            maps.create(&dry_run, &config_map("b", "1")).await?;
            maps.get("a").await?;
            let other = Api::<Secret>::namespaced(connection.client(), "default");
            let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": "s" } }))?;
            other.create(&PostParams::default(), &secret).await?;
            Ok::<_, TestError>(())
        })
        .await?;
    let other_connection = InMemory::default().connection(&fixture.server).await?;
    let other = Api::<ConfigMap>::namespaced(other_connection.client(), "default");
    recording.scope(other.create(&PostParams::default(), &config_map("c", "1"))).await?;
    assert_eq!(recording.writes().len(), 2, "the rejected write and the secret: {recording:?}");
    assert!(informer.has_writes(&recording.writes()));
    informer.wait_for_writes(&recording.writes(), EVENT_TIMEOUT).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn recording_contains_only_own_writes() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, maps) = connection_and_api(&fixture);
    let (first_recording, second_recording) = (connection.record_writes(), connection.record_writes());
    let create = |name: &'static str| {
        let maps = maps.clone();
        async move { maps.create(&PostParams::default(), &config_map(name, "1")).await.map(drop) }
    };
    let (first, second) = tokio::join!(first_recording.scope(create("one")), second_recording.scope(create("other")));
    first.and(second)?;
    assert_eq!((first_recording.writes().len(), second_recording.writes().len()), (1, 1));
    assert!(format!("{:?}", first_recording.writes()).contains("default/one"), "{first_recording:?}");
    first_recording.scope(async { tokio::spawn(create("spawned")).await }).await??;
    assert_eq!(
        (first_recording.writes().len(), second_recording.writes().len()),
        (2, 2),
        "both recordings contain a write of unknown origin"
    );
    drop(second_recording);
    let third_recording = connection.record_writes();
    first_recording.scope(third_recording.scope(create("inner"))).await?;
    assert_eq!((first_recording.writes().len(), third_recording.writes().len()), (2, 1), "the innermost");
    Ok(())
}

/// Regression test for seed 8 of `bench duplicates`: a reconcile on a cache without the parent's children created
/// them again.
#[tokio::test(start_paused = true)]
async fn simultaneous_probe_does_not_hide_write() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, maps) = connection_and_api(&fixture);
    let informer = fixture.synced_informer().await?;
    let start = tokio::time::Instant::now();
    informer.wait_for_writes(&informer.written_so_far(), EVENT_TIMEOUT).await?;
    let faults = fixture.server.faults();
    faults.lag(true);
    let recording = connection.record_writes();
    recording.scope(maps.create(&PostParams::default(), &config_map("a", "1"))).await?;
    assert_eq!(start.elapsed(), Duration::ZERO);
    // From now on, probes fail. The last server version that the informer has learned is from before the write.
    faults.respond(RequestRule::any().resource("configmaps").verb(Verb::Probe), InjectedResponse::code(503));
    let timeout_result = informer.wait_for_writes(&recording.writes(), LONG_TIMEOUT).await;
    assert!(matches!(timeout_result, Err(WaitError::Deadline { .. })), "{timeout_result:?}");
    assert!(!informer.has_writes(&recording.writes()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lost_response_triggers_version_probe() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, maps) = connection_and_api(&fixture);
    let informer = fixture.synced_informer().await?;
    fixture.server.faults().lag(true);
    let recording = connection.record_writes();
    fixture.server.faults().respond(RequestRule::any().resource("configmaps").times(1), InjectedResponse::code(500));
    let result = recording.scope(maps.create(&PostParams::default(), &config_map("a", "1"))).await;
    assert!(result.is_err());
    // Another client's write moves the server's version. The informer does not know whether the unconfirmed
    // write has moved it as well.
    fixture.server.create(&config_map("b", "1"))?;
    let writes = recording.writes();
    assert_eq!(format!("{writes:?}"), "[\"a write whose response was lost, configmaps in default\"]");
    assert!(!informer.has_writes(&writes));
    assert!(informer.wait_for_writes(&writes, EVENT_TIMEOUT).await.is_err());
    fixture.server.faults().lag(false);
    informer.wait_for_writes(&writes, LONG_TIMEOUT).await?;
    assert!(informer.has_writes(&writes));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn abandoned_and_pending_writes_are_awaited() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, maps) = connection_and_api(&fixture);
    let informer = fixture.synced_informer().await?;
    let slow_requests = RequestRule::any().resource("configmaps").times(2);
    fixture.server.faults().delay_matching(slow_requests, Duration::from_secs(5));
    let recording = connection.record_writes();
    let created = PostParams::default();
    let map = config_map("a", "1");
    let abandoned = tokio::time::timeout(EVENT_TIMEOUT, recording.scope(maps.create(&created, &map))).await;
    assert!(abandoned.is_err());
    assert!(format!("{recording:?}").contains("a write whose response was lost"), "{recording:?}");
    let under_way = connection.record_writes();
    let (other, config_map_b) = (maps.clone(), config_map("b", "1"));
    let creation = under_way.scope(async move { other.create(&PostParams::default(), &config_map_b).await.map(drop) });
    let creation = tokio::spawn(creation);
    settle().await;
    assert!(format!("{under_way:?}").contains("in flight"), "{under_way:?}");
    assert!(!informer.has_writes(&under_way.writes()));
    informer.wait_for_writes(&under_way.writes(), LONG_TIMEOUT).await?;
    assert!(informer.lister()?.get("default", "b")?.is_some());
    creation.await??;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn writes_lost_by_restore_are_ignored() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, maps) = connection_and_api(&fixture);
    let informer = fixture.synced_informer().await?;
    let backup = fixture.server.revision();
    fixture.server.faults().lag(true);
    let recording = connection.record_writes();
    for name in ["a", "b", "c"] {
        recording.scope(maps.create(&PostParams::default(), &config_map(name, "1"))).await?;
    }
    fixture.server.faults().restore(backup);
    fixture.server.faults().lag(false);
    let start = tokio::time::Instant::now();
    informer.wait_for_writes(&recording.writes(), LONG_TIMEOUT).await?;
    assert!(start.elapsed() < LONG_TIMEOUT / 2, "{:?}", start.elapsed());
    assert!(informer.snapshot().is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rejected_cache_needs_no_wait() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let reads = RequestRule::any().resource("secrets");
    fixture.server.faults().respond(reads, InjectedResponse::code(403));
    let secrets = fixture.factory.informer::<Secret>(Scope::all())?;
    let mut writes = Writes::default();
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "default" } });
    writes.add::<Secret>(&serde_json::from_value(fixture.server.create(&secret)?)?);
    assert!(secrets.wait_for_sync(EVENT_TIMEOUT).await.is_err());
    assert!(secrets.has_writes(&writes));
    fixture.factory.wait_for_writes(&writes, EVENT_TIMEOUT).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn foreign_writes_can_be_registered() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    fixture.server.faults().lag(true);
    let created: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "1"))?)?;
    let mut writes = Writes::default();
    writes.add(&created);
    writes.add(&config_map("b", "1"));
    assert_eq!(writes.len(), 1, "an object without a version is ignored");
    assert!(!informer.has_writes(&writes));
    fixture.server.faults().lag(false);
    informer.wait_for_writes(&writes, LONG_TIMEOUT).await?;
    fixture.server.faults().lag(true);
    fixture.server.delete_named("configmaps", "default", "a")?;
    let mut deleted = Writes::default();
    deleted.add_deleted(&created);
    assert!(!informer.has_writes(&deleted));
    let connection = fixture.factory.connection();
    let (own_recording, other_recording) = (connection.record_writes(), connection.record_writes());
    own_recording.scope(async { connection.record_external_writes(&deleted) }).await;
    assert_eq!(
        (own_recording.writes().len(), other_recording.writes().len()),
        (1, 0),
        "the current task determines the recording"
    );
    fixture.server.faults().lag(false);
    informer.wait_for_writes(&deleted, LONG_TIMEOUT).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn subresource_patch_counts_as_write() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (connection, _) = connection_and_api(&fixture);
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(connection.client(), "default");
    fixture.server.create(&steadfast_testing::pod("web", "n1"))?;
    let informer = fixture.factory.informer::<k8s_openapi::api::core::v1::Pod>(Scope::all())?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    fixture.server.faults().lag(true);
    let recording = connection.record_writes();
    let status = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    recording.scope(pods.patch_status("web", &PatchParams::default(), &status)).await?;
    assert!(!informer.has_writes(&recording.writes()));
    fixture.server.faults().lag(false);
    informer.wait_for_writes(&recording.writes(), LONG_TIMEOUT).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn caches_catch_up_with_each_other() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let other_connection = InMemory::default().connection(&fixture.server).await?;
    let other_factory = steadfast::InformerFactory::new(fixture.factory.connection());
    let other_informer = other_factory.informer::<ConfigMap>(Scope::all())?;
    other_informer.wait_for_sync(EVENT_TIMEOUT).await?;
    fixture.server.create(&config_map("a", "1"))?;
    settle().await;
    other_factory.wait_for_writes(&informer.seen(), EVENT_TIMEOUT).await?;
    assert!(other_informer.lister()?.get("default", "a")?.is_some());
    // The versions of one connection are meaningless on another, which may lead to another server. So they are not
    // awaited.
    let third_informer = steadfast::InformerFactory::new(&other_connection).informer::<ConfigMap>(Scope::all())?;
    assert!(third_informer.has_writes(&informer.seen()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn newer_of_two_states_suffices() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let mut writes = Writes::default();
    for value in ["1", "2", "3"] {
        let object = match value {
            "1" => fixture.server.create(&config_map("a", value))?,
            _ => fixture.server.merge_patch("configmaps", "default", "a", json!({ "data": { "value": value } }))?,
        };
        let mut single_write = Writes::default();
        single_write.add::<ConfigMap>(&serde_json::from_value(object)?);
        writes.extend(single_write);
        assert_eq!(writes.len(), 1, "{writes:?}");
    }
    let captured_writes = writes.clone();
    writes.remove(&captured_writes);
    assert!(writes.is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unordered_versions_end_write_wait() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.faults().namespace_counters(true);
    let (connection, maps) = connection_and_api(&fixture);
    let informer = fixture.synced_informer().await?;
    let namespaces = ["kube-public", "default", "kube-system", "kube-node-lease"];
    for round in 0..100 {
        if informer.snapshot().version().is_some_and(|version| !version.is_ordered()) {
            break;
        }
        for namespace in namespaces {
            fixture.server.create(&config_map_in(namespace, &format!("map-{round}"), "1"))?;
        }
        tokio::time::sleep(EVENT_TIMEOUT).await;
    }
    assert!(
        informer.snapshot().version().is_some_and(|version| !version.is_ordered()),
        "the disorder must be detected"
    );
    fixture.server.faults().lag(true);
    let recording = connection.record_writes();
    recording.scope(maps.create(&PostParams::default(), &config_map("a", "1"))).await?;
    let result = informer.wait_for_writes(&recording.writes(), LONG_TIMEOUT).await;
    assert!(matches!(result, Err(WaitError::Opaque { .. })), "{result:?}");
    Ok(())
}
