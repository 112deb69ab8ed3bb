//! Replicas in virtual time, on an in-memory server.

use std::path::PathBuf;

use serde_json::json;
use steadfast_apiserver::ApiServer;
use steadfast_notify::{Approvals, MirrorMemory, SettledVersions, state_folder};
use steadfast_testing::InMemory;

use super::*;

/// Key of the only rule in the published versions. It consists of rule/sink, cluster, resource and namespace.
const SUBSCRIPTION: &str = "a/log default pods all";

struct Fixture {
    server: ApiServer,
    plan: Arc<Plan>,
    folder: PathBuf,
}

struct Replica {
    replicas: Replicas,
    progress: Arc<Mutex<Progress>>,
    folder: PathBuf,
    _supervisor: Supervisor,
}

impl Fixture {
    async fn new(name: &str) -> Self {
        let server = ApiServer::builder().in_memory().start().await.expect("the server starts");
        let folder = std::env::temp_dir().join(format!("steadfast-replicas-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let text = "rules: [{name: a, resources: [pods], to: [log]}]\nsinks: {log: {stdout: {}}}\n\
                    replicas: {lease: default/notify}\n";
        let plan = Arc::new(Plan::read("x.yaml", text).unwrap_or_else(|problems| panic!("{problems}")));
        Self { server, plan, folder }
    }

    /// Starts a replica with caches at version `reached`.
    async fn start(&self, name: &str, reached: u64, is_new: bool) -> Replica {
        let seed = name.bytes().map(u64::from).sum();
        let network = InMemory { seed, ..InMemory::default() };
        let connection = network.connection(&self.server).await.expect("a connection");
        let connect: Connect = Arc::new(move || {
            let connection = connection.clone();
            Box::pin(async move { Ok(connection) })
        });
        let folder = self.folder.join(name);
        let state = Arc::new(StateFolder::lock(&folder).expect("the folder is not locked"));
        if !is_new {
            state.record_caught_up().expect("the folder is writable");
        }
        let versions = SettledVersions::from([(SUBSCRIPTION.to_owned(), reached)]);
        let progress = Progress { settled: versions.clone(), reached: versions, ..Progress::default() };
        let progress = Arc::new(Mutex::new(progress));
        let progress_reader = progress.clone();
        let progress_source: ProgressSource = Arc::new(move || progress_reader.lock().clone());
        let supervisor = Supervisor::new(Arc::new(|_| {}));
        let identity = Some(name.to_owned());
        let replicas = Replicas::start_with(&self.plan, connect, identity, progress_source, Some(state), &supervisor);
        let replicas = replicas.expect("the plan has replicas");
        Replica { replicas, progress, folder, _supervisor: supervisor }
    }
}

impl Fixture {
    /// Assigns the lease to a holder that never renews it, like a killed process. A dropped replica would release the
    /// lease.
    fn assign_lease_to_killed_holder(&self) {
        let mut lease = self.server.get("leases", "default", "notify").expect("the lease exists");
        lease["spec"]["holderIdentity"] = "killed".into();
        lease["spec"]["leaseDurationSeconds"] = 15.into();
        self.server.replace(&lease).expect("the lease is valid");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Replica {
    fn is_leader(&self) -> bool {
        self.replicas.replication.gate().permit().is_some()
    }

    async fn wait_for_leadership(&self) {
        let opened = timeout(Duration::from_secs(300), self.replicas.replication.gate().opened()).await;
        assert!(opened.is_ok(), "{:?}", self.replicas.role.lock());
    }

    fn settle_version(&self, version: u64) {
        let mut progress = self.progress.lock();
        for versions in [progress.settled.clone(), progress.reached.clone()] {
            assert!(versions[SUBSCRIPTION] <= version, "versions only grow");
        }
        progress.settled.insert(SUBSCRIPTION.to_owned(), version);
        progress.reached.insert(SUBSCRIPTION.to_owned(), version);
        progress.activity += 1;
    }

    /// Waits, for at most ten seconds, until `condition` accepts the state folder.
    async fn wait_until(&self, description: &str, condition: impl Fn(&MirrorMemory, &Approvals) -> bool) {
        for _ in 0..100 {
            let memory = state_folder::read_mirror_memory(&self.folder).expect("a readable file");
            if condition(&memory, &Approvals::new(&self.folder)) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("{description}: {:?}", self.replicas.role.lock());
    }

    fn leader_seen_by_standby(&self) -> Option<String> {
        state_folder::leader_of_standby(&self.folder).expect("a readable file")
    }
}

#[tokio::test(start_paused = true)]
async fn stopped_leader_is_replaced_at_once() {
    let fixture = Fixture::new("stopped").await;
    let first = fixture.start("first", 5, false).await;
    first.wait_for_leadership().await;
    let second = fixture.start("second", 5, false).await;
    first.settle_version(9);
    sleep(Duration::from_secs(10)).await;
    assert!(first.is_leader() && !second.is_leader());
    assert_eq!(first.leader_seen_by_standby(), None);
    let holder = second.leader_seen_by_standby().expect("the second replica is a standby");
    assert!(holder.starts_with("first_"), "{holder}");
    let start = Instant::now();
    first.replicas.stop().await;
    second.wait_for_leadership().await;
    assert!(start.elapsed() < Duration::from_secs(10), "the lease was released: {:?}", start.elapsed());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(second.leader_seen_by_standby(), None);
    second.replicas.stop().await;
}

#[tokio::test(start_paused = true)]
async fn killed_leader_is_replaced_after_its_lease() {
    let fixture = Fixture::new("killed").await;
    let first = fixture.start("first", 5, false).await;
    first.wait_for_leadership().await;
    let second = fixture.start("second", 5, false).await;
    sleep(Duration::from_secs(10)).await;
    drop(first);
    fixture.assign_lease_to_killed_holder();
    let start = Instant::now();
    second.wait_for_leadership().await;
    assert!((10..25).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    second.replicas.stop().await;
}

#[tokio::test(start_paused = true)]
async fn first_replica_leads_immediately() {
    let fixture = Fixture::new("first").await;
    let first = fixture.start("first", 5, true).await;
    let start = Instant::now();
    first.wait_for_leadership().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    first.replicas.stop().await;
}

#[tokio::test(start_paused = true)]
async fn new_replica_leads_only_after_catching_up() {
    let fixture = Fixture::new("new").await;
    let leader = fixture.start("leader", 5, false).await;
    leader.wait_for_leadership().await;
    sleep(Duration::from_secs(5)).await;
    // The new replica has listed at version 8; the leader has not settled the earlier deletions.
    let new = fixture.start("new", 8, true).await;
    let old = fixture.start("old", 5, false).await;
    sleep(Duration::from_secs(60)).await;
    leader.replicas.stop().await;
    sleep(Duration::from_secs(60)).await;
    assert!(old.is_leader() && !new.is_leader(), "the other standby knows the deletions");
    old.settle_version(8);
    sleep(Duration::from_secs(15)).await;
    old.replicas.stop().await;
    new.wait_for_leadership().await;
    new.replicas.stop().await;
}

#[tokio::test(start_paused = true)]
async fn new_replica_leads_if_no_other_does() {
    let fixture = Fixture::new("alone").await;
    let leader = fixture.start("leader", 5, false).await;
    leader.wait_for_leadership().await;
    sleep(Duration::from_secs(5)).await;
    let new = fixture.start("new", 8, true).await;
    sleep(Duration::from_secs(5)).await;
    drop(leader);
    fixture.assign_lease_to_killed_holder();
    let start = Instant::now();
    new.wait_for_leadership().await;
    assert!((25..60).contains(&start.elapsed().as_secs()), "two lease durations: {:?}", start.elapsed());
    new.replicas.stop().await;
}

#[tokio::test(start_paused = true)]
async fn approvals_at_standby_reach_next_leader_too() {
    let fixture = Fixture::new("approvals").await;
    let folder = fixture.folder.join("first");
    std::fs::create_dir_all(&folder).expect("a new folder");
    let pending = |id: &str, group: &str| json!({"ask": {"id": id, "group": group, "names": ["a"], "of": 3}, "texts": {"a": "remove a"}});
    let asks = json!({"here/a": pending("one", "here/a"), "here/b": pending("two", "here/b")});
    let guard = json!({"guard": {"mirror": "web", "guard": {"asks": asks}}});
    let text = format!("{}\n{guard}\n", r#"{"format":"steadfast-mirrors","version":2}"#);
    std::fs::write(folder.join("mirrors.json"), text).expect("a writable file");
    let first = fixture.start("first", 5, false).await;
    first.wait_for_leadership().await;
    let second = fixture.start("second", 5, false).await;
    second.wait_until("the requests at the standby", |memory, _| memory.approvals().contains_key("web")).await;

    let at_standby = Approvals::new(&second.folder);
    at_standby.add("web", &["one".to_owned(), "unknown".to_owned()]).expect("a writable file");
    first.wait_until("the approval at the leader", |_, approvals| approvals.is_pending("web")).await;
    assert_eq!(Approvals::new(&first.folder).pending().expect("a readable file")["web"], ["one".to_owned()].into());
    second.wait_until("nothing left at the standby", |_, approvals| !approvals.is_pending("web")).await;
    // The leader ends before its mirror has taken the approval. The next leader still has the approval.
    first.replicas.stop().await;
    second.wait_for_leadership().await;
    second.wait_until("the approval at the next leader", |_, approvals| approvals.is_pending("web")).await;
    // No mirror runs in this test, so the test itself opens the memory of the mirrors.
    let memory = MirrorMemory::open(&second.folder.join("mirrors.json")).expect("a readable file");
    assert_eq!(memory.approvals()["web"].len(), 2);
    second.replicas.stop().await;
}
