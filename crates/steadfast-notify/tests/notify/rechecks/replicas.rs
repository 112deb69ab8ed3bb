//! Messages caused by time or by a lookup, across a change of the leader.

use steadfast_notify::{TermKeeper, UnlimitedTerm};

use super::*;

struct Replica {
    run: EngineRun,
    replication: Replication,
    keeper: TermKeeper,
}

impl Replica {
    async fn start(fixture: &Fixture, folder: &Folder, when: &str, receiver: &Arc<Receiver>) -> Self {
        let (keeper, gate) = TermKeeper::new();
        let replication = Replication::new(gate);
        let settings =
            Settings { when, folder: Some((folder, 0)), replication: replication.clone(), ..Settings::default() };
        let run = EngineRun::start_with(&fixture.server, receiver.clone(), settings).await;
        Self { run, replication, keeper }
    }

    /// Applies the settled progress of `leader`, as after a read of the shared state.
    fn read_progress_of(&self, leader: &Self) {
        let subscriptions = leader.run.subscriptions.iter();
        let progress =
            subscriptions.flat_map(|(sink, subscription)| subscription.settled_progress(&leader.run.source, sink));
        self.replication.set_settled(progress.collect());
    }
}

/// Starts a leader and a standby, with one object and the Service that the rule looks up for it.
async fn start_leader_and_standby(name: &str, when: &str) -> (Fixture, [Folder; 2], Arc<Receiver>, [Replica; 2]) {
    let (mut fixture, receiver) = (Fixture::new().await, Arc::<Receiver>::default());
    let folders = ["leader", "standby"].map(|role| Folder::new(&format!("{name}-{role}")));
    fixture.set_service("s", 1);
    let leader = Replica::start(&fixture, &folders[0], when, &receiver).await;
    leader.keeper.open(Arc::new(UnlimitedTerm(1)));
    let standby = Replica::start(&fixture, &folders[1], when, &receiver).await;
    sleep(Duration::from_secs(5)).await;
    fixture.set("a", 1, clock(), "s");
    for _ in 0..10 {
        sleep(Duration::from_secs(1)).await;
        standby.read_progress_of(&leader);
    }
    (fixture, folders, receiver, [leader, standby])
}

#[tokio::test(start_paused = true)]
async fn standby_sends_no_time_messages() {
    let (_fixture, _folders, receiver, [leader, standby]) = start_leader_and_standby("replica-time", OLD_ENOUGH).await;
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        standby.read_progress_of(&leader);
    }
    receiver.wait_for_messages(1).await;
    assert_eq!(receiver.messages().len(), 1);
    // The new leader may only repeat messages of the last ten seconds before the settled instant. This message is
    // older.
    leader.keeper.close();
    standby.keeper.open(Arc::new(UnlimitedTerm(2)));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(receiver.messages().len(), 1, "{:?}", receiver.messages());
    leader.run.factory.shutdown();
    standby.run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn next_leader_sends_missed_instant() {
    let (_fixture, _folders, receiver, [leader, standby]) = start_leader_and_standby("replica-gap", OLD_ENOUGH).await;
    leader.keeper.close();
    sleep(Duration::from_secs(60)).await;
    assert!(receiver.messages().is_empty(), "{:?}", receiver.messages());
    standby.keeper.open(Arc::new(UnlimitedTerm(2)));
    sleep(Duration::from_secs(20)).await;
    let messages = receiver.wait_for_messages(1).await;
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert!(message.id.contains(&format!("~{}", message.time)), "{}", message.id);
    leader.run.factory.shutdown();
    standby.run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn next_leader_waits_for_earlier_writes() {
    let (mut fixture, _folders, receiver, [leader, standby]) =
        start_leader_and_standby("replica-behind", OLD_ENOUGH).await;
    leader.keeper.close();
    // One second before the object has the age.
    sleep(Duration::from_secs(19)).await;
    fixture.server.faults().freeze(true);
    let since = clock() + SignedDuration::from_secs(100);
    fixture.set("a", 1, since, "s");
    standby.keeper.open(Arc::new(UnlimitedTerm(2)));
    sleep(Duration::from_secs(3)).await;
    expect_report_after_unread_change(&fixture, &receiver, since).await;
    leader.run.factory.shutdown();
    standby.run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn next_leader_sends_missed_lookup_change() {
    let (mut fixture, _folders, receiver, [leader, standby]) = start_leader_and_standby("replica-lookup", "true").await;
    assert_eq!(receiver.wait_for_messages(1).await.len(), 1);
    leader.keeper.close();
    sleep(Duration::from_secs(20)).await;
    fixture.set_service("s", 7);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(receiver.messages().len(), 1);
    standby.keeper.open(Arc::new(UnlimitedTerm(2)));
    sleep(Duration::from_secs(20)).await;
    receiver.wait_for_messages(2).await;
    assert_eq!(receiver.messages_after(1), [("a".to_owned(), json!({"value": "1", "of": "7"}))]);
    // Restores the value of the first message. The first leader, elected again, must know the message of the other
    // leader in between, and must send this change.
    standby.keeper.close();
    leader.read_progress_of(&standby);
    sleep(Duration::from_secs(20)).await;
    leader.read_progress_of(&standby);
    fixture.set_service("s", 1);
    leader.keeper.open(Arc::new(UnlimitedTerm(3)));
    sleep(Duration::from_secs(20)).await;
    receiver.wait_for_messages(3).await;
    assert_eq!(receiver.messages_after(2), [("a".to_owned(), json!({"value": "1", "of": "1"}))]);
    leader.run.factory.shutdown();
    standby.run.factory.shutdown();
}
