//! Due instants and lookup changes that occur while the program is stopped or the machine is suspended.

use super::*;

const OBJECTS_AND_SERVICES: [(&str, &str); 2] = [("a", "s"), ("b", "other")];

/// Starts a run with the objects of `OBJECTS_AND_SERVICES` and their Services. Returns the state folder too.
async fn start_with_objects(name: &str, when: &str) -> (Fixture, Folder, Arc<Receiver>, EngineRun) {
    let (mut fixture, folder, receiver) = (Fixture::new().await, Folder::new(name), Arc::<Receiver>::default());
    let settings = Settings { when, folder: Some((&folder, 0)), ..Settings::default() };
    let run = EngineRun::start_with(&fixture.server, receiver.clone(), settings).await;
    let since = clock();
    for (name, service) in OBJECTS_AND_SERVICES {
        fixture.set_service(service, 1);
        fixture.set(name, 1, since, service);
    }
    sleep(Duration::from_secs(10)).await;
    (fixture, folder, receiver, run)
}

async fn restart(fixture: &Fixture, folder: &Folder, receiver: &Arc<Receiver>, number: u64, when: &str) -> EngineRun {
    let settings = Settings { when, folder: Some((folder, number)), ..Settings::default() };
    let run = EngineRun::start_with(&fixture.server, receiver.clone(), settings).await;
    sleep(Duration::from_secs(20)).await;
    run
}

