//! Bugs that controllers are known to have, one a test: a sweep finds each, and tells the smallest disturbance that shows it.

use std::future::{Future, pending};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use steadfast::{Connection, InformerFactory, ObjectKey};
use steadfast_controller::{Action, Controller, LeaderElection, back_off};
use steadfast_testing::sweep::{Stage, Sweep};
use steadfast_testing::{Error, WorldError};

use super::honest::changes_twice;
use super::{
    Context, belonging, change_parent, comes, comes_and_goes, is_gone, make_parent, named, operate, parents, value,
};

/// The smallest disturbance that changes the end, and what is different then.
fn smallest<C, S, CF, SF>(sweep: &Sweep<C, S>) -> Result<(String, String), Error>
where
    C: Fn(Connection) -> CF + Sync,
    S: Fn(Stage) -> SF + Sync,
    CF: Future<Output = Result<(), WorldError>>,
    SF: Future<Output = Result<(), WorldError>>,
{
    let report = sweep.run()?;
    println!("{report}");
    assert!(report.check().is_err(), "nothing is found: {report}");
    let first = report.findings().first().ok_or("nothing was found")?;
    Ok((first.disturbance.to_string(), first.differences.join("; ")))
}

const PATH: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn a_finalizer_that_is_taken_away_before_the_cleanup() -> Result<(), Error> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let finalizers = |list: &[&str]| json!({ "metadata": { "finalizers": list } });
        if parent.metadata.deletion_timestamp.is_some() {
            context.patch(&parent.name_any(), finalizers(&[])).await?;
            context.take_away(&belonging(&parent)).await?;
            return Ok(Action::await_change());
        }
        if parent.finalizers().is_empty() {
            context.patch(&parent.name_any(), finalizers(&["test.example/belonging"])).await?;
            context.make(&belonging(&parent)).await?;
        }
        Ok(Action::await_change())
    }
    let (disturbance, told) = smallest(&Sweep::new(|connection| operate(connection, reconcile), comes_and_goes))?;
    assert_eq!(disturbance, format!("answer-lost controller #2 patch {PATH}/a"));
    assert!(told.contains("a-belonging: 0 without the fault, 1 with it"), "{told}");
    Ok(())
}

#[test]
fn a_status_written_from_a_stale_read() -> Result<(), Error> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let name = belonging(&parent);
        if context.maps().get_opt(&name).await?.is_none() {
            context.make(&name).await?;
        }
        // Whatever some cache of the server's has.
        let all = context.maps().list(&ListParams::default().match_any()).await?;
        let made = all.items.iter().filter(|map| map.name_any() == name).count();
        context.patch(&parent.name_any(), json!({ "data": { "made": made.to_string() } })).await?;
        Ok(Action::await_change())
    }
    let (disturbance, told) = smallest(&Sweep::new(|connection| operate(connection, reconcile), comes))?;
    assert_eq!(disturbance, format!("delayed controller #1 create {PATH}"));
    assert!(told.contains("/data/made is \"1\" without the fault, \"0\" with it"), "{told}");
    Ok(())
}

#[test]
fn a_creation_without_a_stable_name() -> Result<(), Error> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        if value(&parent, "made").is_empty() {
            let mut map = ConfigMap::default();
            map.metadata.generate_name = Some(format!("{}-", belonging(&parent)));
            context.maps().create(&PostParams::default(), &map).await?;
            context.patch(&parent.name_any(), json!({ "data": { "made": "yes" } })).await?;
        }
        Ok(Action::await_change())
    }
    let (disturbance, told) = smallest(&Sweep::new(|connection| operate(connection, reconcile), comes))?;
    assert_eq!(disturbance, format!("answer-lost controller #1 create {PATH}"));
    assert!(told.contains("a-belonging-*: 1 without the fault, 2 with it"), "{told}");
    Ok(())
}

#[test]
fn a_creation_that_takes_what_is_there_already_for_a_failure() -> Result<(), Error> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        if value(&parent, "made").is_empty() {
            context.make(&belonging(&parent)).await?;
            context.patch(&parent.name_any(), json!({ "data": { "made": "yes" } })).await?;
        }
        Ok(Action::await_change())
    }
    let (disturbance, told) = smallest(&Sweep::new(|connection| operate(connection, reconcile), comes))?;
    assert_eq!(disturbance, format!("answer-lost controller #1 create {PATH}"));
    assert!(told.contains("configmaps default/a: /data/made is \"yes\" without the fault, null with it"), "{told}");
    Ok(())
}

