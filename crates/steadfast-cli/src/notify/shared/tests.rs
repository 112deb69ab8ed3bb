//! The shared state in virtual time, on a server in memory.

use steadfast::Connection;
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use steadfast_testing::InMemory;
use tokio::time::sleep;

use super::*;

struct Fixture {
    server: ApiServer,
    connection: Connection,
}

impl Fixture {
    async fn new() -> Self {
        let server = ApiServer::builder().in_memory().start().await.expect("the server starts");
        let connection = InMemory::default().connection(&server).await.expect("a connection");
        Self { server, connection }
    }

    fn leader(&self, term: u64) -> SharedState {
        SharedState::for_leader(self.connection.client(), "default", "lease", term)
    }

    async fn read(&self) -> PublishedState {
        let standby = SharedState::for_standby(self.connection.client(), "default", "lease");
        standby.read().await.expect("the server responds")
    }
}

fn progress(version: u64, activity: u64) -> Progress {
    let versions = SettledVersions::from([("a/log x".to_owned(), version)]);
    Progress { settled: versions, activity, ..Progress::default() }
}

#[tokio::test(start_paused = true)]
async fn leader_publishes_activity_at_once() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.read().await, PublishedState::default());
    let mut leader = fixture.leader(1);
    assert_eq!(leader.take_over().await, Ok(PublishedState::default()));
    leader.publish(&progress(7, 1), String::new()).await.expect("the state is written");
    assert_eq!(fixture.read().await.settled["a/log x"], 7);
    leader.publish(&progress(8, 1), String::new()).await.expect("nothing is due");
    assert_eq!(fixture.read().await.settled["a/log x"], 7, "only the version has moved");
    leader.publish(&progress(9, 2), String::new()).await.expect("the state is written");
    assert_eq!(fixture.read().await.settled["a/log x"], 9);
    leader.publish(&progress(9, 2), "memory".to_owned()).await.expect("the state is written");
    assert_eq!(fixture.read().await.memory, "memory");
    sleep(MAX_PUBLISH_INTERVAL).await;
    leader.publish(&progress(10, 2), "memory".to_owned()).await.expect("the state is written");
    assert_eq!(fixture.read().await.settled["a/log x"], 10);
}

#[tokio::test(start_paused = true)]
async fn late_write_of_earlier_leader_conflicts() {
    let fixture = Fixture::new().await;
    let (mut first, mut second) = (fixture.leader(1), fixture.leader(2));
    first.take_over().await.expect("the state is written");
    first.publish(&progress(7, 1), String::new()).await.expect("the state is written");
    let found = second.take_over().await.expect("the state is written");
    assert_eq!((found.term, found.settled["a/log x"]), (1, 7));
    let reason = first.publish(&progress(99, 2), String::new()).await.expect_err("a later leader has written it");
    assert!(reason.contains("a later leader has written it (term 2)"), "{reason}");
    let read = fixture.read().await;
    assert_eq!((read.term, read.settled["a/log x"]), (2, 7), "settled versions stay published");
    // Positions without a watch at the new leader keep their versions.
    let other = Progress { settled: [("b/log x".to_owned(), 3)].into(), activity: 1, ..Progress::default() };
    second.publish(&other, String::new()).await.expect("the state is written");
    assert_eq!(
        fixture.read().await.settled.into_iter().collect::<Vec<_>>(),
        [("a/log x".into(), 7), ("b/log x".into(), 3)]
    );
}

#[tokio::test(start_paused = true)]
async fn publication_recovers_after_failed_request() {
    let fixture = Fixture::new().await;
    let mut leader = fixture.leader(1);
    leader.take_over().await.expect("the state is written");
    fixture.server.faults().respond(RequestRule::any().resource("secrets"), InjectedResponse::code(500));
    leader.publish(&progress(7, 1), String::new()).await.expect_err("the server fails");
    fixture.server.faults().clear_rules();
    leader.publish(&progress(8, 1), String::new()).await.expect("the state is written");
    assert_eq!(fixture.read().await.settled["a/log x"], 8);
    // Damaged content counts as empty.
    let mut secret = fixture.server.get("secrets", "default", "lease-settled").expect("the secret exists");
    secret["data"]["state.json"] = "e30t".into();
    fixture.server.replace(&secret).expect("the secret is valid");
    assert_eq!(fixture.read().await, PublishedState::default());
    // The leader's write conflicts once and then succeeds.
    leader.publish(&progress(9, 2), String::new()).await.expect_err("another client has written the secret");
    leader.publish(&progress(9, 2), String::new()).await.expect("the state is written");
    assert_eq!(fixture.read().await.settled["a/log x"], 9);
}

#[tokio::test(start_paused = true)]
async fn forwarded_approvals_stay_until_settled() {
    let fixture = Fixture::new().await;
    let standby = SharedState::for_standby(fixture.connection.client(), "default", "lease");
    let approvals = |mirror: &str, ids: &[&str]| {
        ForwardedApprovals::from([(mirror.to_owned(), ids.iter().map(|&id| id.to_owned()).collect())])
    };
    assert_eq!(standby.forward(&approvals("web", &["one"])).await, Ok(false), "no leader has published yet");
    let mut first = fixture.leader(1);
    first.take_over().await.expect("the state is written");
    first.publish(&progress(7, 1), String::new()).await.expect("the state is written");
    assert_eq!(standby.forward(&approvals("web", &["one"])).await, Ok(true));
    assert_eq!(standby.forward(&approvals("web", &["two"])).await, Ok(true));
    assert_eq!(fixture.read().await.settled["a/log x"], 7, "the standby keeps the state of the leader");
    assert_eq!(first.forwarded_approvals().await, Ok(&approvals("web", &["one", "two"])));
    // A publication keeps approvals that are not settled.
    first.publish(&progress(8, 2), String::new()).await.expect("the state is written");
    let mut second = fixture.leader(2);
    second.take_over().await.expect("the state is written");
    assert_eq!(second.forwarded_approvals().await, Ok(&approvals("web", &["one", "two"])));
    second.settle_approval("web", "one");
    // Forwarded between the read and the write of the leader.
    assert_eq!(standby.forward(&approvals("zone", &["three"])).await, Ok(true));
    second.publish(&progress(8, 2), String::new()).await.expect_err("the standby wrote in between");
    second.publish(&progress(8, 2), String::new()).await.expect("the state is written");
    let mut left = approvals("web", &["two"]);
    left.extend(approvals("zone", &["three"]));
    assert_eq!(second.forwarded_approvals().await, Ok(&left));
    for (mirror, id) in [("web", "two"), ("zone", "three")] {
        second.settle_approval(mirror, id);
    }
    second.publish(&progress(8, 2), String::new()).await.expect("the state is written");
    assert!(second.forwarded_approvals().await.expect("the server responds").is_empty());
    let secret = fixture.server.get("secrets", "default", "lease-settled").expect("the secret exists");
    assert!(secret["data"]["approvals.json"].is_null(), "{secret}");
    first.forwarded_approvals().await.expect_err("a later leader has written it");
}
