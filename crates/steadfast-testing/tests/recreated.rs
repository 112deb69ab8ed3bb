//! What happens to an object while a client is cut off, and in and out of selectors, is told as what it was.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use steadfast::Scope;
use steadfast_apiserver::ApiServer;
use steadfast_contract::check;
use steadfast_testing::{Recorder, WorldError, config_map, history, informers, labelled_config_map};

/// Two clients with an informer each watch the same config map; `meanwhile` happens while both are cut off.
async fn cut_off(
    meanwhile: impl Fn(&ApiServer) -> Result<(), WorldError>,
    compacted: bool,
) -> Result<Vec<Vec<String>>, WorldError> {
    let server = ApiServer::start().await?;
    server.create(&config_map("a", "1"))?;
    let recorder = Recorder::of(&server);
    let mut recordings = Vec::new();
    for client in ["first", "second"] {
        let factory = informers(&server).await?;
        let recording = recorder.record_as(&factory.informer::<ConfigMap>(Scope::all())?, client);
        recording.until_synced().await;
        recordings.push((factory, recording));
    }

    recorder.fault("cut", true);
    server.faults().cut();
    meanwhile(&server)?;
    if compacted {
        server.compact();
        server.faults().expire_events();
    }
    server.faults().heal();
    recorder.fault("cut", false);

    recorder.settle(&server).await;
    check(&history(&server, "", "configmaps"), &recorder.trace())?;
    Ok(recordings.iter().map(|(_, recording)| recording.story("default/a")).collect())
}

fn recreate(server: &ApiServer) -> Result<(), WorldError> {
    server.delete_named("configmaps", "default", "a")?;
    server.create(&config_map("a", "2"))?;
    Ok(())
}

fn delete(server: &ApiServer) -> Result<(), WorldError> {
    server.delete_named("configmaps", "default", "a")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_while_cut_off_is_a_delete_and_an_add() -> Result<(), WorldError> {
    for story in cut_off(recreate, false).await? {
        assert_eq!(story, ["Added", "Deleted Observed Deleted", "Added"]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_while_cut_off_and_compacted_is_a_delete_and_an_add() -> Result<(), WorldError> {
    for story in cut_off(recreate, true).await? {
        assert_eq!(story, ["Added", "Deleted Inferred Replaced", "Added"]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_while_cut_off_and_compacted_is_told() -> Result<(), WorldError> {
    for story in cut_off(delete, true).await? {
        assert_eq!(story, ["Added", "Deleted Inferred Deleted"]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_enters_and_leaves_a_selector_has_a_stay_each_time() -> Result<(), WorldError> {
    let server = ApiServer::start().await?;
    server.create(&labelled_config_map("a", "1", ("app", "web")))?;
    let factory = informers(&server).await?;
    let recorder = Recorder::of(&server);
    let seen = recorder.record(&factory.informer::<ConfigMap>(Scope::all().labels("app=web"))?);
    seen.until_synced().await;

    let label = |value: &str| json!({ "metadata": { "labels": { "app": value } } });
    for _ in 0..5 {
        server.merge_patch("configmaps", "default", "a", label("db"))?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        server.merge_patch("configmaps", "default", "a", label("web"))?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // And once while nobody looks: with its history, these are two stays all the same.
    server.faults().cut();
    server.merge_patch("configmaps", "default", "a", label("db"))?;
    server.merge_patch("configmaps", "default", "a", label("web"))?;
    server.faults().heal();

    recorder.settle(&server).await;
    check(&history(&server, "", "configmaps"), &recorder.trace())?;
    let story = seen.story("default/a");
    assert_eq!(story.first().map(String::as_str), Some("Added"));
    assert_eq!(story.iter().filter(|told| *told == "Added").count(), 7, "{story:?}");
    assert_eq!(story.iter().filter(|told| *told == "Deleted Observed DeletedOrLeft").count(), 6, "{story:?}");
    Ok(())
}
