//! Unreadable objects do not affect others (R8). A read by name returns an error; an object without a readable name is
//! reported.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use peak_alloc::PeakAlloc;
use steadfast::transport::Settings;
use steadfast::{Cacheable, Freshness, Informer, InformerFactory, Scope};

use crate::server::{Attack, Server, list};
use crate::{ALLOCATOR, DiagnosticLog, MAX_ATTACK_MEMORY, MEMORY_TEST_LOCK, OBJECT_LIMIT_BYTES};

/// Kinds of requests of an informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListMethod {
    Pages,
    Stream,
}

/// Returns an object `name` with members before its name in the metadata, and members after the metadata.
fn object(name: &str, version: u64, first: &str, rest: &str) -> String {
    format!(
        r#"{{"metadata":{{{first}"name":"{name}","namespace":"default","uid":"u-{name}","resourceVersion":"{version}"}}{rest}}}"#
    )
}

fn nested(levels: usize) -> String {
    format!("{}1{}", r#"{"f:a":"#.repeat(levels), "}".repeat(levels))
}

/// Returns a deeply nested object in a real server's form: `managedFields` are as deep, and precede the name.
fn deeply_nested_object(name: &str, version: u64) -> String {
    let nested = nested(200);
    object(name, version, &format!(r#""managedFields":[{{"fieldsV1":{nested}}}],"#), &format!(r#","data":{nested}"#))
}

/// Returns a member that exceeds the limit by a sixth.
fn oversized_member() -> String {
    format!(r#","data":{{"x":"{}"}}"#, "s3cr3t".repeat(OBJECT_LIMIT_BYTES / 5))
}

fn oversized_object(name: &str, version: u64) -> String {
    object(name, version, "", &oversized_member())
}

/// Returns a too large object with its metadata at the end.
fn oversized_object_named_last(name: &str, version: u64) -> String {
    let metadata = object(name, version, "", "");
    format!("{{{},{}", &oversized_member()[1..], &metadata[1..])
}

fn events(events: &[(&str, String)]) -> String {
    let lines: Vec<_> =
        events.iter().map(|(kind, object)| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")).collect();
    lines.concat()
}

/// Returns a watch that sends these lines and stays open.
fn open_watch(lines: &str) -> Attack {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let bytes = format!("{head}{:x}\r\n{lines}\r\n", lines.len()).into();
    // Followed by an occasional empty line, which has no meaning.
    let endless = b"1\r\n\n\r\n".to_vec();
    Attack { is_watch: true, bytes, endless, pause: Duration::from_secs(3600), ..Attack::default() }
}

/// An informer of `objects`, the server that lists them, and its diagnostics.
struct Fixture<K: Cacheable> {
    server: Server,
    informer: Informer<K>,
    diagnostics: DiagnosticLog,
}

async fn start_informer<K>(kind: &K::DynamicType, list_method: ListMethod, objects: &[String]) -> Fixture<K>
where
    K: Cacheable<Resource = K> + kube::Resource,
{
    let server = Server::default();
    server.attack(Some(match list_method {
        ListMethod::Pages => {
            let items = objects.join(",");
            list(&format!(r#"{{"kind":"ConfigMapList","metadata":{{"resourceVersion":"10"}},"items":[{items}]}}"#))
        }
        ListMethod::Stream => {
            let end = r#"{"metadata":{"resourceVersion":"10","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
            let added = objects.iter().map(|object| ("ADDED", object.clone()));
            let all: Vec<_> = added.chain([("BOOKMARK", end.to_owned())]).collect();
            open_watch(&events(&all))
        }
    }));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let builder = factory.builder_with::<K>(kind, Scope::namespace("default"));
    let informer = builder
        .streamed_lists(list_method == ListMethod::Stream)
        .object_limit(OBJECT_LIMIT_BYTES)
        .start()
        .expect("the informer starts");
    let diagnostics = DiagnosticLog::of(&informer);
    informer.wait_for_sync(Duration::from_secs(600)).await.expect("the informer syncs");
    tokio::time::sleep(Duration::from_secs(1)).await;
    Fixture { server, informer, diagnostics }
}

impl<K: Cacheable> Fixture<K> {
    /// Returns the names of the objects with a known state, and of the existing objects with an unknown state.
    fn names(&self) -> (Vec<String>, Vec<String>) {
        let snapshot = self.informer.snapshot();
        let names = |tainted: bool| {
            let entries = snapshot.iter().filter(|entry| entry.is_tainted() == tainted);
            entries.map(|entry| entry.key().name().to_owned()).collect::<Vec<_>>()
        };
        (names(false), names(true))
    }

    fn transfers(&self) -> usize {
        let requests = self.server.requests();
        // Both forms of a full list: streamed and paged.
        let transfer = |head: &&String| head.contains("sendInitialEvents") || head.contains("limit=500");
        requests.iter().filter(transfer).count()
    }

    /// Asserts that the informer is fresh after one list, and that no object contents were reported.
    fn assert_well(&self) {
        assert!(matches!(self.informer.freshness(), Freshness::Fresh { .. }), "{}", self.informer.freshness());
        assert_eq!(self.transfers(), 1, "{}", self.diagnostics.text());
        assert!(!self.diagnostics.text().contains("s3cr3t"));
    }
}

fn config_map_resource() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

#[tokio::test(start_paused = true)]
async fn deeply_nested_object_affects_only_itself() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    for list_method in [ListMethod::Pages, ListMethod::Stream] {
        let objects = [object("a", 5, "", ""), deeply_nested_object("deep", 6), object("c", 7, "", "")];
        let fixture = start_informer::<DynamicObject>(&config_map_resource(), list_method, &objects).await;
        assert_eq!(fixture.names(), (vec!["a".to_owned(), "c".to_owned()], vec!["deep".to_owned()]), "{list_method:?}");
        assert!(
            fixture.diagnostics.text().contains("default/deep at version 6 cannot be decoded"),
            "{}",
            fixture.diagnostics.text()
        );
        fixture.assert_well();
    }
}

#[tokio::test(start_paused = true)]
async fn deep_managed_fields_keep_metadata_readable() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    for list_method in [ListMethod::Pages, ListMethod::Stream] {
        let managed = format!(r#""managedFields":[{}],"#, nested(200));
        let objects = [object("a", 5, &managed, ""), object("b", 6, "", "")];
        let fixture = start_informer::<PartialObjectMeta<ConfigMap>>(&(), list_method, &objects).await;
        assert_eq!(fixture.names().0, ["a", "b"], "{list_method:?}");
        fixture.assert_well();
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_object_affects_only_itself() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    for list_method in [ListMethod::Pages, ListMethod::Stream] {
        let objects = [
            object("a", 5, "", ""),
            oversized_object("big", 6),
            oversized_object_named_last("late", 7),
            object("z", 8, "", ""),
        ];
        let (before, sent) = (ALLOCATOR.current_usage(), objects.concat().len());
        ALLOCATOR.reset_peak_usage();
        let fixture = start_informer::<ConfigMap>(&(), list_method, &objects).await;
        let memory_bytes = PeakAlloc::peak_usage(&ALLOCATOR).saturating_sub(before);
        assert!(
            memory_bytes < MAX_ATTACK_MEMORY + 3 * sent,
            "{memory_bytes} bytes, including the server's three copies"
        );
        let known = vec!["a".to_owned(), "z".to_owned()];
        assert_eq!(fixture.names(), (known, vec!["big".to_owned(), "late".to_owned()]), "{list_method:?}");
        assert!(
            fixture.diagnostics.text().contains("longer than the limit of 262144 bytes"),
            "{}",
            fixture.diagnostics.text()
        );
        fixture.assert_well();
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_object_diagnostics_name_only_it() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    // The list contains `a` and `b`, with UIDs equal to their names.
    let lines = events(&[
        ("ADDED", deeply_nested_object("deep", 11)),
        ("MODIFIED", oversized_object("a", 12).replace("u-a", "a")),
        // The identity at the end of the object must still be found, or the deletion would be lost.
        ("DELETED", oversized_object_named_last("b", 13).replace("u-b", "b")),
        ("ADDED", oversized_object("new", 14)),
        ("DELETED", oversized_object("new", 15)),
        ("DELETED", deeply_nested_object("deep", 16)),
        ("MODIFIED", object("c", 17, "", "")),
    ]);
    let server = Server::default();
    server.attack(Some(open_watch(&lines)));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let builder = factory.builder::<ConfigMap>(Scope::namespace("default")).streamed_lists(false);
    let informer = builder.object_limit(OBJECT_LIMIT_BYTES).start().expect("the informer starts");
    informer.wait_for_sync(Duration::from_secs(60)).await.expect("the informer syncs");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reported: Vec<_> = informer
        .snapshot()
        .iter()
        .map(|entry| (entry.key().name().to_owned(), entry.version().to_string(), entry.is_tainted()))
        .collect();
    assert_eq!(
        reported.iter().map(|(name, version, tainted)| (&**name, &**version, *tainted)).collect::<Vec<_>>(),
        [("a", "12", true), ("c", "17", false),]
    );
}

#[tokio::test(start_paused = true)]
async fn unnamed_oversized_object_causes_no_relist_loop() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let nameless = oversized_object("x", 6).replace(r#""name":"x","#, "");
    let objects = [object("a", 5, "", ""), nameless, object("c", 7, "", "")];
    let fixture = start_informer::<ConfigMap>(&(), ListMethod::Pages, &objects).await;
    assert_eq!(fixture.names(), (vec!["a".to_owned(), "c".to_owned()], Vec::new()));
    assert!(matches!(fixture.informer.freshness(), Freshness::Suspect(_)), "{}", fixture.informer.freshness());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(fixture.transfers() < 12, "{} lists in an hour", fixture.transfers());
    assert!(fixture.diagnostics.text().contains("an object without a known name"), "{}", fixture.diagnostics.text());
}

#[tokio::test(start_paused = true)]
async fn oversized_object_without_uid_is_unknown() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    for list_method in [ListMethod::Pages, ListMethod::Stream] {
        let objects = [
            object("a", 5, "", ""),
            oversized_object("big", 6).replace(r#""uid":"u-big","#, ""),
            object("c", 7, "", ""),
        ];
        let fixture = start_informer::<ConfigMap>(&(), list_method, &objects).await;
        assert_eq!(fixture.names(), (vec!["a".to_owned(), "c".to_owned()], vec!["big".to_owned()]), "{list_method:?}");
        assert_eq!(
            fixture.diagnostics.text().matches("objects without a UID, such as default/big").count(),
            1,
            "{list_method:?}"
        );
        fixture.assert_well();
    }
}

#[tokio::test(start_paused = true)]
async fn object_without_uid_matches_by_name() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    // The list contains `a` and `b`, with UIDs equal to their names.
    let bare = |name: &str, version| object(name, version, "", "").replace(&format!(r#""uid":"u-{name}","#), "");
    let lines = events(&[
        ("MODIFIED", bare("a", 12)),
        ("DELETED", bare("b", 13)),
        ("MODIFIED", object("a", 14, "", "").replace("u-a", "a")),
    ]);
    let server = Server::default();
    server.attack(Some(open_watch(&lines)));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let informer = factory
        .builder::<ConfigMap>(Scope::namespace("default"))
        .streamed_lists(false)
        .start()
        .expect("the informer starts");
    let reported = DiagnosticLog::default();
    let own = reported.clone();
    informer
        .on_event(move |event| {
            let name = event.object().metadata.name.clone().unwrap_or_default();
            own.0.lock().push(format!("{} {name}", event.name()));
        })
        .expect("the informer is not stopped");
    informer.wait_for_sync(Duration::from_secs(60)).await.expect("the informer syncs");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let snapshot = informer.snapshot();
    let held: Vec<_> = snapshot.iter().map(|it| (it.key().name(), &**it.uid(), it.version().as_str())).collect();
    assert_eq!(held, [("a", "a", "14")]);
    let reported = reported.text();
    assert!(!reported.contains("Deleted a"), "{reported}");
    assert_eq!((reported.matches("Added a").count(), reported.matches("Deleted b").count()), (1, 1), "{reported}");
}

#[tokio::test(start_paused = true)]
async fn object_of_other_kind_is_skipped_and_reported() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let service = object("web", 6, "", r#","kind":"Service","apiVersion":"v1""#);
    let ours = object("c", 7, "", r#","kind":"ConfigMap","apiVersion":"v1""#);
    let fixture = start_informer::<ConfigMap>(&(), ListMethod::Pages, &[service.clone(), ours]).await;
    assert_eq!(fixture.names(), (vec!["c".to_owned()], Vec::new()));
    let reported = "default/web at version 6: a Service of v1, not the ConfigMap of v1 that was requested";
    assert!(fixture.diagnostics.text().contains(reported), "{}", fixture.diagnostics.text());
    assert!(matches!(fixture.informer.freshness(), Freshness::Suspect(_)), "{}", fixture.informer.freshness());
    drop(fixture);

    // The watch reports an object of another kind. The list then shows that the object is foreign, and the informer
    // recovers.
    let server = Server::default();
    server
        .attack(Some(open_watch(&events(&[("ADDED", service), ("ADDED", object("c", 7, "", "").replace('7', "17"))]))));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let informer = factory
        .builder::<ConfigMap>(Scope::namespace("default"))
        .streamed_lists(false)
        .start()
        .expect("the informer starts");
    let diagnostics = DiagnosticLog::of(&informer);
    informer.wait_for_sync(Duration::from_secs(60)).await.expect("the informer syncs");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(diagnostics.text().contains(reported), "{}", diagnostics.text());
    let snapshot = informer.snapshot();
    let names: Vec<_> = snapshot.iter().map(|entry| entry.key().name()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

/// Returns `name` at `version`, as in this server's lists.
fn plain(name: &str, version: u64) -> String {
    object(name, version, "", "")
}

#[tokio::test(start_paused = true)]
async fn unordered_changes_are_detected_by_a_list() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    // Each object has its own version counter: `d` is new, at version 3.
    server.attack(Some(open_watch(&events(&[("ADDED", plain("c", 20)), ("ADDED", plain("d", 3))]))));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let informer = factory
        .builder::<ConfigMap>(Scope::namespace("default"))
        .streamed_lists(false)
        .start()
        .expect("the informer starts");
    let (own, scripted) = (DiagnosticLog::default(), server.clone());
    let reported = own.clone();
    informer.on_diagnostic(move |note| {
        let note = note.to_string();
        if note.contains("checking with a list") {
            let items = [plain("c", 20), plain("d", 3)].join(",");
            let body = format!(r#"{{"kind":"ConfigMapList","metadata":{{"resourceVersion":"30"}},"items":[{items}]}}"#);
            scripted.attack(Some(list(&body)));
        } else if note.contains("listed again") {
            let next = [("ADDED", plain("e", 2)), ("DELETED", plain("d", 4)), ("MODIFIED", plain("c", 19))];
            scripted.attack(Some(open_watch(&events(&next))));
        }
        reported.0.lock().push(note);
    });
    informer.wait_for_sync(Duration::from_secs(60)).await.expect("the informer syncs");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let text = own.text();
    assert!(text.contains("default/d was added at version 3, below the cached version 20"), "{text}");
    assert_eq!(text.matches("do not come from one counter").count(), 1, "{text}");
    let snapshot = informer.snapshot();
    let held: Vec<_> = snapshot.iter().map(|entry| (entry.key().name(), entry.version().as_str())).collect();
    assert_eq!(held, [("c", "19"), ("e", "2")], "{text}");
    assert!(
        informer.wait_for_version(&"40".into(), Duration::from_secs(1)).await.is_err(),
        "versions without an order cannot be waited for"
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_old_events_keep_version_order() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    let lines = [
        ("ADDED", plain("c", 20)),
        ("ADDED", plain("d", 21)),
        ("MODIFIED", plain("c", 22)),
        ("DELETED", plain("d", 23)),
        // The server repeats all events, including the listed state of `a`.
        ("ADDED", plain("c", 20)),
        ("ADDED", plain("d", 21)),
        ("DELETED", plain("d", 23)),
        ("ADDED", plain("a", 4).replace("u-a", "a")),
    ];
    server.attack(Some(open_watch(&events(&lines))));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let informer = factory
        .builder::<ConfigMap>(Scope::namespace("default"))
        .streamed_lists(false)
        .start()
        .expect("the informer starts");
    informer.wait_for_sync(Duration::from_secs(60)).await.expect("the informer syncs");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let snapshot = informer.snapshot();
    let held: Vec<_> = snapshot.iter().map(|entry| (entry.key().name(), entry.version().as_str())).collect();
    assert_eq!(held, [("a", "5"), ("b", "5"), ("c", "22")]);
    assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    assert_eq!(server.requests().iter().filter(|head| head.contains("limit=500")).count(), 1);
}
