//! Known bugs of controllers, one per test. A sweep must find each, and report the least severe fault that reproduces
//! it.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Connection, InformerFactory, ObjectKey};
use steadfast_controller::{Action, Controller, LeaderElection, back_off};
use steadfast_testing::sweep::{Fixture, Sweep};
use steadfast_testing::{TestError, TestkitError};

use super::honest::change_twice_scenario;
use super::{
    Context, change_parent, child_name, create_change_delete_scenario, create_parent, create_parent_scenario,
    empty_config_map, is_not_found, parents, run_controller, value,
};

/// Returns the least severe fault that changes the final state, and the differences.
fn smallest_finding<C, S, CF, SF>(sweep: &Sweep<C, S>) -> Result<(String, String), TestkitError>
where
    C: Fn(Connection) -> CF + Sync,
    S: Fn(Fixture) -> SF + Sync,
    CF: Future<Output = Result<(), TestError>>,
    SF: Future<Output = Result<(), TestError>>,
{
    let report = sweep.run()?;
    println!("{report}");
    assert!(report.check().is_err(), "nothing is found: {report}");
    let first = report.findings().first().ok_or("nothing was found")?;
    Ok((first.fault.to_string(), first.differences.join("; ")))
}

const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Bug: after a lost response to the removal of the finalizer, no retry finds the parent, and the child leaks.
#[test]
fn finalizer_removed_before_cleanup_is_found() -> Result<(), TestkitError> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let finalizers = |list: &[&str]| json!({ "metadata": { "finalizers": list } });
        if parent.metadata.deletion_timestamp.is_some() {
            context.patch(&parent.name_any(), finalizers(&[])).await?;
            context.delete(&child_name(&parent)).await?;
            return Ok(Action::await_change());
        }
        if parent.finalizers().is_empty() {
            context.patch(&parent.name_any(), finalizers(&["test.example/belonging"])).await?;
            context.create_unowned(&child_name(&parent)).await?;
        }
        Ok(Action::await_change())
    }
    let (fault, differences) = smallest_finding(&Sweep::new(
        |connection| run_controller(connection, reconcile),
        create_change_delete_scenario,
    ))?;
    assert_eq!(fault, format!("response-lost controller #2 patch {PATH}/a"));
    assert!(differences.contains("a-belonging: 0 without the fault, 1 with it"), "{differences}");
    Ok(())
}

/// Bug: the status is computed from a list that may lack the new object.
#[test]
fn status_from_stale_read_is_found() -> Result<(), TestkitError> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let name = child_name(&parent);
        if context.maps().get_opt(&name).await?.is_none() {
            context.create_unowned(&name).await?;
        }
        // A list at version 0 reads from any cache of the server, of any age.
        let list = context.maps().list(&ListParams::default().match_any()).await?;
        let created_count = list.items.iter().filter(|map| map.name_any() == name).count();
        context.patch(&parent.name_any(), json!({ "data": { "made": created_count.to_string() } })).await?;
        Ok(Action::await_change())
    }
    let (fault, differences) =
        smallest_finding(&Sweep::new(|connection| run_controller(connection, reconcile), create_parent_scenario))?;
    assert_eq!(fault, format!("delayed controller #1 create {PATH}"));
    assert!(differences.contains("/data/made is \"1\" without the fault, \"0\" with it"), "{differences}");
    Ok(())
}

/// Bug: a retry with `generateName` creates a second object, because the server cannot detect the duplicate.
#[test]
fn creation_without_stable_name_is_found() -> Result<(), TestkitError> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        if value(&parent, "made").is_empty() {
            let mut map = ConfigMap::default();
            map.metadata.generate_name = Some(format!("{}-", child_name(&parent)));
            context.maps().create(&PostParams::default(), &map).await?;
            context.patch(&parent.name_any(), json!({ "data": { "made": "yes" } })).await?;
        }
        Ok(Action::await_change())
    }
    let (fault, differences) =
        smallest_finding(&Sweep::new(|connection| run_controller(connection, reconcile), create_parent_scenario))?;
    assert_eq!(fault, format!("response-lost controller #1 create {PATH}"));
    assert!(differences.contains("a-belonging-*: 1 without the fault, 2 with it"), "{differences}");
    Ok(())
}

/// Bug: after a lost response, each retry fails with 409 `AlreadyExists`, and the status is never written.
#[test]
fn creation_failing_on_existing_object_is_found() -> Result<(), TestkitError> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        if value(&parent, "made").is_empty() {
            context.create_unowned(&child_name(&parent)).await?;
            context.patch(&parent.name_any(), json!({ "data": { "made": "yes" } })).await?;
        }
        Ok(Action::await_change())
    }
    let (fault, differences) =
        smallest_finding(&Sweep::new(|connection| run_controller(connection, reconcile), create_parent_scenario))?;
    assert_eq!(fault, format!("response-lost controller #1 create {PATH}"));
    assert!(
        differences.contains("configmaps default/a: /data/made is \"yes\" without the fault, null with it"),
        "{differences}"
    );
    Ok(())
}

