//! Code of the user's that an informer runs itself, and that does not return: others on the same connection go on.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ObjectMeta};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use steadfast::{Informer, InformerFactory, Kept, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{WorldError, config_map, informers, until};

/// Beyond this something hangs.
const LONG: Duration = Duration::from_secs(20);

/// Holds up who passes it while it is shut.
struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    shut: bool,
    waiting: usize,
}

impl Gate {
    const fn new() -> Self {
        Self { state: Mutex::new(State { shut: false, waiting: 0 }), moved: Condvar::new() }
    }

    fn set(&self, shut: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).shut = shut;
        self.moved.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        let held = self.moved.wait_while(state, |state| state.shut);
        held.unwrap_or_else(PoisonError::into_inner).waiting -= 1;
    }

    fn holds_someone(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.shut && state.waiting > 0
    }
}

struct World {
    server: ApiServer,
    factory: InformerFactory,
    secrets: Informer<Secret>,
}

impl World {
    /// A config map, and informers beside those of the test on the same connection.
    async fn new() -> Result<Self, WorldError> {
        let server = ApiServer::start().await?;
        server.create(&config_map("a", "1"))?;
        let factory = informers(&server).await?;
        let secrets = factory.informer::<Secret>(Scope::all())?;
        secrets.wait_for_sync(LONG).await?;
        Ok(Self { server, factory, secrets })
    }

    fn write(&self, value: &str) -> Result<(), WorldError> {
        self.server.merge_patch("configmaps", "default", "a", json!({ "data": { "value": value } }))?;
        Ok(())
    }

    /// Another informer is told of a change, and a request is answered.
    async fn others_go_on(&self) -> Result<(), WorldError> {
        let name = format!("s-{}", self.server.revision());
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": name}});
        self.server.create(&secret)?;
        until(LONG, || self.secrets.snapshot().entry(Some("default"), &name).is_some()).await?;
        let secrets: Api<Secret> = Api::namespaced(kube_client(&self.factory), "default");
        tokio::time::timeout(LONG, secrets.get(&name)).await??;
        Ok(())
    }

    /// Shuts `gate`, has something happen, and lets it go when it was held up for as long as the others took.
    async fn held_up<K: Kept + Resource>(&self, informer: &Informer<K>, gate: &Gate) -> Result<(), WorldError> {
        for value in ["2", "3"] {
            gate.set(true);
            self.write(value)?;
            let held = until(LONG, || gate.holds_someone()).await;
            let others = self.others_go_on().await;
            gate.set(false);
            held.map_err(|error| format!("nobody came to the gate: {error}"))?;
            others.map_err(|error| format!("the others were held up: {error}"))?;
            self.write(&format!("{value} at last"))?;
            let written = self.server.revision().to_string();
            let arrived = || informer.snapshot().version().is_some_and(|at| at.as_str() == written);
            until(LONG, arrived).await.map_err(|error| format!("it did not go on: {error}"))?;
        }
        Ok(())
    }
}

