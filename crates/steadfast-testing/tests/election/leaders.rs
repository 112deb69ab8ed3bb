//! Guarantees of an election to one process.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use steadfast::{Connection, kube};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule, Verb};
use steadfast_controller::{ElectionMetrics, EventRecorder, Leader, LeaderElection, Sharding};
use steadfast_core::random::Random;
use steadfast_testing::proxy::Direction;
use steadfast_testing::{InMemory, TestError, config_map};
use tokio::time::{Instant, sleep, timeout};

use crate::election_scheme::ElectionScheme;
use crate::faults::{block_on_virtual_time, env_number};
use crate::process::Process;
use crate::program::WRITTEN_OBJECT;

const SECOND: Duration = Duration::from_secs(1);

/// Starts a server with the object that leaders write to.
pub(crate) async fn server() -> Result<ApiServer, TestError> {
    let server = ApiServer::builder().in_memory().http2(true).start().await?;
    server.create(&config_map(WRITTEN_OBJECT, ""))?;
    Ok(server)
}

/// Starts a process, and returns it with its connection.
pub(crate) async fn process(server: &ApiServer, seed: u64) -> Result<(Process, Connection), TestError> {
    let process = Process::start(server, seed, None);
    let connection = process.connection(server, true).await?;
    Ok((process, connection))
}

pub(crate) fn candidate(connection: &Connection, identity: &str) -> Result<LeaderElection, TestError> {
    Ok(LeaderElection::builder(connection, "default", "it").identity(identity).start()?)
}

pub(crate) async fn leader(election: &LeaderElection) -> Result<Leader, TestError> {
    Ok(election.until_leader().await.ok_or("it is stopped")?)
}

/// Writes `value` to the object.
pub(crate) async fn write(client: kube::Client, value: &str) -> kube::Result<()> {
    let objects: Api<ConfigMap> = Api::namespaced(client, "default");
    let patch = Patch::Merge(json!({ "data": { "holder": value } }));
    objects.patch(WRITTEN_OBJECT, &PatchParams::default(), &patch).await.map(drop)
}

pub(crate) async fn lease(connection: &Connection) -> Result<Lease, TestError> {
    Ok(Api::<Lease>::namespaced(connection.client(), "default").get("it").await?)
}

/// Returns the number of config map writes that reached the server.
fn changes(server: &ApiServer) -> usize {
    let on = |request: &steadfast_apiserver::RequestRecord| {
        request.verb == Verb::Patch
            && request.resource.as_ref().is_some_and(|resource| resource.resource() == "configmaps")
    };
    server.requests().iter().filter(|request| on(request)).count()
}

