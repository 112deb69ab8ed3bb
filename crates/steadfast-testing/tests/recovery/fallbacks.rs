//! Fallbacks for rejected requests (R3): pages instead of streamed lists, lists instead of watches.
//! The tests run in virtual time, on a server in memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use steadfast::transport::Settings;
use steadfast::{Connection, Event, Freshness, Informer, InformerFactory, ObjectKey, Scope, WaitError};
use steadfast_apiserver::{ApiServer, BodyCorruption, InjectedResponse, RequestRule, Status, Verb};
use steadfast_testing::{
    CachedForm, ConfigMapInForm, InMemory, TestError, builder_with_form, config_map, config_map_in, until,
};

/// Time in which a client or the server reacts to a change.
const REACTION_TIME: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

struct FallbackFixture {
    server: Arc<ApiServer>,
    connection: Connection,
}

impl FallbackFixture {
    async fn new() -> Result<Self, TestError> {
        let server = Arc::new(ApiServer::builder().in_memory().protobuf(CachedForm::current().protobuf).start().await?);
        server.create(&config_map("a", "1"))?;
        let settings = Settings { prior_knowledge: true, ..Settings::default() };
        let connection = InMemory { seed: 11, settings, ..InMemory::default() }.connection(&server).await?;
        Ok(Self { server, connection })
    }

    fn informer(&self, scope: Scope) -> Result<Informer<ConfigMapInForm>, TestError> {
        // A new factory for each informer prevents shared caches, as for independent parts of a program.
        Ok(builder_with_form(&InformerFactory::new(&self.connection), scope).start()?)
    }

    /// Makes the server respond to requests with these verbs as specified.
    fn respond_to(&self, verbs: &[Verb], response: impl Into<InjectedResponse>) {
        let rule = verbs.iter().fold(RequestRule::any().resource("configmaps"), |rule, verb| rule.verb(*verb));
        self.server.faults().respond(rule, response);
    }

    /// Returns the number of requests with this verb.
    fn request_count(&self, verb: Verb) -> usize {
        self.server.requests().iter().filter(|request| request.verb == verb).count()
    }
}

fn is_cached(informer: &Informer<ConfigMapInForm>, name: &str) -> bool {
    informer.snapshot().entry(Some("default"), name).is_some()
}

/// Returns the reason why the fresh informer lists instead of watching, if it does.
fn polling_reason(informer: &Informer<ConfigMapInForm>) -> Option<String> {
    let Freshness::Fresh { polled, .. } = informer.freshness() else { return None };
    polled.map(|polled| polled.to_string())
}

