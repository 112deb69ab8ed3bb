//! The bounds of the contract in virtual time, with default settings, as far as the catalog of faults (`tests/faults`)
//! does not cover them.
//!
//! The tests read only the informer's freshness: no fault is announced to the informer.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::transport::Settings;
use steadfast::{Cacheable, Freshness, Informer, InformerBuilder, InformerFactory, ResourceVersion, Scope};
use steadfast_apiserver::{ApiServer, ApiServerBuilder, InjectedResponse, RequestRule, Verb};
use steadfast_testing::proxy::NetworkFaults;
use steadfast_testing::{
    CachedForm, ConfigMapInForm, InMemory, Recorder, TestError, builder_with_form, config_map, until,
};
use tokio::time::Instant;

const PERIOD: Duration = Duration::from_secs(60);

/// A server in memory, one client with HTTP/2, and a synced informer.
struct BoundsFixture {
    server: ApiServer,
    network: NetworkFaults,
    factory: InformerFactory,
}

impl BoundsFixture {
    async fn with_builder(builder: ApiServerBuilder) -> Result<Self, TestError> {
        let server = builder.in_memory().protobuf(CachedForm::current().protobuf).start().await?;
        let settings = Settings { prior_knowledge: true, ..Settings::default() };
        let memory = InMemory { seed: 7, settings, ..InMemory::default() };
        let factory = InformerFactory::new(&memory.connection(&server).await?);
        Ok(Self { server, network: memory.network, factory })
    }

    async fn new() -> Result<Self, TestError> {
        Self::with_builder(ApiServer::builder()).await
    }

    /// Returns a synced informer of all config maps.
    async fn synced_informer(&self) -> Result<Informer<ConfigMapInForm>, TestError> {
        sync_informer(builder_with_form(&self.factory, Scope::all())).await
    }

    fn lists(&self) -> usize {
        self.server.request_counts().full_transfers()
    }

    fn newest_version(&self) -> ResourceVersion {
        ResourceVersion::from(self.server.revision().to_string().as_str())
    }
}

const TIMEOUT: Duration = Duration::from_secs(2);

async fn sync_informer<K: Cacheable>(builder: InformerBuilder<'_, K>) -> Result<Informer<K>, TestError> {
    let informer = builder.start()?;
    informer.wait_for_sync(PERIOD).await?;
    until(TIMEOUT, || informer.freshness().is_fresh()).await?;
    Ok(informer)
}

