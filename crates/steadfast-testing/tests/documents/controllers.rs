//! The snippets of the page on controllers, verbatim.

// The snippets are written for readability, and some need a context that a function here provides.
#![allow(unused, clippy::all, clippy::pedantic)]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use steadfast::{Connection, InformerFactory, Object, ObjectKey, Scope};
use steadfast_controller::{
    Action, CandidateVersions, Controller, EventDraft, EventRecorder, LeaderElection, Sharding, Source, Workqueue,
    back_off,
};

struct Context;

/// "The controller".
#[rustfmt::skip]
async fn the_controller(informers: InformerFactory, context: Context) -> Result<(), Box<dyn Error>> {
    fn deployments_that_use(_: &Object<ConfigMap>) -> Vec<ObjectKey> {
        Vec::new()
    }

    async fn signal() {}

    use steadfast_controller::{Action, Controller, back_off};

    async fn reconcile(deployment: Arc<Deployment>, context: Arc<Context>) -> Result<Action, kube::Error> {
        // Create, change or delete the objects that `deployment` requires.
        Ok(Action::await_change())
    }

    let controller = Controller::<Deployment>::new(&informers, Scope::all())
        .owns::<Pod>(Scope::all())
        .watches::<ConfigMap, _>(Scope::all(), |config| deployments_that_use(config))
        .run(reconcile, back_off, Arc::new(context))?;

    signal().await;
    controller.stop(Duration::from_secs(30)).await;
    Ok(())
}

/// "The controller", in several namespaces.
#[rustfmt::skip]
fn several_namespaces(informers: InformerFactory, context: Context) -> Result<(), Box<dyn Error>> {
    async fn reconcile(_: Arc<Deployment>, _: Arc<Context>) -> Result<Action, kube::Error> {
        Ok(Action::await_change())
    }

    let teams = ["team-a", "team-b"];
    let controller = Controller::<Deployment>::new(&informers, Source::namespaces(teams))
        .owns::<Pod>(Source::namespaces(teams))
        .run(reconcile, back_off, Arc::new(context))?;
    Ok(())
}

/// "Tested: `sweep`".
#[rustfmt::skip]
mod sweep {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, PostParams};
    use steadfast::{Connection, InformerFactory, Scope};
    use steadfast_apiserver::ApiServer;
    use steadfast_testing::sweep::{Fixture, Sweep};
    use steadfast_testing::{TestkitError, config_map};

    type Error = TestkitError;

    fn define(server: &ApiServer) -> Result<(), Error> {
        server.create(&config_map("before", "1"))?;
        Ok(())
    }

    async fn operate(connection: Connection) -> Result<(), Error> {
        let informers = InformerFactory::new(&connection);
        let config_maps = informers.informer::<ConfigMap>(Scope::all())?;
        config_maps.wait_for_sync(Duration::from_secs(60)).await?;
        std::future::pending().await
    }

    async fn scenario(fixture: Fixture) -> Result<(), Error> {
        let config_maps = Api::<ConfigMap>::namespaced(fixture.client(), "default");
        config_maps.create(&PostParams::default(), &config_map("a", "1")).await?;
        fixture.settle().await
    }

    #[test]
    fn sweep_of_operator_finds_nothing() -> Result<(), Error> {
        Sweep::new(operate, scenario).prepare(define).run()?.check()
    }
}

/// "The workqueue".
#[rustfmt::skip]
async fn the_workqueue(connection: Connection) {
    async fn reconcile(_: &ObjectKey) -> Result<(), kube::Error> {
        Ok(())
    }

    let queue = Workqueue::<ObjectKey>::builder(connection.environment().clone())
        .fairness_key(|key| key.namespace().map(str::to_owned))
        .build();

    while let Some(key) = queue.next().await {
        match reconcile(&key).await {
            Ok(()) => key.finish(),
            Err(_) => {
                key.retry();
            }
        }
    }
}

/// "Leader election".
#[rustfmt::skip]
async fn leader_election(connection: Connection) -> Result<(), Box<dyn Error>> {
    async fn work(_: kube::Client) {}

    let election = LeaderElection::builder(&connection, "default", "my-controller").start()?;

    while let Some(leader) = election.until_leader().await {
        tokio::select! {
            () = leader.until_lost() => {}
            () = work(leader.client()) => break,
        }
    }
    election.stop().await;
    Ok(())
}

/// "Coordinated election".
#[rustfmt::skip]
async fn coordinated_election(connection: Connection) -> Result<(), Box<dyn Error>> {
    let versions = CandidateVersions::new(env!("CARGO_PKG_VERSION"));
    let election = LeaderElection::builder(&connection, "default", "my-controller").coordinated(versions).start().await?;
    Ok(())
}

/// "Sharding".
#[rustfmt::skip]
async fn sharding(connection: Connection, informers: InformerFactory) -> Result<(), Box<dyn Error>> {
    fn key(object: &ConfigMap) -> ObjectKey {
        ObjectKey::namespaced(object.namespace().unwrap_or_default(), object.name_any())
    }

    async fn reconcile(object: Arc<ConfigMap>, sharding: Arc<Sharding>) -> Result<Action, kube::Error> {
        // Another replica owns this key now. The controller reconciles the key again if it returns.
        let Some(held) = sharding.hold(&key(&object)) else { return Ok(Action::await_change()) };
        let client = held.client();
        // Create, change or delete the objects that `object` requires, with this client.
        Ok(Action::await_change())
    }

    let sharding = Sharding::builder(&connection, "default", "my-controller").start()?;
    let controller = Controller::<ConfigMap>::new(&informers, Scope::all())
        .sharded_by(&sharding)
        .run(reconcile, back_off, Arc::new(sharding.clone()))?;
    Ok(())
}

/// "Events".
#[rustfmt::skip]
async fn events(connection: Connection, pod: Pod, node: Node) -> Result<(), Box<dyn Error>> {
    let events = EventRecorder::new(&connection, "example.com/web-controller")?;

    events.publish(&pod, EventDraft::normal("Started", "Starting").note("it took 3 s"));
    events.publish(&pod, EventDraft::warning("Evicted", "Evicting").note("no memory is left").related(&node));

    events.stop(Duration::from_secs(5)).await?;
    Ok(())
}
