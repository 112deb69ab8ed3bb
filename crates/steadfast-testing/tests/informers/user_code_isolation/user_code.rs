//! User code that the informer itself runs and that hangs: other informers on the connection continue.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ObjectMeta};
use kube::{Resource, ResourceExt};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use steadfast::{Cacheable, Informer, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{TestError, config_map, informers, until};

/// Timeout after which a task counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Gate that blocks its callers while the gate is shut.
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    is_shut: bool,
    waiter_count: usize,
}

impl Gate {
    const fn new() -> Self {
        Self { state: Mutex::new(State { is_shut: false, waiter_count: 0 }), changed: Condvar::new() }
    }

    fn set_shut(&self, is_shut: bool) {
        self.state.lock().is_shut = is_shut;
        self.changed.notify_all();
    }

    fn wait_until_open(&self) {
        let mut state = self.state.lock();
        state.waiter_count += 1;
        self.changed.wait_while(&mut state, |state| state.is_shut);
        state.waiter_count -= 1;
    }

    fn has_waiter(&self) -> bool {
        let state = self.state.lock();
        state.is_shut && state.waiter_count > 0
    }
}

struct IsolationFixture {
    server: ApiServer,
    factory: InformerFactory,
    secrets: Informer<Secret>,
}

impl IsolationFixture {
    /// Creates a config map, and further informers on the connection of the test.
    async fn new() -> Result<Self, TestError> {
        let server = ApiServer::start().await?;
        server.create(&config_map("a", "1"))?;
        let factory = informers(&server).await?;
        let secrets = factory.informer::<Secret>(Scope::all())?;
        secrets.wait_for_sync(TIMEOUT).await?;
        Ok(Self { server, factory, secrets })
    }

    fn write(&self, value: &str) -> Result<(), TestError> {
        self.server.merge_patch("configmaps", "default", "a", json!({ "data": { "value": value } }))?;
        Ok(())
    }

    /// Checks that another informer receives a change, and that a request succeeds.
    async fn assert_others_continue(&self) -> Result<(), TestError> {
        let name = format!("s-{}", self.server.revision());
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": name}});
        self.server.create(&secret)?;
        until(TIMEOUT, || self.secrets.snapshot().entry(Some("default"), &name).is_some()).await?;
        let secrets: Api<Secret> = Api::namespaced(kube_client(&self.factory), "default");
        tokio::time::timeout(TIMEOUT, secrets.get(&name)).await??;
        Ok(())
    }

    /// Shuts `gate`, and writes an object, so that `informer` blocks at the gate. Checks the other informers. Then
    /// opens the gate, and checks that the blocked informer continues.
    async fn check_blocked_informer<K: Cacheable + Resource>(
        &self,
        informer: &Informer<K>,
        gate: &Gate,
    ) -> Result<(), TestError> {
        for value in ["2", "3"] {
            gate.set_shut(true);
            self.write(value)?;
            let is_blocked = until(TIMEOUT, || gate.has_waiter()).await;
            let others_result = self.assert_others_continue().await;
            gate.set_shut(false);
            is_blocked.map_err(|error| format!("no caller reached the gate: {error}"))?;
            others_result.map_err(|error| format!("the other informers were delayed: {error}"))?;
            self.write(&format!("{value} at last"))?;
            let revision = self.server.revision().to_string();
            let has_arrived = || informer.snapshot().version().is_some_and(|at| at.as_str() == revision);
            until(TIMEOUT, has_arrived).await.map_err(|error| format!("the informer did not continue: {error}"))?;
        }
        Ok(())
    }
}

