//! Behaviour of healthy servers: lists of each kind, changes, selectors, finalizers, definitions.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use serde_json::json;
use steadfast::InformerFactory;
use steadfast_testing::CachedConfigMap;
use steadfast_testing::cluster::TestCluster;
use steadfast_testing::{TestError, config_map_in};

use super::{DiagnosticLog, EVENT_TIMEOUT, Watched, assert_fresh, build, check_contract, until_delivered, watch};

super::scenarios! {
    streamed_and_paged_informers_match_history<K>: needs [], covers [SelectorChurn];
    paged_list_delivers_each_object_once<K>: needs [], covers [];
    finalizer_delays_deletion<K>: needs [], covers [];
    delete_collection_reports_each_deletion<K>: needs [], covers [];
    metadata_informer_follows_changes: needs [], covers [];
    unchanged_write_is_not_delivered<K>: needs [], covers [];
    name_and_label_scopes_are_exact<K>: needs [], covers [SelectorChurn];
    informers_on_one_connection_receive_own_events<K>: needs [], covers [];
    waits_outside_selector_cause_no_doubt<K>: needs [], covers [];
}

/// A write outside the selector causes no event, and on a real server often no bookmark either (R2). Nevertheless,
/// waits for its version must end, and the cache must stay fresh.
async fn waits_outside_selector_cause_no_doubt<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (recorder, connection) = (cluster.recorder(), cluster.connection().await?);
    let factory = InformerFactory::new(&connection);
    let informer = build::<K>(&factory, cluster.scope().labels("app=web")).start()?;
    let diagnostics = DiagnosticLog::record(&informer);
    recorder.record_as(&informer, "selected").until_synced().await;
    let writer = cluster.writer();
    for number in 0..10 {
        let created = writer.create(&format!("out-{number}"), "1").await?;
        recorder.wait_for(&informer, "selected", &created).await?;
        assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    }
    assert_eq!(diagnostics.times("suspect"), 0);
    check_contract(cluster, &recorder).await?;
    Ok(())
}

async fn streamed_and_paged_informers_match_history<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    let writer = cluster.writer();
    for name in ["a", "b", "c", "d", "e"] {
        writer.create(name, "1").await?;
    }
    let streams = cluster.streamed_lists().await?;
    let (recorder, connection) = (cluster.recorder(), cluster.connection().await?);
    let factories = [InformerFactory::new(&connection), InformerFactory::new(&connection)];
    let streamed = build::<K>(&factories[0], cluster.scope()).streamed_lists(true).start()?;
    let paged = build::<K>(&factories[1], cluster.scope()).streamed_lists(false).page_size(Some(2)).start()?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let selected = factories[0].builder_with::<DynamicObject>(&kind, cluster.scope().labels("app=web"));
    let selected = selected.streamed_lists(true).start()?;
    let diagnostics =
        [DiagnosticLog::record(&streamed), DiagnosticLog::record(&paged), DiagnosticLog::record(&selected)];
    let streamed = recorder.record_as(&streamed, "streamed");
    let paged = recorder.record_as(&paged, "paged");
    let selected = recorder.record_as(&selected, "selected");
    for recordings in [&streamed, &paged] {
        recordings.until_synced().await;
    }
    selected.until_synced().await;
    if let Some((before, after)) = streams.zip(cluster.streamed_lists().await?) {
        assert!(after - before >= 2, "the server streamed {} lists", after - before);
    }

    writer.create_labelled("web", "web").await?;
    for round in 0..3 {
        until_delivered(cluster, &selected, "web", 2 * round + 1).await?;
        let without_label = writer.label("web", "db").await?;
        recorder.wait_for(selected.informer(), "selected", &without_label).await?;
        until_delivered(cluster, &selected, "web", 2 * round + 2).await?;
        let entered = writer.label("web", "web").await?;
        recorder.wait_for(selected.informer(), "selected", &entered).await?;
        let changed_object = writer.set("a", &format!("again {round}")).await?;
        recorder.wait_for(streamed.informer(), "streamed", &changed_object).await?;
        recorder.wait_for(paged.informer(), "paged", &changed_object).await?;
    }
    until_delivered(cluster, &selected, "web", 7).await?;
    let recreated = writer.recreate("b", "2").await?;
    writer.delete("web").await?;
    recorder.wait_for(streamed.informer(), "streamed", &recreated).await?;

    check_contract(cluster, &recorder).await?;
    for recordings in [&streamed, &paged] {
        assert_eq!(recordings.descriptions(&cluster.key("b")), ["Added", "Deleted Observed Deleted", "Added"]);
        assert_eq!(
            recordings.descriptions(&cluster.key("web")).last().map(String::as_str),
            Some("Deleted Observed Deleted")
        );
        assert_fresh(recordings);
    }
    let web = selected.descriptions(&cluster.key("web"));
    assert_eq!(web, ["Added", "Deleted Observed DeletedOrLeft"].repeat(4), "three exits and one deletion");
    assert_eq!(selected.events().len(), web.len(), "no event of another object was delivered");
    assert_fresh(&selected);
    for diagnostics in diagnostics {
        assert_eq!((diagnostics.times("relisted"), diagnostics.times("fell back to pages")), (0, 0));
    }
    Ok(())
}