fn kube_client(factory: &InformerFactory) -> kube::Client {
    factory.connection().client()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transform_that_hangs_holds_up_nobody() -> Result<(), WorldError> {
    static GATE: Gate = Gate::new();
    let world = World::new().await?;
    let passing = |object: ConfigMap| {
        GATE.pass();
        object
    };
    let informer = world.factory.build::<ConfigMap>(Scope::all()).transform(passing).start()?;
    informer.wait_for_sync(LONG).await?;
    world.held_up(&informer, &GATE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_that_is_held_up_can_be_stopped_and_made_anew() -> Result<(), WorldError> {
    static GATE: Gate = Gate::new();
    let world = World::new().await?;
    let passing = |object: ConfigMap| {
        GATE.pass();
        object
    };
    GATE.set(true);
    let informer = world.factory.build::<ConfigMap>(Scope::all()).transform(passing).start()?;
    let registration = informer.on_event(|_| {})?;
    let stopped = async {
        until(LONG, || GATE.holds_someone()).await?;
        informer.stop();
        assert!(!tokio::time::timeout(LONG, registration.until_synced()).await?, "it never will be");
        let next = world.factory.informer::<ConfigMap>(Scope::all())?;
        next.wait_for_sync(LONG).await?;
        assert_eq!((informer.snapshot().len(), next.snapshot().len()), (0, 1));
        world.factory.shutdown();
        Ok(())
    };
    let stopped = stopped.await;
    GATE.set(false);
    stopped
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_function_that_hangs_on_a_change_holds_up_nobody() -> Result<(), WorldError> {
    static GATE: Gate = Gate::new();
    let world = World::new().await?;
    let informer = world.factory.informer::<ConfigMap>(Scope::all())?;
    informer.wait_for_sync(LONG).await?;
    let index = informer.index(|object: &ConfigMap| {
        GATE.pass();
        object.name_any().chars().next()
    });
    world.held_up(&informer, &GATE).await?;
    assert_eq!(index.get(&'a').len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_takes_its_time_to_be_filled_holds_up_not_even_its_informer() -> Result<(), WorldError> {
    static GATE: Gate = Gate::new();
    let world = World::new().await?;
    let informer = world.factory.informer::<ConfigMap>(Scope::all())?;
    informer.wait_for_sync(LONG).await?;
    GATE.set(true);
    let own = informer.clone();
    let filling = std::thread::spawn(move || {
        own.index(|object: &ConfigMap| {
            GATE.pass();
            object.data.as_ref().and_then(|data| data.get("value").cloned())
        })
    });
    let goes_on = async {
        until(LONG, || GATE.holds_someone()).await?;
        world.others_go_on().await?;
        world.write("2")?;
        world.server.create(&config_map("b", "2"))?;
        until(LONG, || informer.snapshot().len() == 2).await?;
        let late = informer.on_event(|_| {})?;
        assert!(tokio::time::timeout(LONG, late.until_synced()).await?);
        Ok::<(), WorldError>(())
    };
    let gone_on = goes_on.await;
    GATE.set(false);
    gone_on?;
    let index = filling.join().map_err(|_| "filling panicked")?;
    assert_eq!((index.get("1").len(), index.get("2").len()), (0, 2), "what changed meanwhile is in it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_callback_that_hangs_holds_up_nobody() -> Result<(), WorldError> {
    static GATE: Gate = Gate::new();
    let world = World::new().await?;
    let picky = |object: ConfigMap| {
        let held = object.data.as_ref().and_then(|data| data.get("value"));
        assert!(held.is_none_or(|value| value == "1" || value.ends_with("at last")), "this one is not to my liking");
        object
    };
    let informer = world.factory.build::<ConfigMap>(Scope::all()).transform(picky).start()?;
    informer.on_note(|_| GATE.pass());
    informer.wait_for_sync(LONG).await?;
    world.held_up(&informer, &GATE).await
}

/// A config map that takes its time to be read.
#[derive(Resource)]
#[resource(inherit = ConfigMap)]
struct SlowToRead {
    metadata: ObjectMeta,
}

static READING: Gate = Gate::new();

impl<'de> Deserialize<'de> for SlowToRead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Read {
            metadata: ObjectMeta,
        }
        READING.pass();
        let Read { metadata } = Read::deserialize(deserializer)?;
        Ok(Self { metadata })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_that_hangs_while_it_is_read_holds_up_nobody() -> Result<(), WorldError> {
    let world = World::new().await?;
    let informer = world.factory.informer::<SlowToRead>(Scope::all())?;
    informer.wait_for_sync(LONG).await?;
    world.held_up(&informer, &READING).await
}

/// A config map that takes its time to be dropped.
#[derive(Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct SlowToDrop {
    metadata: ObjectMeta,
}

static DROPPING: Gate = Gate::new();

impl Drop for SlowToDrop {
    fn drop(&mut self) {
        DROPPING.pass();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_that_hangs_holds_up_nobody() -> Result<(), WorldError> {
    let world = World::new().await?;
    let informer = world.factory.informer::<SlowToDrop>(Scope::all())?;
    informer.wait_for_sync(LONG).await?;
    world.held_up(&informer, &DROPPING).await
}