#[test]
fn a_cleanup_that_takes_what_is_gone_already_for_a_failure() -> Result<(), Error> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let finalizers = |list: &[&str]| json!({ "metadata": { "finalizers": list } });
        if parent.metadata.deletion_timestamp.is_some() {
            context.take_away(&belonging(&parent)).await?;
            context.patch(&parent.name_any(), finalizers(&[])).await?;
            return Ok(Action::await_change());
        }
        context.patch(&parent.name_any(), finalizers(&["test.example/belonging"])).await?;
        if context.maps().get_opt(&belonging(&parent)).await?.is_none() {
            context.make(&belonging(&parent)).await?;
        }
        Ok(Action::await_change())
    }
    let (disturbance, told) = smallest(&Sweep::new(|connection| operate(connection, reconcile), comes_and_goes))?;
    assert_eq!(disturbance, format!("answer-lost controller #1 delete {PATH}/a-belonging"));
    assert!(told.contains("configmaps default/a: 0 without the fault, 1 with it"), "{told}");
    Ok(())
}

#[test]
fn what_is_done_told_before_it_is_done() -> Result<(), Error> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        if value(&parent, "done") != value(&parent, "value") {
            context.patch(&parent.name_any(), json!({ "data": { "done": value(&parent, "value") } })).await?;
            context.make(&belonging(&parent)).await?;
        }
        Ok(Action::await_change())
    }
    let (disturbance, told) = smallest(&Sweep::new(|connection| operate(connection, reconcile), comes))?;
    assert_eq!(disturbance, format!("answer-lost controller #1 patch {PATH}/a"));
    assert!(told.contains("a-belonging: 1 without the fault, 0 with it"), "{told}");
    Ok(())
}

#[test]
fn two_steps_of_which_the_first_is_taken_twice() -> Result<(), Error> {
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
    let sweep = Sweep::new(|connection| operate(connection, reconcile), comes);
    let accounts = |server: &steadfast_apiserver::ApiServer| {
        for account in ["from", "to"] {
            let mut map = named(account);
            map.metadata.namespace = Some("default".to_owned());
            map.data = Some([("coins".to_owned(), "5".to_owned())].into());
            server.create(&map)?;
        }
        Ok(())
    };
    let (disturbance, told) = smallest(&sweep.prepare(accounts))?;
    assert_eq!(disturbance, format!("answer-lost controller #1 patch {PATH}/from"));
    assert!(told.contains("configmaps default/from: /data/coins is \"4\" without the fault, \"3\" with it"), "{told}");
    Ok(())
}

#[test]
fn what_is_gone_is_cleared_away_by_who_remembers_it() -> Result<(), Error> {
    async fn process(connection: Connection) -> Result<(), WorldError> {
        let informers = InformerFactory::new(&connection);
        let seen = informers.informer::<ConfigMap>(steadfast::Scope::all().labels(super::PARENTS))?;
        let context = Arc::new(Context { client: connection.client(), memory: Mutex::default() });
        let reconcile = move |key: ObjectKey, context: Arc<Context>| {
            let parent = seen.lister().ok().and_then(|lister| lister.get_by_key(&key).ok().flatten());
            async move {
                let name = format!("{}-belonging", key.name());
                let memory = || context.memory.lock().unwrap_or_else(PoisonError::into_inner);
                if parent.is_some() {
                    if context.maps().get_opt(&name).await?.is_none() {
                        context.make(&name).await?;
                    }
                    memory().insert(name);
                } else if memory().contains(&name) {
                    match context.take_away(&name).await {
                        Err(error) if !is_gone(&error) => return Err(error),
                        _ => memory().remove(&name),
                    };
                }
                Ok(Action::await_change())
            }
        };
        let _running = Controller::<ConfigMap>::new(&informers, parents()).run_by_key(reconcile, back_off, context)?;
        pending().await
    }
    let (disturbance, told) = smallest(&Sweep::new(process, comes_and_goes))?;
    assert_eq!(disturbance, format!("crash-before controller #1 delete {PATH}/a-belonging"));
    assert!(told.contains("a-belonging: 0 without the fault, 1 with it"), "{told}");
    Ok(())
}

/// Makes what belongs to a parent, under a name that the server chooses, unless the process remembers it; where it is not sure, it
/// looks, and what it finds has to be one.
async fn make_if_unknown(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let prefix = belonging(&parent);
    let is_new = context.memory.lock().unwrap_or_else(PoisonError::into_inner).insert(prefix.clone());
    let mut map = ConfigMap::default();
    map.metadata.generate_name = Some(format!("{prefix}-"));
    let is_missing = async || {
        let there = context.maps().list(&ListParams::default()).await?;
        Ok::<_, kube::Error>(!there.items.iter().any(|map| map.name_any().starts_with(&prefix)))
    };
    if is_new || is_missing().await? {
        context.maps().create(&PostParams::default(), &map).await?;
    }
    Ok(Action::await_change())
}