async fn paged_list_delivers_each_object_once<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    for number in 0..25 {
        writer.create(&format!("c-{number:02}"), "1").await?;
    }
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = build::<K>(&factory, cluster.scope()).streamed_lists(false).page_size(Some(2)).start()?;
    let recording = recorder.record(&informer);
    recording.until_synced().await;
    let cached = informer.lister()?.all();
    let own_objects = cached.iter().filter(|object| object.key().name().starts_with("c-")).count();
    assert_eq!(own_objects, 25);
    let changed_object = writer.set("c-24", "2").await?;
    recorder.wait_for(&informer, informer.name(), &changed_object).await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("c-00")), ["Added"]);
    assert_eq!(recording.descriptions(&cluster.key("c-24")), ["Added", "Updated"]);
    assert_fresh(&recording);
    Ok(())
}

async fn finalizer_delays_deletion<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    let mut object = config_map_in(cluster.namespace(), "held", "1");
    object.metadata.finalizers = Some(vec!["steadfast.test/held".to_owned()]);
    writer.post(&object).await?;
    let Watched { informer, recording, .. } = &watch::<K>(cluster, &recorder).await?;

    writer.delete("held").await?;
    until_delivered(cluster, recording, "held", 2).await?;
    let cached = informer.lister()?.get(cluster.namespace(), "held")?.ok_or("the object must still exist")?;
    let cached = cached.config_map().ok_or("the object must decode")?;
    // With a finalizer, a deletion is only an update that sets `deletionTimestamp`.
    assert!(cached.metadata.deletion_timestamp.is_some(), "{cached:?}");
    writer.patch("held", json!({ "metadata": { "finalizers": null } })).await?;
    until_delivered(cluster, recording, "held", 3).await?;
    informer.wait_for_deletion(&*cached, EVENT_TIMEOUT).await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("held")), ["Added", "Updated", "Deleted Observed Deleted"]);
    assert_fresh(recording);
    Ok(())
}

async fn delete_collection_reports_each_deletion<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    for number in 0..20 {
        let app = if number % 2 == 0 { "old" } else { "new" };
        writer.create_labelled(&format!("c-{number:02}"), app).await?;
    }
    let Watched { recording, .. } = &watch::<K>(cluster, &recorder).await?;

    writer.delete_labelled("old").await?;

    check_contract(cluster, &recorder).await?;
    for number in 0..20 {
        let delivered = recording.descriptions(&cluster.key(&format!("c-{number:02}")));
        let deleted = number % 2 == 0;
        assert_eq!(
            delivered,
            if deleted { &["Added", "Deleted Observed Deleted"][..] } else { &["Added"] },
            "{number}"
        );
    }
    assert_fresh(recording);
    Ok(())
}

async fn metadata_informer_follows_changes(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    writer.create("a", "1").await?;
    let factory = InformerFactory::new(&cluster.connection().await?);
    let streamed = factory.informer::<PartialObjectMeta<ConfigMap>>(cluster.scope())?;
    let other_factory = InformerFactory::new(factory.connection());
    let paged = other_factory.builder::<PartialObjectMeta<ConfigMap>>(cluster.scope()).streamed_lists(false).start()?;
    let recordings = [recorder.record_as(&streamed, "streamed"), recorder.record_as(&paged, "in pages")];
    for recording in &recordings {
        recording.until_synced().await;
    }
    for recording in &recordings {
        until_delivered(cluster, recording, "a", 1).await?;
    }
    writer.set("a", "2").await?;
    for recording in &recordings {
        until_delivered(cluster, recording, "a", 2).await?;
    }
    writer.recreate("a", "3").await?;

    check_contract(cluster, &recorder).await?;
    for recording in &recordings {
        assert_eq!(
            recording.descriptions(&cluster.key("a")),
            ["Added", "Updated", "Deleted Observed Deleted", "Added"]
        );
        assert_fresh(recording);
    }
    Ok(())
}

