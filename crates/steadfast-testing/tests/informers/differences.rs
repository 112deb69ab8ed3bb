//! Delta relists: the transferred objects, and equality with the result of a full list.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::core::ApiResource;
use parking_lot::Mutex;
use steadfast::{Cacheable, Diagnostic, Informer, InformerBuilder, Scope};
use steadfast_apiserver::{ApiServer, InjectedResponse, ObjectCorruption, RequestRecord, RequestRule, Verb};
use steadfast_testing::{TestError, config_map, labelled_config_map};

use crate::{EVENT_TIMEOUT, InformerFixture};

const OBJECTS: usize = 2000;

/// Size of each object's only value, in bytes.
const VALUE_BYTES: usize = 10_000;

/// Requests and diagnostics since the watch expired.
struct Relist {
    requests: Vec<RequestRecord>,
    notes: Vec<String>,
    names: Vec<String>,
}

impl Relist {
    fn requests_of(&self, verb: Verb) -> impl Iterator<Item = &RequestRecord> {
        self.requests.iter().filter(move |request| request.verb == verb)
    }

    fn count(&self, verb: Verb) -> usize {
        self.requests_of(verb).count()
    }

    fn bytes(&self) -> u64 {
        self.requests.iter().filter(|request| request.verb != Verb::Watch).map(|request| request.bytes_sent).sum()
    }

    fn note_count(&self, text: &str) -> usize {
        self.notes.iter().filter(|note| note.contains(text)).count()
    }
}

/// Returns `true` for the nine in ten objects that match the selector.
fn is_web(number: usize) -> bool {
    number % 10 != 5
}

fn object_name(number: usize) -> String {
    format!("object-{number:04}")
}

async fn filled_fixture(builder: steadfast_apiserver::ApiServerBuilder) -> Result<InformerFixture, TestError> {
    let fixture = InformerFixture::with_builder(builder).await?;
    for number in 0..OBJECTS {
        let app = if is_web(number) { "web" } else { "db" };
        fixture.server.create(&labelled_config_map(&object_name(number), &"x".repeat(VALUE_BYTES), ("app", app)))?;
    }
    Ok(fixture)
}

/// Starts an informer, and lets its watch expire while the network is down. In the meantime, one object is changed,
/// one deleted, one recreated and one created. `fault` injects a further fault.
async fn run_relist<K: Cacheable>(
    fixture: &InformerFixture,
    builder: InformerBuilder<'_, K>,
    fault: impl FnOnce(&ApiServer),
) -> Result<(Informer<K>, Relist), TestError> {
    let informer = builder.start()?;
    informer.wait_for_sync(EVENT_TIMEOUT * 10).await?;
    let notes = Arc::new(Mutex::new(Vec::new()));
    let log = notes.clone();
    informer.on_diagnostic(move |note: &Diagnostic| log.lock().push(note.to_string()));
    let requests_before = fixture.server.requests().len();

    fixture.server.faults().cut();
    fixture.write(&object_name(10), "changed")?;
    fixture.server.delete_named("configmaps", "default", &object_name(20))?;
    fixture.server.delete_named("configmaps", "default", &object_name(30))?;
    fixture.server.create(&labelled_config_map(&object_name(30), "recreated", ("app", "web")))?;
    fixture.server.create(&labelled_config_map("new", "1", ("app", "web")))?;
    fixture.server.compact();
    fixture.server.faults().expire_events();
    fault(&fixture.server);
    fixture.server.faults().heal();
    informer.wait_for_version(&fixture.server.revision().to_string().as_str().into(), EVENT_TIMEOUT * 60).await?;

    let requests = fixture.server.requests().split_off(requests_before);
    let notes = notes.lock().clone();
    let mut names: Vec<String> = informer.snapshot().iter().map(|entry| entry.key().name().to_owned()).collect();
    names.sort();
    Ok((informer, Relist { requests, notes, names }))
}

/// Returns the expected names after the changes of [`run_relist`]. `is_selected` selects the numbers of objects.
fn expected_names(is_selected: impl Fn(usize) -> bool) -> Vec<String> {
    let selected_names = (0..OBJECTS).filter(|number| *number != 20 && is_selected(*number)).map(object_name);
    std::iter::once("new".to_owned()).chain(selected_names).collect()
}