#[test]
fn a_creation_that_the_process_alone_remembers() -> Result<(), Error> {
    let report = Sweep::new(|connection| operate(connection, make_if_unknown), comes).run()?;
    println!("{report}");
    let disturbances: Vec<String> = report.findings().iter().map(|found| found.disturbance.to_string()).collect();
    assert!(disturbances.contains(&format!("crash-after controller #1 create {PATH}")), "{report}");
    // Whoever goes on has not forgotten, and whoever was killed before has made nothing.
    assert!(disturbances.iter().all(|disturbance| disturbance.starts_with("crash-")), "{report}");
    assert!(!disturbances.contains(&format!("crash-before controller #1 create {PATH}")), "{report}");
    Ok(())
}

#[test]
fn a_beginning_that_takes_what_some_cache_has_for_the_present() -> Result<(), Error> {
    async fn process(connection: Connection) -> Result<(), WorldError> {
        let informers = InformerFactory::new(&connection);
        let context = Context { client: connection.client(), memory: Mutex::default() };
        let there = context.maps().list(&ListParams::default().match_any()).await?;
        let known = there.items.iter().filter_map(|map| map.metadata.generate_name.as_deref()?.strip_suffix('-'));
        context.memory.lock().unwrap_or_else(PoisonError::into_inner).extend(known.map(str::to_owned));
        let controller = Controller::<ConfigMap>::new(&informers, parents());
        let _running = controller.run(make_if_unknown, back_off, Arc::new(context))?;
        pending().await
    }
    let (disturbance, told) = smallest(&Sweep::new(process, comes))?;
    assert_eq!(disturbance, format!("crash-into-the-past controller #1 create {PATH}"));
    assert!(told.contains("a-belonging-*: 1 without the fault, 2 with it"), "{told}");
    Ok(())
}

#[test]
fn what_counts_on_seeing_each_state() -> Result<(), Error> {
    /// Adds what is said to what was added so far, once for each saying.
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let said = value(&parent, "value");
        if value(&parent, "added") != said {
            let sum = context.number(&parent.name_any(), "sum").await? + said.parse::<i64>().unwrap_or_default();
            let sum = json!({ "data": { "sum": sum.to_string(), "added": said } });
            context.patch(&parent.name_any(), sum).await?;
        }
        Ok(Action::await_change())
    }
    async fn says_three_times(stage: Stage) -> Result<(), WorldError> {
        make_parent(&stage, "a").await?;
        for said in ["2", "3"] {
            stage.settle().await?;
            change_parent(&stage, "a", said).await?;
        }
        Ok(stage.settle().await?)
    }
    let (disturbance, told) = smallest(&Sweep::new(|connection| operate(connection, reconcile), says_three_times))?;
    assert!(disturbance.starts_with("unobserved scenario"), "{disturbance}");
    assert!(told.contains("/data/sum is \"6\" without the fault"), "{told}");
    Ok(())
}

#[test]
fn what_is_under_way_when_another_one_leads() -> Result<(), Error> {
    async fn reconcile(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        context.keep(&parent).await?;
        Ok(Action::await_change())
    }
    /// Lets what is under way end when it has lost its lease, by a client without a fence.
    async fn process(connection: Connection) -> Result<(), WorldError> {
        let election = LeaderElection::builder(&connection, "default", "mirror").build()?;
        let leader = election.until_leader().await.ok_or("the election was stopped")?;
        let informers = InformerFactory::new(&connection);
        let context = Context { client: connection.client(), memory: Mutex::default() };
        let controller = Controller::<ConfigMap>::new(&informers, parents());
        let running = controller.run(reconcile, back_off, Arc::new(context))?;
        leader.lost().await;
        running.stop(Duration::from_secs(30)).await;
        Err("another one leads".into())
    }
    let (disturbance, told) =
        smallest(&Sweep::new(process, changes_twice).processes(2).alike(2).quiet(Duration::from_secs(40)))?;
    assert!(disturbance.starts_with("leadership-lost controller"), "{disturbance}");
    assert!(told.contains("a-belonging: /data/value is \"3\" without the fault, \"2\" with it"), "{told}");
    Ok(())
}