#[tokio::test(start_paused = true)]
async fn missed_instant_is_reported_once() {
    let (fixture, folder, receiver, run) = start_with_objects("instant-down", OLD_ENOUGH).await;
    let other = Arc::<Receiver>::default();
    let uninterrupted_run = EngineRun::start(&fixture.server, 9, OLD_ENOUGH, other.clone()).await;
    sleep(Duration::from_secs(1)).await;
    run.kill(&folder, 0);
    sleep(Duration::from_secs(300)).await;
    assert!(receiver.messages().is_empty(), "{:?}", receiver.messages());
    let run = restart(&fixture, &folder, &receiver, 1, OLD_ENOUGH).await;
    let (messages, expected) = (receiver.wait_for_messages(2).await, other.wait_for_messages(2).await);
    let ids = |messages: &[Message]| messages.iter().map(|message| message.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&messages), ids(&expected));
    assert!(messages.iter().all(|message| message.id.contains('~')), "{messages:?}");
    run.kill(&folder, 1);
    sleep(Duration::from_secs(300)).await;
    let run = restart(&fixture, &folder, &receiver, 2, OLD_ENOUGH).await;
    assert_eq!(receiver.messages().len(), 2, "nothing is reported again");
    run.factory.shutdown();
    uninterrupted_run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn missed_lookup_change_is_reported_once() {
    let (mut fixture, folder, receiver, run) = start_with_objects("lookup-down", "true").await;
    assert_eq!(receiver.wait_for_messages(2).await.len(), 2);
    run.kill(&folder, 0);
    sleep(Duration::from_secs(60)).await;
    fixture.set_service("s", 7);
    sleep(Duration::from_secs(60)).await;
    let run = restart(&fixture, &folder, &receiver, 1, "true").await;
    receiver.wait_for_messages(3).await;
    assert_eq!(receiver.messages_after(2), [("a".to_owned(), json!({"value": "1", "of": "7"}))]);
    run.kill(&folder, 1);
    let run = restart(&fixture, &folder, &receiver, 2, "true").await;
    assert_eq!(receiver.messages().len(), 3, "nothing is reported again: {:?}", receiver.messages_after(2));
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn lookup_message_is_resent_after_kill() {
    let (mut fixture, folder, receiver, run) = start_with_objects("lookup-flight", "true").await;
    assert_eq!(receiver.wait_for_messages(2).await.len(), 2);
    // Messages from now on are lost.
    run.is_killed.store(true, Ordering::Relaxed);
    fixture.set_service("s", 7);
    sleep(Duration::from_secs(10)).await;
    run.kill(&folder, 0);
    let run = restart(&fixture, &folder, &receiver, 1, "true").await;
    receiver.wait_for_messages(3).await;
    assert_eq!(receiver.messages_after(2), [("a".to_owned(), json!({"value": "1", "of": "7"}))]);
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn instant_message_is_resent_after_kill() {
    let (fixture, folder, receiver, run) = start_with_objects("instant-flight", OLD_ENOUGH).await;
    run.is_killed.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(60)).await;
    run.kill(&folder, 0);
    let run = restart(&fixture, &folder, &receiver, 1, OLD_ENOUGH).await;
    let messages = receiver.wait_for_messages(2).await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages.iter().all(|message| message.id.contains('~')), "{messages:?}");
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn restart_reports_current_object_state() {
    let phases = "now - timestamp(object.data.since) < duration('40s') ? 'young' : \
                  now - timestamp(object.data.since) < duration('80s') ? 'grown' : 'old'";
    let (mut fixture, folder, receiver) =
        (Fixture::new().await, Folder::new("changed-down"), Arc::<Receiver>::default());
    let settings = |number| Settings { send: phases, folder: Some((&folder, number)), ..Settings::default() };
    let run = EngineRun::start_with(&fixture.server, receiver.clone(), settings(0)).await;
    fixture.set("a", 1, clock(), "s");
    sleep(Duration::from_secs(10)).await;
    let since = clock() - SignedDuration::from_secs(10);
    run.kill(&folder, 0);
    sleep(Duration::from_secs(100)).await;
    fixture.set("a", 2, since, "s");
    let run = EngineRun::start_with(&fixture.server, receiver.clone(), settings(1)).await;
    sleep(Duration::from_secs(20)).await;
    receiver.wait_for_messages(2).await;
    assert_eq!(receiver.messages_after(0).last().expect("messages").1, "old", "{:?}", receiver.messages());
    run.factory.shutdown();
}

/// `send` expression with a new result each second.
const SEND_SECONDS: &str = "{'second': int(now)}";

#[tokio::test(start_paused = true)]
async fn seconds_of_a_suspend_are_skipped() {
    let (mut fixture, receiver) = (Fixture::new().await, Arc::<Receiver>::default());
    let run = EngineRun::start_with(
        &fixture.server,
        receiver.clone(),
        Settings { send: SEND_SECONDS, ..Settings::default() },
    )
    .await;
    fixture.set("a", 1, clock(), "s");
    sleep(Duration::from_secs(5)).await;
    let messages_before_suspend = receiver.wait_for_messages(3).await.len();
    SUSPENDED_TIME.set(Duration::from_secs(3 * 3600));
    sleep(Duration::from_secs(30)).await;
    for _ in 0..2000 {
        let reached = receiver.messages().last().and_then(|message| message.data["second"].as_i64());
        if reached.is_some_and(|second| second + 2 >= clock().as_second()) {
            break;
        }
        real_pause().await;
    }
    let seconds: Vec<i64> = receiver
        .messages_after(messages_before_suspend)
        .iter()
        .filter_map(|(_, data)| data["second"].as_i64())
        .collect();
    assert!(
        seconds.last().expect("messages") + 2 >= clock().as_second(),
        "the messages reach the present: {seconds:?}"
    );
    assert!(seconds.len() < 100, "{} messages", seconds.len());
    assert!(seconds.is_sorted_by(|one, next| one < next), "{seconds:?}");
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn reload_replaces_the_rule_of_rechecks() {
    let (mut fixture, receiver) = (Fixture::new().await, Arc::<Receiver>::default());
    let mut run = EngineRun::start(&fixture.server, 1, OLD_ENOUGH, receiver.clone()).await;
    let since = clock();
    fixture.set("a", 1, since, "s");
    sleep(Duration::from_secs(5)).await;
    run.reload("now - timestamp(object.data.since) >= duration('60s')", DEFAULT_SEND);
    sleep(Duration::from_secs(45)).await;
    assert!(receiver.messages().is_empty(), "{:?}", receiver.messages());
    sleep(Duration::from_secs(45)).await;
    let messages = receiver.wait_for_messages(1).await;
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(message.time, since + SignedDuration::from_secs(60));
    run.factory.shutdown();
}