#[tokio::test(start_paused = true)]
async fn relist_transfers_only_three_changed_objects() -> Result<(), TestError> {
    let fixture = filled_fixture(ApiServer::builder()).await?;
    let builder = fixture.factory.builder::<ConfigMap>(Scope::all()).protobuf(false);
    let (informer, relist) = run_relist(&fixture, builder, |_| {}).await?;
    assert_eq!(relist.names, expected_names(|_| true));
    let lister = informer.lister()?;
    let value = |name: &str| lister.get("default", name).ok()??.data.clone()?.remove("value");
    assert_eq!((value(&object_name(10)), value(&object_name(30))), (Some("changed".into()), Some("recreated".into())));

    assert_eq!((relist.count(Verb::List), relist.count(Verb::Page)), (1, 3), "metadata in pages of 500");
    let states: Vec<_> =
        relist.requests_of(Verb::ListByName).map(|request| (request.path.as_str(), request.code)).collect();
    assert_eq!(states, [("/api/v1/namespaces/default/configmaps", Some(200)); 3]);
    let (bytes, all_bytes) = (relist.bytes(), (OBJECTS * VALUE_BYTES) as u64);
    assert!(bytes < all_bytes / 10, "received {bytes} bytes, and all objects have {all_bytes}");
    assert_eq!(relist.note_count("by metadata, objects read in full: 3"), 1, "{:?}", relist.notes);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn frequent_changes_cause_full_list() -> Result<(), TestError> {
    let fixture = filled_fixture(ApiServer::builder()).await?;
    let builder = fixture.factory.builder::<ConfigMap>(Scope::all()).protobuf(false);
    let (informer, relist) = run_relist(&fixture, builder, |server| {
        for number in (100..OBJECTS).step_by(100) {
            server
                .replace(&labelled_config_map(&object_name(number), "changed", ("app", "web")))
                .expect("the object exists");
        }
    })
    .await?;
    // A lagging replica could serve a list with a minimum version, so only a probe proves freshness.
    for _ in 0..100 {
        if informer.freshness().is_fresh() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    assert_eq!(relist.names, expected_names(|_| true));
    assert_eq!((relist.note_count("more than 10 objects differ"), relist.note_count("listed again")), (1, 1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn protobuf_lists_fully_by_default() -> Result<(), TestError> {
    let fixture = filled_fixture(ApiServer::builder().protobuf(true)).await?;
    let (_, relist) = run_relist(&fixture, fixture.factory.builder::<ConfigMap>(Scope::all()), |_| {}).await?;
    assert_eq!((relist.count(Verb::StreamedList), relist.count(Verb::List)), (1, 0));

    let fixture = filled_fixture(ApiServer::builder().protobuf(true)).await?;
    let builder = fixture.factory.builder::<ConfigMap>(Scope::all()).delta_relists(true);
    let (_, relist) = run_relist(&fixture, builder, |_| {}).await?;
    assert_eq!(relist.names, expected_names(|_| true));
    assert_eq!((relist.count(Verb::StreamedList), relist.count(Verb::List), relist.count(Verb::ListByName)), (0, 1, 3));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn difference_requests_keep_selectors() -> Result<(), TestError> {
    let fixture = filled_fixture(ApiServer::builder()).await?;
    let scope = Scope::namespace("default").labels("app=web").fields("metadata.namespace=default");
    let builder = fixture.factory.builder::<ConfigMap>(scope).protobuf(false);
    let (_, relist) = run_relist(&fixture, builder, |_| {}).await?;
    assert_eq!(relist.names, expected_names(is_web));
    assert_eq!(relist.count(Verb::ListByName), 3);
    let has_both_selectors = |request: &RequestRecord| {
        request.query.contains("labelSelector=app%3Dweb")
            && request.query.contains("fieldSelector=metadata.namespace%3Ddefault%2Cmetadata.name%3D")
    };
    assert!(relist.requests_of(Verb::ListByName).all(has_both_selectors), "{:?}", relist.requests);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dynamic_objects_use_difference_lists() -> Result<(), TestError> {
    let fixture = filled_fixture(ApiServer::builder()).await?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let builder = fixture.factory.builder_with::<DynamicObject>(&kind, Scope::all());
    let (_, relist) = run_relist(&fixture, builder, |_| {}).await?;
    assert_eq!((relist.names.len(), relist.count(Verb::ListByName)), (OBJECTS, 3));

    let fixture = filled_fixture(ApiServer::builder()).await?;
    let builder = fixture.factory.builder::<PartialObjectMeta<ConfigMap>>(Scope::all()).protobuf(false);
    let (_, relist) = run_relist(&fixture, builder, |_| {}).await?;
    assert_eq!((relist.names.len(), relist.count(Verb::ListByName), relist.note_count("by metadata")), (OBJECTS, 0, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failed_difference_falls_back_to_list() -> Result<(), TestError> {
    type Fault = fn(&ApiServer);
    let faults: [(&str, Fault); 7] = [
        ("410 for a single object", |server| {
            server.faults().respond(RequestRule::any().verb(Verb::ListByName).times(1), InjectedResponse::code(410));
        }),
        ("403 for a single object", |server| {
            server.faults().respond(RequestRule::any().verb(Verb::ListByName).times(1), InjectedResponse::Forbidden);
        }),
        ("500 for a single object", |server| {
            server.faults().respond(RequestRule::any().verb(Verb::ListByName).times(1), InjectedResponse::code(500));
        }),
        ("406 for metadata", |server| {
            server.faults().respond(RequestRule::any().verb(Verb::List).times(1), InjectedResponse::code(406));
        }),
        ("a continue token that expires", |server| server.faults().expire_continue_tokens(1)),
        ("more objects differ than the limit", |server| {
            for number in 100..130 {
                server.create(&config_map(&format!("more-{number}"), "1")).expect("a config map");
            }
        }),
        ("more objects are missing than the limit", |server| {
            for number in 100..130 {
                server.delete_named("configmaps", "default", &object_name(number)).expect("the object exists");
            }
        }),
    ];
    for (name, fault) in faults {
        let fixture = filled_fixture(ApiServer::builder()).await?;
        let builder = fixture.factory.builder::<ConfigMap>(Scope::all()).protobuf(false);
        let (_, relist) = run_relist(&fixture, builder, fault).await?;
        let expected = match name {
            _ if name.starts_with("more objects differ") => OBJECTS + 30,
            _ if name.starts_with("more objects are missing") => OBJECTS - 30,
            _ => OBJECTS,
        };
        assert_eq!(relist.names.len(), expected, "{name}");
        assert_eq!(relist.note_count("by metadata"), 0, "{name}: {:?}", relist.notes);
        assert_eq!(relist.note_count("listed again"), 1, "{name}: {:?}", relist.notes);
        assert_eq!(relist.count(Verb::List), 2, "{name}: one list of metadata, and one full list");
        let reads_objects = name.contains("single object");
        assert_eq!(relist.count(Verb::ListByName) > 0, reads_objects, "{name}: {:?}", relist.notes);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deferred_difference_is_retried_without_list() -> Result<(), TestError> {
    let respond_busy = |verb: Verb, code: u16| {
        let rule = RequestRule::any().verb(verb).times(2);
        move |server: &ApiServer| {
            server.faults().respond(rule, InjectedResponse::retry_after(code, Duration::from_secs(3)));
        }
    };
    for (verb, code) in [(Verb::ListByName, 429), (Verb::ListByName, 503), (Verb::List, 429)] {
        let fixture = filled_fixture(ApiServer::builder()).await?;
        let builder = fixture.factory.builder::<ConfigMap>(Scope::all()).protobuf(false);
        let (_, relist) = run_relist(&fixture, builder, respond_busy(verb, code)).await?;
        let context = format!("{verb:?} {code}: {:?}", relist.notes);
        assert_eq!(relist.names, expected_names(|_| true), "{context}");
        assert_eq!(relist.note_count("by metadata, objects read in full: 3"), 1, "{context}");
        let (lists, states) = if verb == Verb::List { (3, 3) } else { (1, 5) };
        assert_eq!((relist.count(Verb::List), relist.count(Verb::ListByName)), (lists, states), "{context}");
        let first_at = relist.requests_of(verb).next().map(|request| request.at);
        let success_at =
            relist.requests_of(verb).filter(|request| request.code == Some(200)).last().map(|request| request.at);
        assert!(
            success_at
                .zip(first_at)
                .is_some_and(|(success_at, first_at)| success_at >= first_at + Duration::from_secs(3)),
            "{context}"
        );
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unchanged_undecodable_objects_do_not_differ() -> Result<(), TestError> {
    let fixture = filled_fixture(ApiServer::builder()).await?;
    // These undecodable objects exceed the limit of differing objects for a cache of 2,000.
    for number in 100..200 {
        fixture.server.faults().corrupt_object("default", &object_name(number), Some(ObjectCorruption::WrongTypes));
    }
    let builder = fixture.factory.builder::<ConfigMap>(Scope::all()).protobuf(false);
    let (informer, relist) = run_relist(&fixture, builder, |_| {}).await?;
    assert_eq!((relist.count(Verb::List), relist.count(Verb::ListByName)), (1, 3));
    assert_eq!(relist.note_count("by metadata, objects read in full: 3"), 1, "{:?}", relist.notes);
    assert_eq!((informer.snapshot().len(), informer.snapshot().tainted().len()), (OBJECTS, 100));

    fixture.server.faults().corrupt_object("default", &object_name(150), None);
    informer.wait_for(&fixture.write(&object_name(150), "well")?).await?;
    assert_eq!(informer.snapshot().tainted().len(), 99);
    Ok(())
}