/// Bug: after a lost response, each retry of the deletion fails with 404, and the finalizer is never removed.
#[test]
fn cleanup_failing_on_missing_object_is_found() -> Result<(), TestkitError> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let finalizers = |list: &[&str]| json!({ "metadata": { "finalizers": list } });
        if parent.metadata.deletion_timestamp.is_some() {
            context.delete(&child_name(&parent)).await?;
            context.patch(&parent.name_any(), finalizers(&[])).await?;
            return Ok(Action::await_change());
        }
        context.patch(&parent.name_any(), finalizers(&["test.example/belonging"])).await?;
        if context.maps().get_opt(&child_name(&parent)).await?.is_none() {
            context.create_unowned(&child_name(&parent)).await?;
        }
        Ok(Action::await_change())
    }
    let (fault, differences) = smallest_finding(&Sweep::new(
        |connection| run_controller(connection, reconcile),
        create_change_delete_scenario,
    ))?;
    assert_eq!(fault, format!("response-lost controller #1 delete {PATH}/a-belonging"));
    assert!(differences.contains("configmaps default/a: 0 without the fault, 1 with it"), "{differences}");
    Ok(())
}

/// Bug: the status is written before the action. After a lost response, the status claims an action that never ran.
#[test]
fn status_written_before_action_is_found() -> Result<(), TestkitError> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        if value(&parent, "done") != value(&parent, "value") {
            context.patch(&parent.name_any(), json!({ "data": { "done": value(&parent, "value") } })).await?;
            context.create_unowned(&child_name(&parent)).await?;
        }
        Ok(Action::await_change())
    }
    let (fault, differences) =
        smallest_finding(&Sweep::new(|connection| run_controller(connection, reconcile), create_parent_scenario))?;
    assert_eq!(fault, format!("response-lost controller #1 patch {PATH}/a"));
    assert!(differences.contains("a-belonging: 1 without the fault, 0 with it"), "{differences}");
    Ok(())
}

/// Bug: a retry repeats the first of two steps, because only the last write marks both as done.
#[test]
fn repeated_first_step_is_found() -> Result<(), TestkitError> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        if value(&parent, "moved").is_empty() {
            let from = context.number("from", "coins").await?;
            context.patch("from", json!({ "data": { "coins": (from - 1).to_string() } })).await?;
            let to = context.number("to", "coins").await?;
            context.patch("to", json!({ "data": { "coins": (to + 1).to_string() } })).await?;
            context.patch(&parent.name_any(), json!({ "data": { "moved": "yes" } })).await?;
        }
        Ok(Action::await_change())
    }
    let sweep = Sweep::new(|connection| run_controller(connection, reconcile), create_parent_scenario);
    let accounts = |server: &steadfast_apiserver::ApiServer| {
        for account in ["from", "to"] {
            let mut map = empty_config_map(account);
            map.metadata.namespace = Some("default".to_owned());
            map.data = Some([("coins".to_owned(), "5".to_owned())].into());
            server.create(&map)?;
        }
        Ok(())
    };
    let (fault, differences) = smallest_finding(&sweep.prepare(accounts))?;
    assert_eq!(fault, format!("response-lost controller #1 patch {PATH}/from"));
    assert!(
        differences.contains("configmaps default/from: /data/coins is \"4\" without the fault, \"3\" with it"),
        "{differences}"
    );
    Ok(())
}

/// Bug: without a finalizer, a restarted process does not know the children of a deleted parent.
#[test]
fn cleanup_from_memory_is_found() -> Result<(), TestkitError> {
    async fn process(connection: Connection) -> Result<(), TestError> {
        let informers = InformerFactory::new(&connection);
        let parent_informer = informers.informer::<ConfigMap>(steadfast::Scope::all().labels(super::PARENTS))?;
        let context = Arc::new(Context { client: connection.client(), memory: Mutex::default() });
        let reconcile = move |key: ObjectKey, context: Arc<Context>| {
            let parent = parent_informer.lister().ok().and_then(|lister| lister.get_by_key(&key).ok().flatten());
            async move {
                let name = format!("{}-belonging", key.name());
                let memory = || context.memory.lock();
                if parent.is_some() {
                    if context.maps().get_opt(&name).await?.is_none() {
                        context.create_unowned(&name).await?;
                    }
                    memory().insert(name);
                } else if memory().contains(&name) {
                    match context.delete(&name).await {
                        Err(error) if !is_not_found(&error) => return Err(error),
                        _ => memory().remove(&name),
                    };
                }
                Ok(Action::await_change())
            }
        };
        let _running = Controller::<ConfigMap>::new(&informers, parents()).run_by_key(reconcile, back_off, context)?;
        pending().await
    }
    let (fault, differences) = smallest_finding(&Sweep::new(process, create_change_delete_scenario))?;
    assert_eq!(fault, format!("crash-before controller #1 delete {PATH}/a-belonging"));
    assert!(differences.contains("a-belonging: 0 without the fault, 1 with it"), "{differences}");
    Ok(())
}