/// Returns the sequence of state names within `time`. Checks that no state is fresh with an age above two periods.
async fn observe_states<K: Cacheable>(informer: &Informer<K>, time: Duration) -> Vec<&'static str> {
    let start = Instant::now();
    let mut states: Vec<&'static str> = Vec::new();
    while start.elapsed() < time {
        let state = informer.freshness();
        if let Freshness::Fresh { age, .. } = &state {
            assert!(*age <= 2 * PERIOD, "fresh at the age of {age:?}");
        }
        if states.last() != Some(&state.name()) {
            states.push(state.name());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    states
}

#[tokio::test(start_paused = true)]
async fn r2_bookmarks_of_frozen_etcd_prove_nothing() -> Result<(), TestError> {
    // The server's watch cache sends bookmarks without a request to etcd. A bookmark therefore does not prove that etcd
    // has no newer changes.
    let fixture = BoundsFixture::with_builder(ApiServer::builder().bookmark_period(Duration::from_secs(10))).await?;
    let informer = fixture.synced_informer().await?;
    fixture.server.faults().freeze_etcd(true);
    let observed_states = observe_states(&informer, 3 * PERIOD).await;
    assert_eq!(observed_states[..3], ["fresh", "suspect", "stale"], "{observed_states:?}");
    fixture.server.faults().freeze_etcd(false);
    until(PERIOD, || informer.freshness().is_fresh()).await?;
    assert_eq!(fixture.lists(), 1, "doubt alone causes no list");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn r2_quiet_hour_stays_fresh_cheaply() -> Result<(), TestError> {
    let fixture = BoundsFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let counts_before = fixture.server.request_counts();
    assert_eq!(observe_states(&informer, 60 * PERIOD).await, ["fresh"]);
    let counts_after = fixture.server.request_counts();
    assert_eq!(counts_after.full_transfers(), counts_before.full_transfers());
    let (watches, probes) = (counts_after.watches - counts_before.watches, counts_after.probes - counts_before.probes);
    assert!((6..=12).contains(&watches), "a watch lasts five to ten minutes: {watches}");
    assert!(probes <= 60, "at most one probe a period: {probes}");
    let open_connections = fixture.factory.connection().connections().len();
    assert!(open_connections <= 2, "at most one connection for the watch and one for probes: {open_connections}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn r4_interrupted_watch_resumes_without_list() -> Result<(), TestError> {
    type Fault = fn(&BoundsFixture);
    let faults: [(&str, Fault); 4] = [
        ("clean end", |fixture| fixture.server.faults().end_watches()),
        ("reset", |fixture| fixture.server.faults().reset()),
        ("drain", |fixture| fixture.server.faults().goaway()),
        ("restart, and another replica responds", |fixture| {
            fixture.network.send_to(1);
            fixture.server.faults().replica(0).restart();
        }),
    ];
    let fixture = BoundsFixture::with_builder(ApiServer::builder().replicas(2)).await?;
    let recorder = Recorder::of(&fixture.server);
    let recording = recorder.record(&fixture.synced_informer().await?);
    for (number, (name, fault)) in faults.iter().enumerate() {
        fault(&fixture);
        let key = format!("c-{number}");
        fixture.server.create(&config_map(&key, "1"))?;
        let informer = recording.informer();
        informer
            .wait_for_version(&fixture.newest_version(), TIMEOUT)
            .await
            .map_err(|error| format!("{name}: {error}"))?;
        until(TIMEOUT, || informer.freshness().is_fresh()).await?;
        until(TIMEOUT, || recording.descriptions(&format!("default/{key}")) == ["Added"]).await?;
        assert_eq!(fixture.lists(), 1, "{name}");
    }
    assert_eq!(recording.events().len(), faults.len(), "no event is repeated");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn r5_lagging_replica_is_stale_without_reverts() -> Result<(), TestError> {
    let fixture = BoundsFixture::with_builder(ApiServer::builder().replicas(2)).await?;
    fixture.server.create(&config_map("a", "1"))?;
    let recorder = Recorder::of(&fixture.server);
    let recording = recorder.record(&fixture.synced_informer().await?);
    let informer = recording.informer();
    fixture.server.faults().replica(1).lag(true);
    fixture.server.create(&config_map("b", "1"))?;
    informer.wait_for_version(&fixture.newest_version(), TIMEOUT).await?;

    // The replica would accept a watch from a version that it has not reached, but would reject a list at that version.
    fixture
        .server
        .faults()
        .replica(1)
        .respond(RequestRule::any().verb(Verb::Watch).times(1), InjectedResponse::code(410));
    fixture.network.send_to(1);
    fixture.server.faults().replica(0).stop();
    until(Duration::from_secs(15), || matches!(informer.freshness(), Freshness::Stale(_))).await?;
    assert_eq!(informer.lister()?.len(), 2, "the cache stays readable");
    fixture.server.faults().replica(1).lag(false);
    until(Duration::from_secs(15), || informer.freshness().is_fresh()).await?;
    assert_eq!(recording.events().len(), 2, "no event was reverted");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn r6_closing_server_is_retried_with_backoff() -> Result<(), TestError> {
    let fixture = BoundsFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let connection = fixture.factory.connection().clone();
    fixture.server.faults().accept_and_close(true);
    fixture.server.faults().reset();
    let dials_before = steadfast::unstable::dial_count(&connection);
    until(Duration::from_millis(250), || steadfast::unstable::dial_count(&connection) > dials_before).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let dials = steadfast::unstable::dial_count(&connection) - dials_before;
    assert!((5..=100).contains(&dials), "{dials} dials in the first minute");
    let dials = steadfast::unstable::dial_count(&connection);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        steadfast::unstable::dial_count(&connection) - dials <= 60,
        "{} dials in the next minute",
        steadfast::unstable::dial_count(&connection) - dials
    );
    fixture.server.faults().accept_and_close(false);
    fixture.server.create(&config_map("a", "1"))?;
    informer.wait_for_version(&fixture.newest_version(), Duration::from_secs(9)).await?;
    until(Duration::from_secs(1), || informer.freshness().is_fresh()).await?;
    assert_eq!(fixture.lists(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn r8_only_undecodable_objects_are_unknown() -> Result<(), TestError> {
    let fixture = BoundsFixture::new().await?;
    for name in ["a", "b", "never"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    fixture.server.faults().undecodable("default", "never", true);
    let recorder = Recorder::of(&fixture.server);
    // This type is decoded on arrival, in either encoding. `Lazy` has other rules for this case, and its own tests.
    let decoded_builder = fixture.factory.builder::<ConfigMap>(Scope::all()).protobuf(CachedForm::current().protobuf);
    let recording = recorder.record(&sync_informer(decoded_builder).await?);
    let informer = recording.informer();
    let lister = informer.lister()?;
    assert_eq!(unknown_objects(informer), ["default/never"], "the first list must name the object");
    assert!(lister.get("default", "never").is_err());

    set_undecodable(&fixture, "a", true).await?;
    update_and_wait(&fixture, informer, "a", "2").await?;
    until(Duration::from_secs(1), || informer.freshness().is_fresh()).await?;
    assert_eq!(
        unknown_objects(informer),
        ["default/a", "default/never"],
        "the undecodable object must be named without another change"
    );
    assert!(lister.get("default", "a").is_err());
    assert_eq!(lister.all().len(), 1);
    update_and_wait(&fixture, informer, "b", "2").await?;
    until(TIMEOUT, || recording.descriptions("default/b") == ["Added", "Updated"]).await?;

    set_undecodable(&fixture, "a", false).await?;
    update_and_wait(&fixture, informer, "a", "3").await?;
    until(TIMEOUT, || recording.descriptions("default/a") == ["Added", "Updated"]).await?;
    until(Duration::from_secs(1), || informer.freshness().is_fresh()).await?;
    assert_eq!(unknown_objects(informer), ["default/never"]);

    set_undecodable(&fixture, "a", true).await?;
    update_and_wait(&fixture, informer, "a", "4").await?;
    for name in ["a", "never"] {
        fixture.server.delete_named("configmaps", "default", name)?;
    }
    informer.wait_for_version(&fixture.newest_version(), TIMEOUT).await?;
    until(TIMEOUT, || recording.descriptions("default/a") == ["Added", "Updated", "Deleted Observed Deleted"]).await?;
    until(Duration::from_secs(1), || informer.freshness().is_fresh()).await?;
    assert_eq!(recording.descriptions("default/never"), [""; 0], "an object that was never delivered has no deletion");
    assert_eq!(unknown_objects(informer), [""; 0], "a deleted object is not named");
    assert_eq!(fixture.lists(), 1);
    Ok(())
}

/// Makes the server send the object `name` in an undecodable form, or in its valid form, on streams from here on.
async fn set_undecodable(fixture: &BoundsFixture, name: &str, is_undecodable: bool) -> Result<(), TestError> {
    fixture.server.faults().undecodable("default", name, is_undecodable);
    let watches_before = fixture.server.request_counts().watches;
    fixture.server.faults().end_watches();
    until(TIMEOUT, || fixture.server.request_counts().watches > watches_before).await?;
    Ok(())
}

/// Writes `value`, and waits until the cache has it.
async fn update_and_wait(
    fixture: &BoundsFixture,
    informer: &Informer<ConfigMap>,
    name: &str,
    value: &str,
) -> Result<(), TestError> {
    fixture.server.merge_patch("configmaps", "default", name, serde_json::json!({ "data": { "value": value } }))?;
    Ok(informer.wait_for_version(&fixture.newest_version(), TIMEOUT).await?)
}

/// Returns the objects that a fresh cache reports as unknown.
fn unknown_objects(informer: &Informer<ConfigMap>) -> Vec<String> {
    match informer.freshness() {
        Freshness::Fresh { tainted, .. } => tainted.iter().map(ToString::to_string).collect(),
        doubt => vec![doubt.to_string()],
    }
}

#[tokio::test(start_paused = true)]
async fn r10_stop_while_cut_cancels_requests() -> Result<(), TestError> {
    type Fault = fn(&ApiServer);
    let faults: [(&str, Fault); 4] = [
        ("healthy", |_| {}),
        ("frozen", |server| server.faults().freeze(true)),
        ("black hole", |server| server.faults().black_hole(true)),
        ("cut", |server| server.faults().cut()),
    ];
    for (name, fault) in faults {
        let fixture = BoundsFixture::new().await?;
        let informer = fixture.synced_informer().await?;
        fault(&fixture.server);
        tokio::time::sleep(Duration::from_secs(20)).await;
        informer.stop();
        let elapsed = until(TIMEOUT, || matches!(informer.freshness(), Freshness::Stopped(_))).await?;
        assert!(elapsed <= Duration::from_millis(20), "{name}: {elapsed:?}");
        if name != "black hole" {
            until(Duration::from_millis(100), || fixture.server.open_watches(0) == 0)
                .await
                .map_err(|error| format!("{name}: the watch continues: {error}"))?;
        }
        assert!(informer.wait_for_version(&ResourceVersion::from("999"), PERIOD).await.is_err(), "{name}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn r10_last_drop_ends_watch() -> Result<(), TestError> {
    let fixture = BoundsFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let registration = informer.on_event(|_| {})?;
    let lister = informer.lister()?;
    let BoundsFixture { server, factory, .. } = fixture;
    drop((factory, informer));
    tokio::time::sleep(TIMEOUT).await;
    assert_eq!(server.open_watches(0), 1, "a lister keeps the watch open");
    server.faults().freeze(true);
    drop(lister);
    until(Duration::from_millis(100), || server.open_watches(0) == 0).await?;
    // The server is frozen, so only the close by the client can end the watch.
    assert_eq!(registration.remove(), 0, "a registration does not keep the watch open");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn r11_retry_after_has_jitter_and_cap() -> Result<(), TestError> {
    for (code, retry_after_seconds, min_seconds) in
        [(429, 7, 7), (503, 7, 7), (500, 3, 3), (429, 3600, 60), (503, 3600, 60)]
    {
        let mut delays = Vec::new();
        for _ in 0..2 {
            let fixture = BoundsFixture::new().await?;
            let rule = RequestRule::any().verb(Verb::StreamedList).times(1);
            fixture
                .server
                .faults()
                .respond(rule, InjectedResponse::retry_after(code, Duration::from_secs(retry_after_seconds)));
            let start = Instant::now();
            let informer = builder_with_form(&fixture.factory, Scope::all()).start()?;
            informer.wait_for_sync(2 * PERIOD).await?;
            delays.push(start.elapsed());
        }
        for delay in delays {
            // The jitter is at most a tenth, and never shortens the delay that the server requires.
            let (min_delay, max_delay) =
                (Duration::from_secs(min_seconds), Duration::from_secs(min_seconds) * 111 / 100);
            assert!((min_delay..=max_delay).contains(&delay), "{code}, Retry-After {retry_after_seconds} s: {delay:?}");
        }
    }
    Ok(())
}
