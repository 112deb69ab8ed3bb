//! Uncached lists and change streams, for programs with their own storage.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::json;
use steadfast::{Changes, List, ResourceVersion, Scope, StreamError, WatchEvent, list, watch_from};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule, Verb};
use steadfast_testing::{TestError, config_map, config_map_in, until};
use tokio::time::timeout;

use super::{EVENT_TIMEOUT, InformerFixture, settle};

const MINUTE: Duration = Duration::from_secs(60);

impl InformerFixture {
    fn changes_from(&self, version: &str) -> Changes<ConfigMap> {
        watch_from(self.factory.connection(), Scope::all(), &ResourceVersion::from(version))
    }

    fn list(&self) -> List<ConfigMap> {
        list(self.factory.connection(), Scope::all())
    }

    fn fill(&self, objects: usize) -> Result<(), TestError> {
        for number in 0..objects {
            self.server.create(&config_map(&format!("c-{number:04}"), "1"))?;
        }
        Ok(())
    }
}

fn version(object: &ConfigMap) -> String {
    object.resource_version().unwrap_or_default()
}

/// Returns a description of the next change, and skips bookmarks. Each item must arrive within two seconds.
async fn next_change(changes: &mut Changes<ConfigMap>) -> Result<String, TestError> {
    loop {
        let change = timeout(EVENT_TIMEOUT, changes.next()).await?.ok_or("the stream has ended")??;
        let (name, object) = match change {
            WatchEvent::Added(object) => ("Added", object),
            WatchEvent::Modified(object) => ("Modified", object),
            WatchEvent::Deleted(object) => ("Deleted", object),
            WatchEvent::Bookmark(_) => continue,
        };
        return Ok(format!("{name} {}", object.name_any()));
    }
}

/// Returns the names in a list, in order.
async fn list_names(list: &mut List<ConfigMap>) -> Result<Vec<String>, StreamError> {
    let mut list_names = Vec::new();
    while let Some(object) = list.next().await {
        list_names.push(object?.name_any());
    }
    Ok(list_names)
}

#[tokio::test(start_paused = true)]
async fn watch_from_version_delivers_later_changes() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let first_object: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "1"))?)?;
    fixture.write("a", "2")?;
    fixture.server.delete_named("configmaps", "default", "a")?;
    let mut changes = fixture.changes_from(&version(&first_object));
    assert_eq!(next_change(&mut changes).await?, "Modified a", "the stream starts after this version");
    assert_eq!(next_change(&mut changes).await?, "Deleted a");
    let created: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("b", "1"))?)?;
    assert_eq!(next_change(&mut changes).await?, "Added b");
    assert_eq!(changes.version().as_str(), version(&created));
    assert!(changes.freshness().is_fresh(), "{}", changes.freshness());
    assert_eq!(fixture.server.request_counts().full_transfers(), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn watch_from_version_resumes_after_cuts() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let first: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "0"))?)?;
    let mut changes = fixture.changes_from(&version(&first));
    let mut changes_seen = Vec::new();
    for round in 0..20 {
        match round % 5 {
            0 => fixture.server.faults().cut(),
            1 => fixture.server.faults().end_watches(),
            2 => fixture.server.faults().goaway(),
            3 => fixture.server.faults().reset(),
            _ => fixture.server.faults().split_bodies(7),
        }
        fixture.write("a", &format!("{round}."))?;
        settle().await;
        fixture.server.faults().heal();
        loop {
            match timeout(MINUTE, changes.next()).await?.ok_or("the stream has ended")?? {
                WatchEvent::Modified(object) => {
                    break changes_seen.extend(object.data.unwrap_or_default().into_values());
                }
                WatchEvent::Bookmark(_) => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
    assert_eq!(changes_seen, (0..20).map(|round| format!("{round}.")).collect::<Vec<_>>());
    Ok(())
}

/// Regression test: repeated events of the server were delivered twice, as 13 changes instead of 6.
#[tokio::test(start_paused = true)]
async fn repeated_events_are_delivered_once() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let first: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "0"))?)?;
    let mut changes = fixture.changes_from(&version(&first));
    for number in 1..=6 {
        let written_object = fixture.write("a", &number.to_string())?;
        assert_eq!(next_change(&mut changes).await?, "Modified a");
        assert_eq!(changes.version().as_str(), version(&written_object));
        fixture.server.faults().repeat_events(3);
        fixture.server.faults().end_watches();
        settle().await;
    }
    assert!(timeout(MINUTE, next_change(&mut changes)).await?.is_err(), "no other changes exist");
    Ok(())
}