fn kube_client(factory: &InformerFactory) -> kube::Client {
    factory.connection().client()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_transform_delays_no_other_informer() -> Result<(), TestError> {
    static GATE: Gate = Gate::new();
    let fixture = IsolationFixture::new().await?;
    let transform = |object: ConfigMap| {
        GATE.wait_until_open();
        object
    };
    let informer = fixture.factory.builder::<ConfigMap>(Scope::all()).transform(transform).start()?;
    informer.wait_for_sync(TIMEOUT).await?;
    fixture.check_blocked_informer(&informer, &GATE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_informer_can_be_stopped_and_recreated() -> Result<(), TestError> {
    static GATE: Gate = Gate::new();
    let fixture = IsolationFixture::new().await?;
    let transform = |object: ConfigMap| {
        GATE.wait_until_open();
        object
    };
    GATE.set_shut(true);
    let informer = fixture.factory.builder::<ConfigMap>(Scope::all()).transform(transform).start()?;
    let registration = informer.on_event(|_| {})?;
    let stop_result = async {
        until(TIMEOUT, || GATE.has_waiter()).await?;
        informer.stop();
        assert!(!tokio::time::timeout(TIMEOUT, registration.until_synced()).await?, "the handler never syncs");
        let next = fixture.factory.informer::<ConfigMap>(Scope::all())?;
        next.wait_for_sync(TIMEOUT).await?;
        assert_eq!((informer.snapshot().len(), next.snapshot().len()), (0, 1));
        fixture.factory.shutdown();
        Ok(())
    };
    // The gate opens before an error returns, because a blocked thread would outlive the test.
    let stop_result = stop_result.await;
    GATE.set_shut(false);
    stop_result
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_index_function_delays_no_other_informer() -> Result<(), TestError> {
    static GATE: Gate = Gate::new();
    let fixture = IsolationFixture::new().await?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    informer.wait_for_sync(TIMEOUT).await?;
    let index = informer.index(|object: &ConfigMap| {
        GATE.wait_until_open();
        object.name_any().chars().next()
    });
    fixture.check_blocked_informer(&informer, &GATE).await?;
    assert_eq!(index.get(&'a').len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_index_fill_does_not_delay_informer() -> Result<(), TestError> {
    static GATE: Gate = Gate::new();
    let fixture = IsolationFixture::new().await?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    informer.wait_for_sync(TIMEOUT).await?;
    GATE.set_shut(true);
    let captured_informer = informer.clone();
    let filling = std::thread::spawn(move || {
        captured_informer.index(|object: &ConfigMap| {
            GATE.wait_until_open();
            object.data.as_ref().and_then(|data| data.get("value").cloned())
        })
    });
    let others_continue = async {
        until(TIMEOUT, || GATE.has_waiter()).await?;
        fixture.assert_others_continue().await?;
        fixture.write("2")?;
        fixture.server.create(&config_map("b", "2"))?;
        until(TIMEOUT, || informer.snapshot().len() == 2).await?;
        let late_handler = informer.on_event(|_| {})?;
        assert!(tokio::time::timeout(TIMEOUT, late_handler.until_synced()).await?);
        Ok::<(), TestError>(())
    };
    let others_result = others_continue.await;
    GATE.set_shut(false);
    others_result?;
    let index = filling.join().map_err(|_| "filling panicked")?;
    assert_eq!((index.get("1").len(), index.get("2").len()), (0, 2), "the index must contain the concurrent changes");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_diagnostic_callback_delays_no_other_informer() -> Result<(), TestError> {
    static GATE: Gate = Gate::new();
    let fixture = IsolationFixture::new().await?;
    let panicking_transform = |object: ConfigMap| {
        let value = object.data.as_ref().and_then(|data| data.get("value"));
        assert!(value.is_none_or(|value| value == "1" || value.ends_with("at last")), "injected panic");
        object
    };
    let informer = fixture.factory.builder::<ConfigMap>(Scope::all()).transform(panicking_transform).start()?;
    informer.on_diagnostic(|_| GATE.wait_until_open());
    informer.wait_for_sync(TIMEOUT).await?;
    fixture.check_blocked_informer(&informer, &GATE).await
}

/// Config map that blocks while it is decoded.
#[derive(Resource)]
#[resource(inherit = ConfigMap)]
struct BlocksInDecode {
    metadata: ObjectMeta,
}

static DECODE_GATE: Gate = Gate::new();

impl<'de> Deserialize<'de> for BlocksInDecode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            metadata: ObjectMeta,
        }
        DECODE_GATE.wait_until_open();
        let Fields { metadata } = Fields::deserialize(deserializer)?;
        Ok(Self { metadata })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_decode_delays_no_other_informer() -> Result<(), TestError> {
    let fixture = IsolationFixture::new().await?;
    let informer = fixture.factory.informer::<BlocksInDecode>(Scope::all())?;
    informer.wait_for_sync(TIMEOUT).await?;
    fixture.check_blocked_informer(&informer, &DECODE_GATE).await
}

/// Config map that blocks while it is dropped.
#[derive(Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct BlocksInDrop {
    metadata: ObjectMeta,
}

static DROP_GATE: Gate = Gate::new();

impl Drop for BlocksInDrop {
    fn drop(&mut self) {
        DROP_GATE.wait_until_open();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_drop_delays_no_other_informer() -> Result<(), TestError> {
    let fixture = IsolationFixture::new().await?;
    let informer = fixture.factory.informer::<BlocksInDrop>(Scope::all())?;
    informer.wait_for_sync(TIMEOUT).await?;
    fixture.check_blocked_informer(&informer, &DROP_GATE).await
}
