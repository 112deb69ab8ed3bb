//! Tests of registries over HTTP with a small server. The assertions check the stored items.

mod registry_server;

use std::collections::BTreeMap;
use std::time::Duration;

use registry_server::RegistryServer;
use serde_json::{Value, json};
use steadfast_targets::registry::{Layout, PlainRegistryClient, Registry, RegistryError, RegistryItem};
use steadfast_targets::{
    DesiredState, Limits, Mirror, MirrorMemory, MirrorSettings, MirrorStatus, SkipReason, Step, Target,
};
use tokio::time::timeout;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(20);

fn target(server: &RegistryServer, mark: &str) -> Result<Registry<PlainRegistryClient>> {
    let (url, list) = (format!("{}/services/{{key}}", server.url), format!("{}/services?of={{mark}}", server.url));
    let layout = Layout { items: "/services".to_owned(), ..Layout::new(&url, &list, mark) };
    Ok(Registry::new(PlainRegistryClient, layout)?)
}

fn start_mirror(server: &RegistryServer, mark: &str) -> Result<Mirror<RegistryItem>> {
    let limits = Limits { share: 1.0, ..Limits::default() };
    let settings =
        MirrorSettings { limits, allow_empty: true, compare: Duration::from_millis(100), ..MirrorSettings::default() };
    Ok(Mirror::start(mark, target(server, mark)?, settings, MirrorMemory::volatile()))
}

fn entries(all: &[(&str, Value)]) -> BTreeMap<String, RegistryItem> {
    all.iter().map(|(key, value)| ((*key).to_owned(), RegistryItem(value.clone()))).collect()
}