/// Regression test: an `ERROR` event with a versioned object counted as a change at that version, and later changes
/// were lost.
#[tokio::test(start_paused = true)]
async fn error_without_status_keeps_stream() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let first: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "0"))?)?;
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7000" } });
    let rule = RequestRule::any().verb(Verb::Watch).times(2);
    fixture.server.faults().respond(rule, InjectedResponse::ErrorObject(object));
    let mut changes = fixture.changes_from(&version(&first));
    let next_change = tokio::spawn(async move {
        let change = next_change(&mut changes).await.map_err(|error| error.to_string());
        (change, changes.version())
    });
    settle().await;
    let written_object = fixture.write("a", "1")?;
    let (change, at) = next_change.await?;
    assert_eq!((change?.as_str(), at.as_str()), ("Modified a", version(&written_object).as_str()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn expired_version_ends_stream() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let old: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "1"))?)?;
    fixture.write("a", "2")?;
    let mut running = fixture.changes_from(&version(&old));
    assert_eq!(next_change(&mut running).await?, "Modified a");
    fixture.server.faults().cut();
    fixture.write("a", "3")?;
    fixture.server.compact();
    fixture.server.faults().expire_events();
    fixture.server.faults().heal();
    let mut expired = fixture.changes_from(&version(&old));
    for changes in [&mut expired, &mut running] {
        let error = timeout(MINUTE, changes.next()).await?.ok_or("it has ended")?.expect_err("the version has expired");
        let StreamError::Expired { version, .. } = &error else { panic!("{error}") };
        let text = error.to_string();
        assert!(
            text.contains(&format!("after version {version} are not available")) && text.contains("list again, and"),
            "{text}"
        );
        assert!(changes.next().await.is_none());
        assert_eq!(changes.freshness().name(), "stopped");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn version_of_other_history_is_expired() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let mut changes = fixture.changes_from("1000000");
    let error =
        timeout(EVENT_TIMEOUT, changes.next()).await?.ok_or("it has ended")?.expect_err("the version does not exist");
    assert!(
        matches!(error, StreamError::Expired { .. }) && error.to_string().contains("which belongs to another history"),
        "{error}"
    );
    for unset_version in ["", "0"] {
        let error = fixture
            .changes_from(unset_version)
            .next()
            .await
            .ok_or("it has ended")?
            .expect_err("the text is not a valid version");
        assert!(error.to_string().contains("is not a version that a watch can start from"), "{error}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_stale_and_replaced() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let first: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "0"))?)?;
    let mut changes = fixture.changes_from(&version(&first));
    fixture.write("a", "1")?;
    assert_eq!(next_change(&mut changes).await?, "Modified a");
    fixture.server.faults().stall_streams(true);
    fixture.write("a", "2")?;
    let start = tokio::time::Instant::now();
    let next = timeout(3 * MINUTE, changes.next()).await?.ok_or("it has ended")??;
    assert!(matches!(next, WatchEvent::Modified(_)), "{next:?}");
    assert!(start.elapsed() < Duration::from_secs(130), "{:?}", start.elapsed());

    fixture.server.faults().cut();
    assert!(timeout(MINUTE, changes.next()).await.is_err(), "an outage must not end the stream");
    let state = changes.freshness();
    assert!(state.name() == "stale" && state.doubt().is_some_and(|doubt| doubt.attempts > 3), "{state}");
    Ok(())
}

/// Changes that waited in a buffer were taken as a proof of the present.
#[tokio::test(start_paused = true)]
async fn unread_changes_are_no_proof() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let first: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "0"))?)?;
    let mut changes = fixture.changes_from(&version(&first));
    fixture.write("a", "1")?;
    assert_eq!(next_change(&mut changes).await?, "Modified a");
    fixture.write("a", "2")?;
    // The program does not poll the stream for some time.
    tokio::time::sleep(4 * MINUTE).await;
    assert_eq!(next_change(&mut changes).await?, "Modified a");
    assert!(!changes.freshness().is_fresh(), "{}", changes.freshness());

    let unread_bookmarks = async { while changes.next().await.is_some() {} };
    assert!(timeout(5 * EVENT_TIMEOUT, unread_bookmarks).await.is_err(), "the stream continues");
    fixture.write("a", "3")?;
    assert_eq!(next_change(&mut changes).await?, "Modified a");
    assert!(changes.freshness().is_fresh(), "{}", changes.freshness());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn forbidden_watch_names_missing_permission() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let first: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "0"))?)?;
    fixture.server.faults().respond(RequestRule::any().verb(Verb::Watch), InjectedResponse::Forbidden);
    let error = fixture
        .changes_from(&version(&first))
        .next()
        .await
        .ok_or("it has ended")?
        .expect_err("the request is forbidden");
    assert!(error.to_string().contains("needs watch on configmaps"), "{error}");
    fixture.server.faults().respond(RequestRule::any(), InjectedResponse::Forbidden);
    let error = list_names(&mut fixture.list()).await.expect_err("the request is forbidden");
    assert!(matches!(error, StreamError::Rejected { .. }), "{error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_does_not_end_stream() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let first: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "s3cr3t"))?)?;
    fixture.server.faults().undecodable("default", "a", true);
    fixture.server.create(&config_map("b", "1"))?;
    let (mut list, mut changes) = (fixture.list(), fixture.changes_from(&version(&first)));
    let error = list.next().await.ok_or("it has ended")?.expect_err("the object cannot be decoded");
    assert!(matches!(error, StreamError::Unreadable { .. }), "{error}");
    assert!(error.to_string().contains("default/a") && !error.to_string().contains("s3cr3t"), "{error}");
    assert_eq!(list_names(&mut list).await?, ["b"]);

    assert_eq!(next_change(&mut changes).await?, "Added b");
    let written_object = fixture.write("a", "2")?;
    let error = changes.next().await.ok_or("it has ended")?.expect_err("the object cannot be decoded");
    assert!(error.to_string().contains("default/a"), "{error}");
    assert_eq!(changes.version().as_str(), version(&written_object), "the stream must not request the object again");
    fixture.write("b", "2")?;
    assert_eq!(next_change(&mut changes).await?, "Modified b");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn paged_list_returns_objects_and_version() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.fill(1201)?;
    let mut list = fixture.list();
    assert_eq!(list.version(), None);
    let names = list_names(&mut list).await?;
    assert_eq!((names.len(), names.first().map(String::as_str)), (1201, Some("c-0000")));
    let requests = fixture.server.requests();
    let pages = requests.iter().filter(|request| request.query.contains("limit=500")).count();
    assert_eq!(pages, 3);

    let mut changes = fixture.changes_from(list.version().ok_or("it has one")?.as_str());
    fixture.server.create(&config_map("late", "1"))?;
    assert_eq!(next_change(&mut changes).await?, "Added late");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn expired_continue_token_loses_no_object() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    // The server orders keys by their bytes: `default-2/…` precedes `default/…`, because `-` sorts before `/`.
    fixture
        .server
        .create(&serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "default-2" } }))?;
    fixture.fill(1000)?;
    for number in 0..200 {
        fixture.server.create(&config_map_in("default-2", &format!("c-{number:04}"), "1"))?;
    }
    let mut list = fixture.list();
    let mut list_names = BTreeMap::new();
    while let Some(object) = list.next().await {
        let object = object?;
        let version = object.resource_version().unwrap_or_default().parse::<u64>()?;
        let doubled = list_names.insert((object.namespace(), object.name_any()), version);
        assert_eq!(doubled, None, "{}", object.name_any());
        if list_names.len() == 100 {
            // Between two pages, the token expires. The remaining pages are of a later version, with these objects.
            fixture.server.faults().expire_continue_tokens(1);
            fixture.write("c-0001", "2")?;
            fixture.write("c-0999", "2")?;
        }
    }
    assert_eq!(list_names.len(), 1200);
    let mut changes = fixture.changes_from(list.version().ok_or("it has one")?.as_str());
    let lines = [next_change(&mut changes).await?, next_change(&mut changes).await?];
    assert_eq!(
        lines,
        ["Modified c-0001", "Modified c-0999"],
        "a watch from the first page's version delivers the missed changes"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn broken_page_is_retried_without_duplicates() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.fill(900)?;
    let mut list = fixture.list();
    let mut names = Vec::new();
    while let Some(object) = list.next().await {
        names.push(object?.name_any());
        if names.len() % 300 == 1 {
            fixture.server.faults().reset_after_bytes(20_000);
        }
    }
    let expected_names: Vec<_> = (0..900).map(|number| format!("c-{number:04}")).collect();
    assert_eq!(names, expected_names);
    let pages = fixture.server.requests().iter().filter(|request| request.query.contains("limit=500")).count();
    assert!(pages > 2, "several pages are necessary");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unavailable_list_times_out_with_cause() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.faults().cut();
    let start = tokio::time::Instant::now();
    let error = list_names(&mut fixture.list()).await.expect_err("the network is down");
    assert!(matches!(error, StreamError::Interrupted { .. }), "{error}");
    assert!(start.elapsed() > Duration::from_secs(30) && start.elapsed() < MINUTE, "{:?}", start.elapsed());
    fixture.server.faults().heal();
    assert_eq!(list_names(&mut fixture.list()).await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn unread_list_delays_no_informer() -> Result<(), TestError> {
    let server = ApiServer::builder().start().await?;
    for number in 0..1000 {
        server.create(&config_map(&format!("c-{number:04}"), &"x".repeat(10_000)))?;
    }
    let factory = steadfast_testing::informers(&server).await?;
    let mut list: List<ConfigMap> = list(factory.connection(), Scope::all());
    assert!(list.next().await.is_some_and(|first| first.is_ok()));
    let informer = factory.informer::<ConfigMap>(Scope::all())?;
    informer.wait_for_sync(MINUTE).await?;
    assert_eq!(informer.lister()?.len(), 1000);
    until(EVENT_TIMEOUT, || informer.freshness().is_fresh()).await?;
    assert_eq!(list_names(&mut list).await?.len(), 999);
    Ok(())
}
