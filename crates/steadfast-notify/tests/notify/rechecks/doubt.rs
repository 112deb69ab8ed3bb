//! Evaluations while a looked-up resource is in doubt.

use steadfast_apiserver::{InjectedResponse, RequestRule};
use steadfast_notify::change::{EventSubject, ObjectChange, ObjectState};
use steadfast_notify::config::EventKind;
use steadfast_notify::explain::explain;
use steadfast_notify::lookup_snapshot;

use super::*;

/// Looks up a Service if the object names one.
const SEND_WITH_OPTIONAL_LOOKUP: &str = "{'of': object.data.ref == '' ? '' : get('services', 'default', object.data.ref)\
                        .?metadata.?annotations[?'v'].orValue('none')}";

/// Makes Services unreadable until their cache is in doubt. Other resources stay readable.
async fn make_services_doubtful(fixture: &Fixture) {
    fixture.server.faults().respond(RequestRule::any().resource("services"), InjectedResponse::code(503));
    fixture.server.faults().end_watches();
    // A cache without a confirmation counts as fresh for less than this time.
    sleep(Duration::from_secs(120)).await;
}

async fn check_only_lookups_wait(folder: Option<&Folder>) {
    let (mut fixture, receiver) = (Fixture::new().await, Arc::<Receiver>::default());
    let settings =
        Settings { send: SEND_WITH_OPTIONAL_LOOKUP, folder: folder.map(|folder| (folder, 0)), ..Settings::default() };
    let run = EngineRun::start_with(&fixture.server, receiver.clone(), settings).await;
    fixture.set_service("s", 1);
    sleep(Duration::from_secs(5)).await;
    make_services_doubtful(&fixture).await;
    fixture.set("a", 1, clock(), "s");
    fixture.set("b", 2, clock(), "");
    sleep(Duration::from_secs(30)).await;
    receiver.wait_for_messages(1).await;
    assert_eq!(receiver.messages_after(0), [("b".to_owned(), json!({"of": ""}))]);
    // The object and its looked-up object change again during the doubt.
    fixture.set("a", 3, clock(), "s");
    fixture.set_service("s", 5);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(receiver.messages().len(), 1, "{:?}", receiver.messages());
    fixture.server.faults().clear_rules();
    sleep(Duration::from_secs(120)).await;
    receiver.wait_for_messages(2).await;
    assert_eq!(receiver.messages_after(1), [("a".to_owned(), json!({"of": "5"}))]);
    assert_eq!(run.engine.stats().failed, BTreeMap::new());
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn doubt_delays_only_dependent_objects() {
    check_only_lookups_wait(None).await;
}

#[tokio::test(start_paused = true)]
async fn doubt_delays_only_lookups_of_durable_handlers() {
    check_only_lookups_wait(Some(&Folder::new("doubt-durable"))).await;
}

#[tokio::test(start_paused = true)]
async fn instant_in_doubt_is_reported_when_certain() {
    let (mut fixture, receiver) = (Fixture::new().await, Arc::<Receiver>::default());
    let settings = Settings { when: OLD_ENOUGH, send: SEND_WITH_OPTIONAL_LOOKUP, ..Settings::default() };
    let run = EngineRun::start_with(&fixture.server, receiver.clone(), settings).await;
    fixture.set_service("s", 1);
    sleep(Duration::from_secs(5)).await;
    let since = clock() + SignedDuration::from_secs(150);
    fixture.set("a", 1, since, "s");
    fixture.set("b", 2, since, "");
    sleep(Duration::from_secs(5)).await;
    make_services_doubtful(&fixture).await;
    sleep(Duration::from_secs(100)).await;
    receiver.wait_for_messages(1).await;
    assert_eq!(receiver.messages_after(0), [("b".to_owned(), json!({"of": ""}))]);
    fixture.server.faults().clear_rules();
    sleep(Duration::from_secs(120)).await;
    let messages = receiver.wait_for_messages(2).await;
    let [_, message] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((&*message.name, message.time), ("a", since + SignedDuration::from_secs(REPORT_AGE_SECONDS)));
    assert!(message.id.contains('~'), "{}", message.id);
    run.factory.shutdown();
}

/// The machine is suspended. Afterwards, the cache lacks a change of that time, and has no doubt yet.
#[tokio::test(start_paused = true)]
async fn suspended_process_reports_no_outdated_object() {
    let (mut fixture, receiver) = (Fixture::new().await, Arc::<Receiver>::default());
    let run = EngineRun::start(&fixture.server, 1, OLD_ENOUGH, receiver.clone()).await;
    sleep(Duration::from_secs(5)).await;
    fixture.set("a", 1, clock(), "s");
    // Five seconds before the object has the age.
    sleep(Duration::from_secs(25)).await;
    SUSPENDED_TIME.set(Duration::from_secs(60));
    fixture.server.faults().freeze(true);
    let since = clock() + SignedDuration::from_secs(100);
    fixture.set("a", 1, since, "s");
    sleep(Duration::from_secs(7)).await;
    expect_report_after_unread_change(&fixture, &receiver, since).await;
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn doubt_before_the_lock_loses_nothing() {
    let (mut fixture, receiver) = (Fixture::new().await, Arc::<Receiver>::default());
    let run = EngineRun::start(&fixture.server, 1, "true", receiver.clone()).await;
    fixture.set_service("s", 4);
    // The informers of this new factory have no list yet, so the looked-up resource is in doubt.
    let cluster_informers = ClusterInformers {
        factory: InformerFactory::new(&InMemory::default().connection(&fixture.server).await.expect("a connection")),
        ..run.cluster_informers.clone()
    };
    let lookups = lookup_snapshot(&cluster_informers, "default", &run.source.lookups, Duration::ZERO)
        .await
        .expect("a running server");
    let subject = EventSubject {
        cluster: "default".to_owned(),
        resource: "configmaps".to_owned(),
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        uid: "1".to_owned(),
    };
    let object =
        json!({"metadata": {"name": "a"}, "data": {"value": "1", "ref": "s", "since": start_time().to_string()}});
    let change = ObjectChange {
        new: Some(ObjectState::new(object)),
        lookups,
        ..ObjectChange::new("1@1".to_owned(), EventKind::Added, subject, clock())
    };
    let is_settled = Arc::new(AtomicBool::new(false));
    let settled_flag = is_settled.clone();
    run.engine.accept("aged", "log", Arc::new(change), move || settled_flag.store(true, Ordering::Relaxed)).await;
    let messages = receiver.wait_for_messages(1).await;
    assert_eq!(receiver.messages_after(0), [("a".to_owned(), json!({"value": "1", "of": "4"}))], "{messages:?}");
    run.engine.drain(Duration::from_secs(5)).await;
    assert!(is_settled.load(Ordering::Relaxed));
    run.factory.shutdown();
    cluster_informers.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn explanation_names_lookups() {
    let (mut fixture, receiver) = (Fixture::new().await, Arc::<Receiver>::default());
    let settings = Settings { when: OLD_ENOUGH, ..Settings::default() };
    let run = EngineRun::start_with(&fixture.server, receiver, settings).await;
    fixture.set_service("s", 4);
    let lookups =
        lookup_snapshot(&run.cluster_informers, "default", &run.source.lookups, Duration::from_secs(30)).await;
    let lookups = lookups.expect("a running server");
    sleep(Duration::from_secs(5)).await;
    let subject = EventSubject {
        cluster: "default".to_owned(),
        resource: "configmaps".to_owned(),
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        uid: "1".to_owned(),
    };
    let object = |since: &str| json!({"metadata": {"name": "a"}, "data": {"value": "1", "ref": "s", "since": since}});
    let plan = plan(OLD_ENOUGH, DEFAULT_SEND);
    let explained = explain(&plan.rules[0], &subject, Ok(&object("2000-01-01T00:00:00Z")), lookups.as_ref());
    assert!(explained.contains(r#"Added: fires, sends {"of":"4","value":"1"} to log"#), "{explained}");
    assert!(explained.contains("evaluated again when this changes: services default/s"), "{explained}");
    let explained = explain(&plan.rules[0], &subject, Ok(&object("2999-01-01T00:00:00Z")), lookups.as_ref());
    assert!(explained.contains("evaluated again at 2999-01-01T00:00:30Z"), "{explained}");
    let without_lookups = explain(&plan.rules[0], &subject, Ok(&object("2000-01-01T00:00:00Z")), None);
    assert!(
        without_lookups.contains("`send` fails") && without_lookups.contains("services are not watched"),
        "{without_lookups}"
    );
    run.factory.shutdown();
}