async fn unchanged_write_is_not_delivered<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    let created = writer.create("a", "1").await?;
    let Watched { informer, recording, .. } = &watch::<K>(cluster, &recorder).await?;

    // An API server skips a write that changes nothing, so no event follows.
    let same = writer.set("a", "1").await?;
    assert_eq!(same.metadata.resource_version, created.metadata.resource_version, "the server keeps its version");
    recorder.wait_for(informer, informer.name(), &same).await?;
    let changed_object = writer.set("a", "2").await?;
    recorder.wait_for(informer, informer.name(), &changed_object).await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", "Updated"]);
    assert_fresh(recording);
    Ok(())
}

async fn name_and_label_scopes_are_exact<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    for (name, app) in [("one", "web"), ("two", "db"), ("three", "batch")] {
        writer.create_labelled(name, app).await?;
    }
    let factory = InformerFactory::new(&cluster.connection().await?);
    let scopes = [
        cluster.scope().fields("metadata.name=one"),
        cluster.scope().labels("app in (web,db)"),
        cluster.scope().labels("app notin (web),app"),
    ];
    let mut recordings = Vec::new();
    for scope in scopes {
        let recording = recorder.record(&build::<K>(&factory, scope).start()?);
        recording.until_synced().await;
        recordings.push(recording);
    }
    // Moves the object within the second scope, and from there into the third.
    writer.label("one", "db").await?;
    for (recording, times) in recordings.iter().zip([2, 2, 1]) {
        until_delivered(cluster, recording, "one", times).await?;
    }
    // `notin (web),app` requires the label to exist, because `notin` alone also matches objects without the label.
    writer.label("one", "batch").await?;
    for (recording, times) in recordings.iter().zip([3, 3, 2]) {
        until_delivered(cluster, recording, "one", times).await?;
    }
    writer.delete("two").await?;

    check_contract(cluster, &recorder).await?;
    let delivered =
        |name: &str| recordings.iter().map(|recording| recording.descriptions(&cluster.key(name))).collect::<Vec<_>>();
    let deletion = "Deleted Observed DeletedOrLeft";
    let expected = [&["Added", "Updated", "Updated"][..], &["Added", "Updated", deletion], &["Added", "Updated"]];
    assert_eq!(delivered("one"), expected);
    assert_eq!(delivered("two"), [&[][..], &["Added", deletion], &["Added", deletion]]);
    assert_eq!(delivered("three"), [&[][..], &[], &["Added"]]);
    recordings.iter().for_each(assert_fresh);
    Ok(())
}

async fn informers_on_one_connection_receive_own_events<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    const INFORMERS: usize = 50;
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    let connection = cluster.connection().await?;
    let factory = InformerFactory::new(&connection);
    let mut recordings = Vec::new();
    for number in 0..INFORMERS {
        let scope = cluster.scope().labels(format!("app=g{number}"));
        recordings.push(recorder.record(&build::<K>(&factory, scope).start()?));
    }
    factory.wait_for_sync(EVENT_TIMEOUT).await?;
    for number in 0..INFORMERS {
        writer.create_labelled(&format!("c-{number}"), &format!("g{number}")).await?;
    }
    for number in (0..INFORMERS).step_by(7) {
        until_delivered(cluster, &recordings[number], &format!("c-{number}"), 1).await?;
        writer.delete(&format!("c-{number}")).await?;
    }
    let watch_connections = connection.connections().iter().filter(|one| one.carries_watches).count();
    assert_eq!(watch_connections, 1, "all watches must share one connection");

    check_contract(cluster, &recorder).await?;
    for (number, recording) in recordings.iter().enumerate() {
        let deleted = number % 7 == 0;
        let expected = if deleted { &["Added", "Deleted Observed DeletedOrLeft"][..] } else { &["Added"] };
        assert_eq!(recording.descriptions(&cluster.key(&format!("c-{number}"))), expected, "{number}");
        assert_eq!(recording.events().len(), expected.len(), "{number} receives no other event");
        assert_fresh(recording);
    }
    Ok(())
}