/// Creates the child of a parent with a generated name, unless the process has a record of the child. If uncertain,
/// reads the children, and expects exactly one.
async fn create_if_unknown(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let prefix = child_name(&parent);
    let is_new = context.memory.lock().insert(prefix.clone());
    let mut map = ConfigMap::default();
    map.metadata.generate_name = Some(format!("{prefix}-"));
    let is_missing = async || {
        let listed = context.maps().list(&ListParams::default()).await?;
        Ok::<_, kube::Error>(!listed.items.iter().any(|map| map.name_any().starts_with(&prefix)))
    };
    if is_new || is_missing().await? {
        context.maps().create(&PostParams::default(), &map).await?;
    }
    Ok(Action::await_change())
}

/// Bug: a restarted process has no record of the creation, and repeats it under another generated name.
#[test]
fn creation_remembered_in_process_is_found() -> Result<(), TestkitError> {
    let report =
        Sweep::new(|connection| run_controller(connection, create_if_unknown), create_parent_scenario).run()?;
    println!("{report}");
    let faults: Vec<String> = report.findings().iter().map(|finding| finding.fault.to_string()).collect();
    assert!(faults.contains(&format!("crash-after controller #1 create {PATH}")), "{report}");
    // Without a crash, the process still has the record of the child. After a crash before the creation, no child
    // exists. Neither fault may be a finding.
    assert!(faults.iter().all(|fault| fault.starts_with("crash-")), "{report}");
    assert!(!faults.contains(&format!("crash-before controller #1 create {PATH}")), "{report}");
    Ok(())
}

/// Bug: a restarted process reads its state with `resourceVersion=0`. A cache may serve a state from before the crash.
#[test]
fn start_from_stale_cache_is_found() -> Result<(), TestkitError> {
    async fn process(connection: Connection) -> Result<(), TestError> {
        let informers = InformerFactory::new(&connection);
        let context = Context { client: connection.client(), memory: Mutex::default() };
        let listed = context.maps().list(&ListParams::default().match_any()).await?;
        let known = listed.items.iter().filter_map(|map| map.metadata.generate_name.as_deref()?.strip_suffix('-'));
        context.memory.lock().extend(known.map(str::to_owned));
        let controller = Controller::<ConfigMap>::new(&informers, parents());
        let _running = controller.run(create_if_unknown, back_off, Arc::new(context))?;
        pending().await
    }
    let (fault, differences) = smallest_finding(&Sweep::new(process, create_parent_scenario))?;
    assert_eq!(fault, format!("crash-then-stale-view controller #1 create {PATH}"));
    assert!(differences.contains("a-belonging-*: 1 without the fault, 2 with it"), "{differences}");
    Ok(())
}

/// Bug: the controller needs every state, but a cache may skip intermediate states (level-triggered reconciles).
#[test]
fn dependency_on_each_state_is_found() -> Result<(), TestkitError> {
    /// Adds each new value to the sum. A skipped state is missing in the sum.
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let new_value = value(&parent, "value");
        if value(&parent, "added") != new_value {
            let sum = context.number(&parent.name_any(), "sum").await? + new_value.parse::<i64>().unwrap_or_default();
            let sum = json!({ "data": { "sum": sum.to_string(), "added": new_value } });
            context.patch(&parent.name_any(), sum).await?;
        }
        Ok(Action::await_change())
    }
    async fn three_values_scenario(fixture: Fixture) -> Result<(), TestError> {
        create_parent(&fixture, "a").await?;
        for new_value in ["2", "3"] {
            fixture.settle().await?;
            change_parent(&fixture, "a", new_value).await?;
        }
        Ok(fixture.settle().await?)
    }
    let (fault, differences) =
        smallest_finding(&Sweep::new(|connection| run_controller(connection, reconcile), three_values_scenario))?;
    assert!(fault.starts_with("unobserved scenario"), "{fault}");
    assert!(differences.contains("/data/sum is \"6\" without the fault"), "{differences}");
    Ok(())
}

/// Bug: reconciles continue after the loss of the lease, and overwrite the writes of the next leader.
#[test]
fn reconcile_after_leadership_loss_is_found() -> Result<(), TestkitError> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        context.apply_child(&parent).await?;
        Ok(Action::await_change())
    }
    /// Lets reconciles in progress finish after the loss of the lease. Their client has no fence.
    async fn process(connection: Connection) -> Result<(), TestError> {
        let election = LeaderElection::builder(&connection, "default", "mirror").start()?;
        let leader = election.until_leader().await.ok_or("the election was stopped")?;
        let informers = InformerFactory::new(&connection);
        let context = Context { client: connection.client(), memory: Mutex::default() };
        let controller = Controller::<ConfigMap>::new(&informers, parents());
        let running = controller.run(reconcile, back_off, Arc::new(context))?;
        leader.until_lost().await;
        running.stop(Duration::from_secs(30)).await;
        Err("lost the leadership to another process".into())
    }
    let (fault, differences) = smallest_finding(
        &Sweep::new(process, change_twice_scenario).processes(2).repeats(2).quiet(Duration::from_secs(40)),
    )?;
    assert!(fault.starts_with("leadership-lost controller"), "{fault}");
    assert!(
        differences.contains("a-belonging: /data/value is \"3\" without the fault, \"2\" with it"),
        "{differences}"
    );
    Ok(())
}