#[tokio::test(start_paused = true)]
async fn rejected_streamed_list_falls_back_to_pages() -> Result<(), TestError> {
    for code in [400, 403, 404, 405, 406, 415, 422, 500, 501] {
        let fixture = FallbackFixture::new().await?;
        fixture.respond_to(&[Verb::StreamedList], InjectedResponse::code(code));
        let informer = fixture.informer(Scope::all())?;
        informer.wait_for_sync(REACTION_TIME).await.map_err(|error| format!("{code}: {error}"))?;
        until(REACTION_TIME, || informer.freshness().is_fresh()).await?;
        assert_eq!(polling_reason(&informer), None, "{code}: the informer must watch");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn repeatedly_cut_streamed_list_becomes_paged() -> Result<(), TestError> {
    let fixture = FallbackFixture::new().await?;
    let streams = RequestRule::any().verb(Verb::StreamedList);
    fixture.server.faults().corrupt(streams, BodyCorruption::Truncated);
    let informer = fixture.informer(Scope::all())?;
    informer.wait_for_sync(REACTION_TIME).await?;
    assert_eq!((fixture.request_count(Verb::StreamedList), fixture.request_count(Verb::List)), (3, 1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn streamed_list_without_end_becomes_paged() -> Result<(), TestError> {
    let fixture = FallbackFixture::new().await?;
    fixture.server.faults().ignore_streamed_lists(true);
    fixture.server.faults().no_bookmarks(true);
    let server = fixture.server.clone();
    tokio::spawn(async move {
        for number in 0_u32.. {
            tokio::time::sleep(REACTION_TIME).await;
            if server.create(&config_map(&format!("n-{number}"), "1")).is_err() {
                return;
            }
        }
    });
    let informer = fixture.informer(Scope::all())?;
    informer.wait_for_sync(Duration::from_secs(40)).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rejected_selector_keeps_streamed_lists() -> Result<(), TestError> {
    let fixture = FallbackFixture::new().await?;
    let rejected = fixture.informer(Scope::all().labels("a in (b"))?;
    tokio::time::sleep(REACTION_TIME).await;
    assert!(matches!(rejected.freshness(), Freshness::Failed(_)), "{}", rejected.freshness());
    let requests_before = fixture.request_count(Verb::StreamedList);
    let valid = fixture.informer(Scope::all())?;
    valid.wait_for_sync(REACTION_TIME).await?;
    assert_eq!(fixture.request_count(Verb::StreamedList), requests_before + 1, "the first list must be streamed");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stream_failure_is_remembered_temporarily() -> Result<(), TestError> {
    let fixture = FallbackFixture::new().await?;
    fixture.server.faults().refuse_streamed_lists(true);
    let first = fixture.informer(Scope::all())?;
    first.wait_for_sync(REACTION_TIME).await?;
    fixture.informer(Scope::namespace("default"))?.wait_for_sync(REACTION_TIME).await?;
    assert_eq!(fixture.request_count(Verb::StreamedList), 1, "the second informer must request pages immediately");
    fixture.server.faults().refuse_streamed_lists(false);
    tokio::time::sleep(HOUR).await;
    fixture.informer(Scope::namespace("default"))?.wait_for_sync(REACTION_TIME).await?;
    assert_eq!(fixture.request_count(Verb::StreamedList), 2, "streaming must be retried after an hour");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn list_only_cache_polls_every_minute() -> Result<(), TestError> {
    let fixture = FallbackFixture::new().await?;
    fixture.respond_to(&[Verb::StreamedList, Verb::Watch], InjectedResponse::Forbidden);
    let informer = fixture.informer(Scope::all())?;
    informer.wait_for_sync(REACTION_TIME).await?;
    until(REACTION_TIME, || polling_reason(&informer).is_some()).await?;
    let reason = polling_reason(&informer).unwrap_or_default();
    assert!(reason.contains("listed every 60 s") && reason.contains("needs watch on configmaps"), "{reason}");

    fixture.server.create(&config_map("b", "1"))?;
    fixture.server.delete_named("configmaps", "default", "a")?;
    until(MINUTE + REACTION_TIME, || is_cached(&informer, "b") && !is_cached(&informer, "a")).await?;
    let (lists, watches) = (
        fixture.request_count(Verb::List),
        fixture.request_count(Verb::Watch) + fixture.request_count(Verb::StreamedList),
    );
    let start = tokio::time::Instant::now();
    while start.elapsed() < HOUR {
        let Freshness::Fresh { age, .. } = informer.freshness() else { panic!("{}", informer.freshness()) };
        assert!(age <= 2 * MINUTE, "{age:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (lists, watches) = (
        fixture.request_count(Verb::List) - lists,
        fixture.request_count(Verb::Watch) + fixture.request_count(Verb::StreamedList) - watches,
    );
    assert!((55..=70).contains(&lists), "{lists} lists in an hour");
    assert!((8..=20).contains(&watches), "{watches} watch attempts in an hour");

    fixture.server.faults().clear_rules();
    until(10 * MINUTE, || informer.freshness().is_fresh() && polling_reason(&informer).is_none()).await?;
    fixture.server.create(&config_map("c", "1"))?;
    until(REACTION_TIME, || is_cached(&informer, "c")).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn revoked_watch_permission_falls_back_to_lists() -> Result<(), TestError> {
    let fixture = FallbackFixture::new().await?;
    let informer = fixture.informer(Scope::all())?;
    informer.wait_for_sync(REACTION_TIME).await?;
    tokio::time::sleep(10 * MINUTE).await;
    fixture.respond_to(&[Verb::StreamedList, Verb::Watch], InjectedResponse::Forbidden);
    fixture.server.faults().end_watches();
    fixture.server.delete_named("configmaps", "default", "a")?;
    until(Duration::from_secs(20), || !is_cached(&informer, "a") && polling_reason(&informer).is_some()).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn write_wait_triggers_early_poll() -> Result<(), TestError> {
    let fixture = FallbackFixture::new().await?;
    fixture.respond_to(&[Verb::StreamedList, Verb::Watch], InjectedResponse::code(405));
    let informer = fixture.informer(Scope::all())?;
    informer.wait_for_sync(REACTION_TIME).await?;
    tokio::time::sleep(REACTION_TIME).await;
    let created: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("b", "1"))?)?;
    let start = tokio::time::Instant::now();
    informer.wait_for(&created).await?;
    assert!(is_cached(&informer, "b") && start.elapsed() < 2 * REACTION_TIME, "{:?}", start.elapsed());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn permanently_failing_watch_is_polled_gently() -> Result<(), TestError> {
    let store_error = Status::of_code(500).with_reason("StoreReadError");
    for response in [
        InjectedResponse::code(500),
        InjectedResponse::InStream(store_error),
        InjectedResponse::InStream(Status::of_code(599)),
        InjectedResponse::code(503),
    ] {
        let fixture = FallbackFixture::new().await?;
        let informer = fixture.informer(Scope::all())?;
        informer.wait_for_sync(REACTION_TIME).await?;
        fixture.respond_to(&[Verb::Watch], response.clone());
        fixture.server.faults().end_watches();
        fixture.server.delete_named("configmaps", "default", "a")?;
        until(2 * MINUTE, || !is_cached(&informer, "a")).await.map_err(|error| format!("{response:?}: {error}"))?;
        let lists = fixture.request_count(Verb::List) + fixture.request_count(Verb::StreamedList);
        tokio::time::sleep(HOUR).await;
        let lists = fixture.request_count(Verb::List) + fixture.request_count(Verb::StreamedList) - lists;
        assert!(lists <= 80, "{response:?}: {lists} lists in an hour");
        fixture.server.faults().clear_rules();
        fixture.server.create(&config_map("b", "1"))?;
        until(MINUTE, || is_cached(&informer, "b") && polling_reason(&informer).is_none()).await?;
    }
    Ok(())
}

/// Server like `metrics.k8s.io`: watches are rejected, and listed objects have neither UIDs nor versions.
async fn metrics_like_fixture() -> Result<FallbackFixture, TestError> {
    let fixture = FallbackFixture::new().await?;
    fixture.respond_to(&[Verb::StreamedList, Verb::Watch], InjectedResponse::code(405));
    fixture.server.faults().corrupt(RequestRule::any().verb(Verb::List), BodyCorruption::MissingIdentity);
    Ok(fixture)
}

/// Recorded events of a handler, as text.
type RecordedTexts = Arc<Mutex<Vec<String>>>;

fn record_events(informer: &Informer<ConfigMapInForm>) -> RecordedTexts {
    let texts = RecordedTexts::default();
    let captured_texts = texts.clone();
    informer
        .on_event(move |event| {
            let name = event.object().key().name().to_owned();
            let details = match &event {
                Event::Deleted { certainty, reason, .. } => format!(" {certainty} {reason}"),
                _ => String::new(),
            };
            captured_texts.lock().push(format!("{} {name}{details}", event.name()));
        })
        .expect("the informer is not stopped");
    texts
}

fn take_texts(texts: &RecordedTexts) -> Vec<String> {
    std::mem::take(&mut texts.lock())
}

#[tokio::test(start_paused = true)]
async fn objects_without_uids_are_polled_by_name() -> Result<(), TestError> {
    let fixture = metrics_like_fixture().await?;
    fixture.server.create(&config_map("b", "1"))?;
    let informer = fixture.informer(Scope::all())?;
    let notes = RecordedTexts::default();
    let captured_notes = notes.clone();
    informer.on_diagnostic(move |note| captured_notes.lock().push(note.to_string()));
    let texts = record_events(&informer);
    informer.wait_for_sync(REACTION_TIME).await?;
    until(REACTION_TIME, || polling_reason(&informer).is_some()).await?;
    assert!(
        polling_reason(&informer)
            .is_some_and(|reason| reason.contains("returns no version from which a watch can start"))
    );
    assert!(is_cached(&informer, "a") && is_cached(&informer, "b"));
    until(REACTION_TIME, || texts.lock().len() == 2).await?;
    assert_eq!(take_texts(&texts), ["Added a", "Added b"]);

    tokio::time::sleep(5 * MINUTE).await;
    assert!(take_texts(&texts).is_empty(), "unchanged content must not be reported");
    assert!(polling_reason(&informer).is_some(), "{}", informer.freshness());

    fixture.server.replace(&config_map("a", "2"))?;
    until(MINUTE + REACTION_TIME, || take_texts(&texts) == ["Updated a"]).await?;
    // Without UIDs, a deletion and a recreation between two lists are indistinguishable from an update.
    fixture.server.delete_named("configmaps", "default", "a")?;
    fixture.server.create(&config_map("a", "3"))?;
    until(MINUTE + REACTION_TIME, || take_texts(&texts) == ["Updated a"]).await?;
    fixture.server.delete_named("configmaps", "default", "b")?;
    until(MINUTE + REACTION_TIME, || take_texts(&texts) == ["Deleted b inferred deleted"]).await?;

    let start = tokio::time::Instant::now();
    while start.elapsed() < HOUR {
        let Freshness::Fresh { age, polled: Some(_), .. } = informer.freshness() else {
            panic!("{}", informer.freshness())
        };
        assert!(age <= 2 * MINUTE, "{age:?}");
        tokio::time::sleep(REACTION_TIME).await;
    }
    let notes = take_texts(&notes);
    assert_eq!(
        notes.iter().filter(|note| note.contains("without a UID")).count(),
        1,
        "must be reported once: {notes:?}"
    );
    let queries: Vec<_> = fixture.server.requests().iter().map(|request| request.query.clone()).collect();
    assert!(!queries.iter().any(|query| query.contains("resourceVersion=")), "{queries:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unversioned_write_is_awaited_by_list() -> Result<(), TestError> {
    let fixture = metrics_like_fixture().await?;
    let informer = fixture.informer(Scope::all())?;
    informer.wait_for_sync(REACTION_TIME).await?;
    let start = tokio::time::Instant::now();
    // The wait must work for the response of the server, and for the sent object without a version.
    let mut created: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("b", "1"))?)?;
    informer.wait_for(&created).await?;
    assert!(is_cached(&informer, "b"));
    let bare = config_map("c", "1");
    fixture.server.create(&bare)?;
    informer.wait_for(&bare).await?;
    assert!(is_cached(&informer, "c"));

    fixture.server.delete_named("configmaps", "default", "c")?;
    informer.wait_for_deletion(&bare, MINUTE).await?;
    assert!(!is_cached(&informer, "c"));
    (created.metadata.uid, created.metadata.resource_version) = (None, None);
    fixture.server.delete_named("configmaps", "default", "b")?;
    informer.wait_for_deletion(&created, MINUTE).await?;
    assert!(start.elapsed() < MINUTE, "the waits must cause polls before the next regular one: {:?}", start.elapsed());
    let never = informer.wait_for_deletion(&config_map("a", "1"), REACTION_TIME).await;
    assert!(matches!(never, Err(WaitError::Deadline { .. })), "{never:?}");
    Ok(())
}

/// Server like an aggregated API over several stores: each namespace has its own version counter (C12).
#[tokio::test(start_paused = true)]
async fn unordered_versions_are_reported_once() -> Result<(), TestError> {
    const NAMESPACES: [&str; 4] = ["kube-public", "default", "kube-system", "kube-node-lease"];
    for streamed in [true, false] {
        let fixture = FallbackFixture::new().await?;
        fixture.server.faults().namespace_counters(true);
        let factory = InformerFactory::new(&fixture.connection);
        let informer = builder_with_form(&factory, Scope::all()).streamed_lists(streamed).start()?;
        let notes = RecordedTexts::default();
        let captured_notes = notes.clone();
        informer.on_diagnostic(move |note| captured_notes.lock().push(note.to_string()));
        informer.wait_for_sync(REACTION_TIME).await?;
        let mut expected = BTreeSet::from([("default".to_owned(), "a".to_owned())]);
        let cached_keys = || -> BTreeSet<_> {
            let snapshot = informer.snapshot();
            let key = |key: &ObjectKey| (key.namespace().unwrap_or_default().to_owned(), key.name().to_owned());
            snapshot.iter().map(|entry| key(entry.key())).collect()
        };
        for round in 0..40 {
            for namespace in NAMESPACES {
                let (next_name, last_name) = (format!("n-{round}"), format!("n-{}", round - 1));
                fixture.server.create(&config_map_in(namespace, &next_name, "1"))?;
                expected.insert((namespace.to_owned(), next_name));
                if round > 0 {
                    fixture.server.delete_named("configmaps", namespace, &last_name)?;
                    expected.remove(&(namespace.to_owned(), last_name));
                }
            }
            match round % 10 {
                3 => fixture.server.faults().end_watches(),
                5 => fixture.server.faults().restart(),
                7 => fixture.server.faults().reset(),
                _ => {}
            }
            until(REACTION_TIME, || cached_keys() == expected || !informer.freshness().is_fresh()).await.map_err(
                |_| format!("round {round}, streamed {streamed}: {} with a wrong cache", informer.freshness()),
            )?;
            // A list shows that the versions have no common order. From then on, records apply in the order of the
            // stream.
            until(2 * REACTION_TIME, || cached_keys() == expected).await.map_err(|_| {
                format!("round {round}, streamed {streamed}: the cache is wrong, {:#?}", take_texts(&notes))
            })?;
            tokio::time::sleep(REACTION_TIME).await;
        }
        // Without a version order, only a list proves that no change is missing.
        until(6 * MINUTE, || informer.freshness().is_fresh()).await?;
        let notes = take_texts(&notes);
        assert_eq!(notes.iter().filter(|note| note.contains("do not come from one counter")).count(), 1, "{notes:#?}");
        assert!(!notes.iter().any(|note| note.contains("history was replaced")), "{notes:#?}");
    }
    Ok(())
}

/// Regression test: a list from before the removal of a CRD counted as proof that lists work. Changes were up to 53 s
/// late afterwards.
#[tokio::test(start_paused = true)]
async fn temporarily_rejected_resource_is_watched_promptly() -> Result<(), TestError> {
    for (code, list_age) in [(404, 1), (404, 30), (403, 10), (405, 10), (404, 59)] {
        let fixture = FallbackFixture::new().await?;
        let informer = fixture.informer(Scope::all())?;
        informer.wait_for_sync(REACTION_TIME).await?;
        tokio::time::sleep(Duration::from_secs(list_age)).await;
        fixture.server.faults().respond(RequestRule::any().resource("configmaps"), InjectedResponse::code(code));
        fixture.server.faults().end_watches();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(matches!(informer.freshness(), Freshness::Failed(_)), "{code}: {}", informer.freshness());
        fixture.server.faults().clear_rules();
        for number in 0..10 {
            let name = format!("m{number}");
            let start = tokio::time::Instant::now();
            fixture.server.create(&config_map(&name, "1"))?;
            until(MINUTE, || is_cached(&informer, &name)).await?;
            let (delay, max_seconds) = (start.elapsed(), if number == 0 { 9 } else { 1 });
            assert!(
                delay <= Duration::from_secs(max_seconds),
                "{code}, {name}: {delay:?} late, {}",
                informer.freshness()
            );
            tokio::time::sleep(REACTION_TIME).await;
        }
        assert_eq!(polling_reason(&informer), None, "{code}: the informer must watch");
    }
    Ok(())
}
