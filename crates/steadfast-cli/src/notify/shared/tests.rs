//! The shared state in virtual time, on a server in memory.

use steadfast::Connection;
use steadfast_apiserver::{Answer, ApiServer, RequestRule};
use steadfast_testing::InMemory;
use tokio::time::sleep;

use super::*;

struct World {
    server: ApiServer,
    connection: Connection,
}

impl World {
    async fn new() -> Self {
        let server = ApiServer::builder().in_memory().start().await.expect("it starts");
        let connection = InMemory::default().connection(&server).await.expect("a connection");
        Self { server, connection }
    }

    fn leader(&self, term: u64) -> SharedState {
        SharedState::of_leader(self.connection.client(), "default", "lease", term)
    }

    async fn read(&self) -> PublishedState {
        let standby = SharedState::of_standby(self.connection.client(), "default", "lease");
        standby.read().await.expect("the server responds")
    }
}

fn progress(version: u64, activity: u64) -> Progress {
    let versions = SettledVersions::from([("a/log x".to_owned(), version)]);
    Progress { settled: versions, activity, ..Progress::default() }
}

#[tokio::test(start_paused = true)]
async fn leader_publishes_activity_at_once() {
    let world = World::new().await;
    assert_eq!(world.read().await, PublishedState::default());
    let mut leader = world.leader(1);
    assert_eq!(leader.take_over().await, Ok(PublishedState::default()));
    leader.publish(&progress(7, 1), String::new()).await.expect("it is written");
    assert_eq!(world.read().await.settled["a/log x"], 7);
    leader.publish(&progress(8, 1), String::new()).await.expect("nothing is due");
    assert_eq!(world.read().await.settled["a/log x"], 7, "only the version has moved");
    leader.publish(&progress(9, 2), String::new()).await.expect("it is written");
    assert_eq!(world.read().await.settled["a/log x"], 9);
    leader.publish(&progress(9, 2), "memory".to_owned()).await.expect("it is written");
    assert_eq!(world.read().await.memory, "memory");
    sleep(QUIET_INTERVAL).await;
    leader.publish(&progress(10, 2), "memory".to_owned()).await.expect("it is written");
    assert_eq!(world.read().await.settled["a/log x"], 10);
}

#[tokio::test(start_paused = true)]
async fn late_write_of_earlier_leader_conflicts() {
    let world = World::new().await;
    let (mut first, mut second) = (world.leader(1), world.leader(2));
    first.take_over().await.expect("it is written");
    first.publish(&progress(7, 1), String::new()).await.expect("it is written");
    let found = second.take_over().await.expect("it is written");
    assert_eq!((found.term, found.settled["a/log x"]), (1, 7));
    let why = first.publish(&progress(99, 2), String::new()).await.expect_err("a later leader has written it");
    assert!(why.contains("a later leader has written it (term 2)"), "{why}");
    let read = world.read().await;
    assert_eq!((read.term, read.settled["a/log x"]), (2, 7), "settled versions stay published");
    // Positions without a watch at the new leader keep their versions.
    let other = Progress { settled: [("b/log x".to_owned(), 3)].into(), activity: 1, ..Progress::default() };
    second.publish(&other, String::new()).await.expect("it is written");
    assert_eq!(
        world.read().await.settled.into_iter().collect::<Vec<_>>(),
        [("a/log x".into(), 7), ("b/log x".into(), 3)]
    );
}

#[tokio::test(start_paused = true)]
async fn publication_recovers_after_failed_request() {
    let world = World::new().await;
    let mut leader = world.leader(1);
    leader.take_over().await.expect("it is written");
    world.server.faults().answer_with(RequestRule::any().resource("secrets"), Answer::code(500));
    leader.publish(&progress(7, 1), String::new()).await.expect_err("the server fails");
    world.server.faults().answer_truly();
    leader.publish(&progress(8, 1), String::new()).await.expect("it is written");
    assert_eq!(world.read().await.settled["a/log x"], 8);
    // Damaged content counts as empty.
    let mut secret = world.server.get("secrets", "default", "lease-settled").expect("it exists");
    secret["data"]["state.json"] = "e30t".into();
    world.server.replace(&secret).expect("it is valid");
    assert_eq!(world.read().await, PublishedState::default());
    // The leader's write conflicts once and then succeeds.
    leader.publish(&progress(9, 2), String::new()).await.expect_err("it was written by another client");
    leader.publish(&progress(9, 2), String::new()).await.expect("it is written");
    assert_eq!(world.read().await.settled["a/log x"], 9);
}