#[tokio::test(start_paused = true)]
async fn leader_renews_without_reading_lease() -> Result<(), TestError> {
    let server = server().await?;
    let mut elections = Vec::new();
    for seed in 0..3 {
        let (process, connection) = process(&server, seed).await?;
        elections.push((candidate(&connection, &format!("candidate-{seed}"))?, process));
    }
    sleep(SECOND).await;
    let leads: Vec<bool> = elections.iter().map(|(election, _)| election.is_leader()).collect();
    assert_eq!(leads.iter().filter(|leads| **leads).count(), 1, "{leads:?}");
    sleep(3600 * SECOND).await;
    assert_eq!(leads, elections.iter().map(|(election, _)| election.is_leader()).collect::<Vec<_>>());
    let (election, _) = elections.iter().find(|(election, _)| election.is_leader()).ok_or("no candidate leads")?;
    for (other, _) in &elections {
        assert_eq!(other.holder().as_deref(), Some(election.identity()), "every candidate returns the holder");
    }
    let updates = server.requests().iter().filter(|request| request.verb == Verb::Update).count();
    assert!((1795..=1801).contains(&updates), "one update per two seconds, not {updates}");
    let lease = server.get("leases.coordination.k8s.io", "default", "it")?;
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cut_off_leader_ends_and_stops_sending() -> Result<(), TestError> {
    let server = server().await?;
    let (process, connection) = process(&server, 1).await?;
    let election = candidate(&connection, "a")?;
    let leader = leader(&election).await?;
    write(leader.client(), "before").await?;
    process.network.black_hole(Direction::Both, true);
    let cut_time = Instant::now();
    leader.until_lost().await;
    let elapsed = cut_time.elapsed();
    assert!(
        (8 * SECOND..=10 * SECOND).contains(&elapsed),
        "the term ends one renew deadline after the last renewal, not after {elapsed:?}"
    );
    assert!(!leader.is_leader() && !election.is_leader() && leader.remaining().is_zero());
    process.network.black_hole(Direction::Both, false);
    let error = write(leader.client(), "after").await.expect_err("the term has expired").to_string();
    assert!(error.contains("may send no further requests") && error.contains("did not execute"), "{error}");
    assert_eq!(changes(&server), 1);
    write(connection.client(), "by an ordinary client").await?;
    let next_leader = self::leader(&election).await?;
    write(next_leader.client(), "the next term").await?;
    write(leader.client(), "the first term").await.expect_err("an expired term stays expired");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lease_deadline_ends_running_requests() -> Result<(), TestError> {
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    let election = candidate(&connection, "a")?;
    let leader = leader(&election).await?;
    let slow_patch = RequestRule::any().resource("configmaps").verb(Verb::Patch);
    server.faults().delay_matching(slow_patch, 60 * SECOND);
    server.faults().respond(RequestRule::any().resource("leases"), InjectedResponse::code(500));
    let start = Instant::now();
    let failed = write(leader.client(), "late").await.expect_err("the term has expired").to_string();
    assert!(failed.contains("may send no further requests") && failed.contains("check the object first"), "{failed}");
    assert!(start.elapsed() <= 10 * SECOND, "the server's timeout of a minute must not apply: {:?}", start.elapsed());
    sleep(120 * SECOND).await;
    let object = server.get("configmaps", "default", WRITTEN_OBJECT)?;
    assert_ne!(object["data"]["holder"], "late", "the server must discard the aborted request");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn thawed_process_no_longer_leads() -> Result<(), TestError> {
    let server = server().await?;
    let (process, connection) = process(&server, 1).await?;
    let election = candidate(&connection, "a")?;
    let leader = leader(&election).await?;
    let client = leader.client();
    process.freeze(true);
    // Longer than the renew deadline of 10 s.
    sleep(11 * SECOND).await;
    // The process is still frozen: not even a timer has run. Only the comparison with the clock can reject the write.
    let error = write(client, "after").await.expect_err("the term has expired").to_string();
    assert!(error.contains("may send no further requests"), "{error}");
    assert!(!leader.is_leader());
    process.freeze(false);
    self::leader(&election).await?;
    assert_eq!(changes(&server), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stop_releases_lease_immediately() -> Result<(), TestError> {
    let server = server().await?;
    let ((_a, connection_a), (_b, connection_b)) = (process(&server, 1).await?, process(&server, 2).await?);
    let first = candidate(&connection_a, "a")?;
    let leader = leader(&first).await?;
    write(leader.client(), "a").await?;
    let second = candidate(&connection_b, "b")?;
    sleep(SECOND).await;
    let stop_time = Instant::now();
    assert!(first.stop().await, "the lease is released");
    assert_eq!(stop_time.elapsed(), Duration::ZERO);
    assert!(first.until_leader().await.is_none() && !leader.is_leader());
    let released_lease = lease(&connection_a).await?.spec.ok_or("no spec")?;
    assert_eq!((released_lease.holder_identity, released_lease.lease_duration_seconds), (Some(String::new()), Some(1)));
    self::leader(&second).await?;
    // The jitter of 120 %, as in client-go, stretches the retry period of 2 s to at most 4.4 s.
    assert!(stop_time.elapsed() <= Duration::from_millis(4400), "at most one retry period: {:?}", stop_time.elapsed());
    assert!(first.stop().await, "a second stop returns the result of the first");
    assert!(!first.is_leader());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stop_with_pending_write_delays_release() -> Result<(), TestError> {
    let server = server().await?;
    let (process, connection) = process(&server, 1).await?;
    let election = candidate(&connection, "a")?;
    let leader = leader(&election).await?;
    server.faults().delay_matching(RequestRule::any().resource("configmaps"), 60 * SECOND);
    let client = leader.client();
    process.run(async move { drop(write(client, "under way").await) });
    sleep(Duration::from_millis(100)).await;
    let stop_time = Instant::now();
    assert!(election.stop().await);
    // The server may still process the aborted write. Therefore the release waits 5 s, the time by which the lease
    // outlasts the renew deadline.
    assert_eq!(stop_time.elapsed(), 5 * SECOND, "the release waits until the lease has expired");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dropped_election_releases_lease() -> Result<(), TestError> {
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    let election = candidate(&connection, "a")?;
    let leader = leader(&election).await?;
    drop(election);
    sleep(60 * SECOND).await;
    assert!(leader.is_leader(), "the guard remains valid");
    drop(leader);
    sleep(SECOND).await;
    assert_eq!(lease(&connection).await?.spec.and_then(|spec| spec.holder_identity), Some(String::new()));
    Ok(())
}

#[test]
fn election_stops_with_its_runtime() -> Result<(), TestError> {
    calls_return_after_runtime_shutdown(ElectionScheme::FirstCandidate)
}

#[test]
fn coordinated_election_stops_with_its_runtime() -> Result<(), TestError> {
    calls_return_after_runtime_shutdown(ElectionScheme::Coordinated(None))
}

/// Checks that all calls on an election return after its runtime has shut down: for leaders, candidates and earlier
/// waiters.
fn calls_return_after_runtime_shutdown(scheme: ElectionScheme) -> Result<(), TestError> {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let first = runtime()?;
    let elections = first.block_on(async {
        let server = Arc::new(server().await?);
        let mut seeds = Random::new(1);
        let _coordinator = scheme.coordinator(&server, &mut seeds)?;
        let mut elections = Vec::new();
        for seed in 0..2 {
            let connection = InMemory { seed, ..InMemory::default() }.connection(&server).await?;
            let builder = LeaderElection::builder(&connection, "default", "it").identity("candidate");
            elections.push(scheme.start_candidate(builder, &mut seeds).await?);
        }
        sleep(30 * SECOND).await;
        Ok::<_, TestError>(elections)
    })?;
    assert_eq!(elections.iter().filter(|election| election.is_leader()).count(), 1, "{scheme:?}");
    runtime()?.block_on(async {
        let all_calls = async {
            let stops = join_all(elections.iter().map(LeaderElection::stop));
            let (stopped, ()) = tokio::join!(biased; stops, async { first.shutdown_background() });
            assert_eq!(stopped, [false, false], "no candidate released the lease");
            for election in &elections {
                assert!(!election.stop().await && !election.is_leader());
                assert!(election.until_leader().await.is_none());
            }
        };
        // No call waits for a timer.
        Ok(timeout(Duration::from_millis(1), all_calls).await?)
    })
}

#[tokio::test(start_paused = true)]
async fn stop_preserves_lease_of_new_holder() -> Result<(), TestError> {
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    let election = candidate(&connection, "a")?;
    leader(&election).await?;
    let stolen_lease = json!({ "spec": { "holderIdentity": "thief" } });
    server.merge_patch("leases.coordination.k8s.io", "default", "it", stolen_lease)?;
    assert!(!election.stop().await, "another candidate already held the lease");
    let holder = lease(&connection).await?.spec.and_then(|spec| spec.holder_identity);
    assert_eq!(holder.as_deref(), Some("thief"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lost_renewal_response_keeps_leadership() -> Result<(), TestError> {
    let server = server().await?;
    let (process, connection) = process(&server, 1).await?;
    let election = candidate(&connection, "a")?;
    let leader = leader(&election).await?;
    for _ in 0..20 {
        process.network.black_hole(Direction::ToClient, true);
        sleep(5 * SECOND).await;
        process.network.reset();
        process.network.black_hole(Direction::ToClient, false);
        sleep(6 * SECOND).await;
        assert!(leader.is_leader());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn forbidden_candidate_keeps_retrying() -> Result<(), TestError> {
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    server.faults().respond(RequestRule::any().resource("leases"), InjectedResponse::Forbidden);
    let election = candidate(&connection, "a")?;
    sleep(600 * SECOND).await;
    assert!(!election.is_leader() && election.holder().is_none());
    let requests = server.requests().len();
    assert!((136..=300).contains(&requests), "one attempt per 2 to 4.4 s, not {requests}");
    server.faults().clear_rules();
    leader(&election).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn leader_metric_uses_client_go_names() -> Result<(), TestError> {
    let server = server().await?;
    let ((process, connection_a), (_b, connection_b)) = (process(&server, 1).await?, self::process(&server, 2).await?);
    let first = candidate(&connection_a, "a")?;
    leader(&first).await?;
    let second = candidate(&connection_b, "b")?;
    process.network.reset();
    process.network.refuse(true);
    sleep(5 * SECOND).await;
    process.network.refuse(false);
    sleep(5 * SECOND).await;
    let mut registry = Registry::default();
    let metrics = ElectionMetrics::default().with("first", &first).with("second", &second);
    registry.register_collector(Box::new(metrics));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    for line in [
        "leader_election_master_status{name=\"first\"} 1",
        "leader_election_master_status{name=\"second\"} 0",
        "leader_election_slowpath_total{name=\"first\"} 1",
        "leader_election_slowpath_total{name=\"second\"} 0",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line} is not in {text}");
    }
    Ok(())
}

/// Time from a leader's end to its successor's first write, with default settings.
#[test]
fn killed_leader_is_replaced_in_time() -> Result<(), TestError> {
    let runs = env_number("STEADFAST_SEEDS", 20);
    let (mut after_kill, mut after_stop) = (Vec::new(), Vec::new());
    for seed in 0..runs {
        for (is_stopped, durations) in [(false, &mut after_kill), (true, &mut after_stop)] {
            durations.push(block_on_virtual_time(fail_over(seed, is_stopped))?);
        }
    }
    // A candidate waits one lease duration from its last observation, which is up to 4.4 s old, plus up to 0.5 s of
    // jitter.
    for (fault, durations, max_seconds) in
        [("killed", &mut after_kill, 15.0 + 4.4 + 0.5), ("stopped", &mut after_stop, 4.5)]
    {
        durations.sort();
        let (median, longest) = (durations[durations.len() / 2], durations[durations.len() - 1]);
        println!("a leader that is {fault} is followed after {median:?}, at worst {longest:?}, of {runs}");
        assert!(longest.as_secs_f64() <= max_seconds, "{longest:?}");
    }
    Ok(())
}

async fn fail_over(seed: u64, is_stopped: bool) -> Result<Duration, TestError> {
    let server = server().await?;
    let (first, connection) = process(&server, 3 * seed).await?;
    let leader_election = candidate(&connection, "a")?;
    leader(&leader_election).await?;
    let mut candidates = Vec::new();
    for number in 1..3 {
        let (process, connection) = process(&server, 3 * seed + number).await?;
        candidates.push((candidate(&connection, "other")?, process));
    }
    sleep(20 * SECOND + Duration::from_millis(seed % 97 * 97)).await;
    let start = Instant::now();
    if is_stopped {
        leader_election.stop().await;
    } else {
        first.kill();
    }
    let (second, third) = (&candidates[0].0, &candidates[1].0);
    let next = tokio::select! {
        next = leader(second) => next?,
        next = leader(third) => next?,
    };
    write(next.client(), "next").await?;
    Ok(start.elapsed())
}

/// Log lines at warning level or above, while the value exists.
struct Warnings {
    lines: Arc<Mutex<Vec<u8>>>,
    _current: tracing::subscriber::DefaultGuard,
}

impl Warnings {
    fn new() -> Self {
        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let captured_lines = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN);
        let subscriber = subscriber.with_writer(move || captured_lines.clone()).finish();
        Self { lines: lines.0, _current: tracing::subscriber::set_default(subscriber) }
    }

    fn count_containing(&self, text: &str) -> usize {
        let lines = self.lines.lock();
        String::from_utf8_lossy(&lines).lines().filter(|line| line.contains(text)).count()
    }
}

/// Regression test: a candidate without permissions waited, and neither log nor API named the reason.
#[tokio::test(start_paused = true)]
async fn candidate_without_rights_names_the_missing_rule() -> Result<(), TestError> {
    let warnings = Warnings::new();
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    server.faults().respond(RequestRule::any().resource("leases"), InjectedResponse::code(403));
    let election = candidate(&connection, "a")?;
    assert_eq!(election.lease_error(), None);
    sleep(60 * SECOND).await;
    let error = election.lease_error().ok_or("it has no rights")?;
    assert_eq!((error.verb, error.resource, error.code), ("get", "leases", Some(403)));
    let rule = "grant the verb `get` on `leases` in the API group `coordination.k8s.io` in the namespace `default`";
    assert!(error.to_string().ends_with(rule), "{error}");
    assert_eq!(warnings.count_containing(rule), 1, "logged once");

    // The candidate may now read leases, but not create them.
    server.faults().clear_rules();
    server.faults().respond(RequestRule::any().resource("leases").verb(Verb::Create), InjectedResponse::code(403));
    sleep(60 * SECOND).await;
    let error = election.lease_error().ok_or("it may not create")?;
    assert_eq!((error.verb, error.code), ("create", Some(403)));
    assert_eq!(warnings.count_containing("grant the verb `create` on `leases`"), 1, "logged once");
    server.faults().clear_rules();
    leader(&election).await?;
    assert_eq!(election.lease_error(), None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn candidate_names_missing_namespace() -> Result<(), TestError> {
    let warnings = Warnings::new();
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    let election = LeaderElection::builder(&connection, "absent", "it").start()?;
    sleep(60 * SECOND).await;
    let error = election.lease_error().ok_or("the namespace is missing")?;
    assert_eq!((error.verb, error.code), ("create", Some(404)));
    let advice = "create the namespace `absent`, or name another one";
    assert!(error.to_string().ends_with(advice), "{error}");
    assert_eq!(warnings.count_containing(advice), 1, "logged once");
    server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "absent" } }))?;
    leader(&election).await?;
    assert_eq!(election.lease_error(), None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sharding_without_rights_names_missing_rule() -> Result<(), TestError> {
    let warnings = Warnings::new();
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    server.faults().respond(RequestRule::any().resource("leases").verb(Verb::List), InjectedResponse::code(403));
    let shares = Sharding::builder(&connection, "default", "it").start()?;
    sleep(60 * SECOND).await;
    let error = shares.lease_error().ok_or("it has no rights")?;
    assert_eq!((error.verb, error.code), ("list", Some(403)));
    assert_eq!(warnings.count_containing("grant the verb `list` on `leases`"), 1, "logged once");
    server.faults().clear_rules();
    sleep(60 * SECOND).await;
    assert_eq!(shares.lease_error(), None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn holder_change_wakes_waiting_tasks() -> Result<(), TestError> {
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    let first = candidate(&connection, "a")?;
    leader(&first).await?;
    let (_other, connection) = process(&server, 2).await?;
    let second = candidate(&connection, "b")?;
    assert_eq!(second.holder_changed(None).await.as_deref(), Some(first.identity()));
    let known_holder = second.holder();
    let waits = second.holder_changed(known_holder.as_deref());
    assert!(timeout(60 * SECOND, waits).await.is_err(), "the same holder");
    let (new_holder, was_released) = tokio::join!(second.holder_changed(known_holder.as_deref()), first.stop());
    assert!(was_released && new_holder != known_holder, "{new_holder:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn leadership_changes_emit_lease_events() -> Result<(), TestError> {
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    let recorder = EventRecorder::new(&connection, "example.com/test")?;
    let election = LeaderElection::builder(&connection, "default", "it").identity("a").events(&recorder).start()?;
    leader(&election).await?;
    sleep(10 * SECOND).await;
    assert!(election.stop().await);
    recorder.stop(10 * SECOND).await?;
    let uid = server.get("leases.coordination.k8s.io", "default", "it")?["metadata"]["uid"].clone();
    let events = Api::<Event>::all(connection.client()).list(&ListParams::default()).await?;
    let mut notes = Vec::new();
    for event in events.items {
        let regarding = event.regarding.ok_or("about nothing")?;
        let event_texts =
            [regarding.kind, regarding.name, regarding.uid, event.reason, event.type_].map(Option::unwrap_or_default);
        assert_eq!(event_texts, ["Lease", "it", uid.as_str().unwrap_or_default(), "LeaderElection", "Normal"]);
        notes.push(event.note.unwrap_or_default());
    }
    notes.sort_unstable();
    let identity = election.identity();
    assert_eq!(notes, [format!("{identity} became leader"), format!("{identity} stopped leading")]);
    Ok(())
}