fn values(all: &[(&str, Value)]) -> BTreeMap<String, Value> {
    all.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

/// Sets the desired state, and waits until a later pass finds the target settled.
async fn set_and_wait(
    mirror: &Mirror<RegistryItem>,
    desired: DesiredState<RegistryItem>,
) -> Result<MirrorStatus<RegistryItem>> {
    let reads = mirror.status().borrow().reads;
    mirror.set_desired(desired);
    let mut status = mirror.status();
    let settled = status.wait_for(|status| status.settled && status.reads > reads + 1);
    Ok(timeout(TIMEOUT, settled).await??.clone())
}

fn step(key: &str, value: &Value) -> Step<RegistryItem> {
    Step::Add { name: key.to_owned(), value: RegistryItem(value.clone()) }
}

#[tokio::test]
async fn mirror_manages_only_its_items() -> Result {
    let server = RegistryServer::start().await;
    server.state().put("/services/theirs", json!({"key": "theirs", "owner": "somebody", "value": 1}));
    server.state().put("/services/nobodys", json!({"key": "nobodys"}));
    let mirror = start_mirror(&server, "one")?;
    let all = [("a", json!({"port": 80})), ("shop/ü b", json!("x")), ("theirs", json!("mine"))];
    let status = set_and_wait(&mirror, DesiredState::new(entries(&all))).await?;
    assert_eq!(status.skipped, BTreeMap::from([("theirs".to_owned(), SkipReason::Foreign)]));
    let others = [("theirs", json!(1)), ("nobodys", Value::Null)];
    assert_eq!(server.state().values(), values(&[&all[..2], &others[..]].concat()));

    let other = [("a", json!({"port": 81}))];
    set_and_wait(&mirror, DesiredState::new(entries(&other))).await?;
    assert_eq!(server.state().values(), values(&[&other[..], &others[..]].concat()));

    // In doubt, missing entries are added, and no entry is removed.
    let more = [("b", json!(2))];
    let doubt = Some("the cache is stale".into());
    let status =
        set_and_wait(&mirror, DesiredState { entries: entries(&more), doubt, ..DesiredState::default() }).await?;
    assert_eq!(status.skipped, BTreeMap::from([("a".to_owned(), SkipReason::Doubt)]));
    assert_eq!(server.state().values(), values(&[&other[..], &more[..], &others[..]].concat()));

    // A restarted mirror adopts existing entries, and reverts changes of another client.
    mirror.stop().await;
    let mirror = start_mirror(&server, "one")?;
    set_and_wait(&mirror, DesiredState::new(entries(&more))).await?;
    server.state().items.remove("/services/b");
    set_and_wait(&mirror, DesiredState::new(entries(&more))).await?;
    assert_eq!(server.state().values(), values(&[&more[..], &others[..]].concat()));
    set_and_wait(&mirror, DesiredState::new(BTreeMap::new())).await?;
    assert_eq!(server.state().values(), values(&others));
    Ok(())
}

#[tokio::test]
async fn item_taken_after_read_stays_foreign() -> Result {
    let server = RegistryServer::start().await;
    let target = target(&server, "one")?;
    target.read().await?;
    let theirs = |key: &str| json!({"key": key, "owner": "somebody", "value": "theirs"});
    server.state().put("/services/race", theirs("race"));
    let add_steps = ["a", "race", "z"].map(|key| step(key, &json!("mine")));
    let error = target.apply(&add_steps).await.expect_err("the key is taken");
    assert!(matches!(&error, RegistryError::Conflict { key } if key == "race"), "{error}");
    let expected = [("a", json!("mine")), ("race", json!("theirs")), ("z", json!("mine"))];
    assert_eq!(server.state().values(), values(&expected));

    // Tries to change and remove entries that the mirror no longer owns, also without conditional requests.
    for checks_conditions in [true, false] {
        server.state().checks_conditions = checks_conditions;
        server.state().put("/services/a", theirs("a"));
        let from = RegistryItem(json!("mine"));
        let change = Step::Change { name: "a".to_owned(), from: from.clone(), to: RegistryItem(json!("other")) };
        assert!(matches!(target.apply(&[change]).await, Err(RegistryError::Conflict { .. })));
        let remove = Step::Remove { name: "a".to_owned(), value: from };
        assert!(matches!(target.apply(&[remove]).await, Err(RegistryError::Conflict { .. })));
        assert_eq!(server.state().values()["a"], "theirs");
    }
    // Removal of an entry that another client already deleted succeeds.
    target.apply(&[Step::Remove { name: "never".to_owned(), value: RegistryItem(Value::Null) }]).await?;
    Ok(())
}

#[tokio::test]
async fn failing_registry_is_not_considered_empty() -> Result {
    let server = RegistryServer::start().await;
    let mirror = start_mirror(&server, "one")?;
    let all = [("a", json!(1)), ("b", json!(2))];
    set_and_wait(&mirror, DesiredState::new(entries(&all))).await?;
    let request =
        |server: &RegistryServer| server.state().requests.iter().filter(|request| !request.starts_with("GET")).count();
    let before = request(&server);
    for (status, remedy) in [(503, "503"), (401, "set a header"), (302, "redirects are not followed")] {
        server.state().status_override = Some(status);
        let mut status = mirror.status();
        let failing = status.wait_for(|status| status.failing.as_ref().is_some_and(|reason| reason.contains(remedy)));
        let reason = timeout(TIMEOUT, failing).await??.failing.clone().unwrap_or_default();
        assert!(reason.contains("`GET http://127.0.0.1:") && !reason.contains("of=one"), "{reason}");
    }
    server.state().status_override = None;
    set_and_wait(&mirror, DesiredState::new(entries(&all))).await?;
    assert_eq!(request(&server), before, "no write is sent after a failed read");
    assert_eq!(server.state().values(), values(&all));
    Ok(())
}

#[tokio::test]
async fn described_steps_are_curl_commands() -> Result {
    let server = RegistryServer::start().await;
    let target = target(&server, "one")?;
    let steps =
        [step("it's", &json!({"port": 80})), Step::Remove { name: "b".to_owned(), value: RegistryItem(json!(1)) }];
    let url = &server.url;
    assert_eq!(
        target.describe(&target.read().await?, &steps),
        [
            format!(
                "curl -X PUT -H 'Content-Type: application/json' -H 'If-None-Match: *' \
                 -d '{{\"key\":\"it'\\''s\",\"owner\":\"one\",\"value\":{{\"port\":80}}}}' '{url}/services/it%27s'"
            ),
            format!("curl -X DELETE '{url}/services/b'"),
        ]
    );
    Ok(())
}
