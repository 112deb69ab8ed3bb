//! Caches that keep objects encoded.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use steadfast::{FieldPath, Lazy, Scope, parse_selector};
use steadfast_testing::{TestError, config_map, pod};

use super::{EVENT_TIMEOUT, EventLog, InformerFixture, settle};

fn names<K>(objects: &[steadfast::Object<Lazy<K>>]) -> Vec<&str> {
    objects.iter().map(|object| object.key().name()).collect()
}

#[tokio::test(start_paused = true)]
async fn lazy_object_is_indexed_and_selected() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for (name, node) in [("a", "n-1"), ("b", "n-2"), ("c", "n-1")] {
        let mut pod = pod(name, node);
        pod.labels_mut().insert("app".to_owned(), name.to_owned());
        fixture.server.create(&pod)?;
    }
    let pods = fixture.factory.informer::<Lazy<Pod>>(Scope::all())?;
    let node = FieldPath::new("spec.nodeName");
    let by_node = pods.index(move |pod: &Lazy<Pod>| pod.read::<String>(&node).ok().flatten());
    let (log, own) = (EventLog::default(), EventLog::default());
    let sink = own.clone();
    let _handler = pods.on_event(move |event| match event.decoded() {
        Ok(event) => sink.record_event(&event),
        Err(error) => sink.record(error.to_string()),
    })?;
    let typed = fixture.factory.informer::<Pod>(Scope::all())?;
    let captured_log = log.clone();
    let _plain_handler = typed.on_event(move |event| captured_log.record_event(&event))?;
    fixture.factory.wait_for_sync(EVENT_TIMEOUT).await?;
    let lister = pods.lister()?;
    assert_eq!(names(&by_node.get("n-1")), ["a", "c"]);
    assert_eq!(names(&lister.select(&parse_selector("app in (b,c)")?)), ["b", "c"]);
    let a = lister.get("default", "a")?.ok_or("it is there")?;
    assert_eq!(a.get()?.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("n-1"));
    assert!(a.get()?.metadata.managed_fields.is_none());

    fixture.server.delete_named("pods", "default", "a")?;
    settle().await;
    assert_eq!(names(&by_node.get("n-1")), ["c"]);
    assert!(pods.freshness().is_fresh(), "{}", pods.freshness());
    assert_eq!(own.all().len(), 4, "three were added, and one deleted");
    assert_eq!(own.all(), log.all(), "a handler receives the same objects");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn undecodable_lazy_object_is_unknown_once_read() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.create(&config_map("b", "1"))?;
    fixture.server.faults().undecodable("default", "a", true);
    let informer = fixture.factory.informer::<Lazy<ConfigMap>>(Scope::all())?;
    let notes = EventLog::default();
    let captured_notes = notes.clone();
    informer.on_diagnostic(move |note| captured_notes.record(note.to_string()));
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let lister = informer.lister()?;
    let a = lister.get("default", "a")?.ok_or("the object is missing")?;
    assert_eq!(lister.snapshot().tainted().len(), 0);

    let error = a.get().expect_err("the object cannot be decoded");
    settle().await;
    assert!(lister.get("default", "a").is_err(), "{error}");
    assert_eq!(lister.snapshot().tainted().len(), 1);
    assert!(informer.freshness().to_string().contains("default/a"), "{}", informer.freshness());
    assert!(notes.all().iter().any(|note| note.contains("default/a")), "a diagnostic names the object");
    assert!(a.get().is_err() && lister.get("default", "b")?.is_some());

    // The relist returns the undecodable version of `a` again.
    fixture.server.faults().cut();
    fixture.write("b", "2")?;
    fixture.server.faults().expire_events();
    fixture.server.compact();
    fixture.server.faults().heal();
    let written_object = fixture.write("b", "3")?;
    informer.wait_for(&written_object).await?;
    assert!(notes.all().iter().any(|note| note.contains("410")), "a relist must happen: {:?}", notes.all());
    assert!(lister.get("default", "a").is_err());
    let note_count = notes.all().iter().filter(|note| note.contains("default/a")).count();
    assert_eq!(note_count, 1, "one diagnostic per version: {:?}", notes.all());

    fixture.server.faults().undecodable("default", "a", false);
    let written_object = fixture.write("a", "2")?;
    informer.wait_for(&written_object).await?;
    let a = lister.get("default", "a")?.ok_or("it fits again")?;
    assert_eq!(a.get()?.data, written_object.data);
    assert_eq!(lister.snapshot().tainted().len(), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn transform_failure_makes_lazy_object_unknown() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.create(&config_map("b", "1"))?;
    fixture.server.faults().undecodable("default", "a", true);
    let builder = fixture.factory.builder::<Lazy<ConfigMap>>(Scope::all());
    let transform = |lazy: Lazy<ConfigMap>| {
        drop(lazy.get());
        lazy
    };
    let informer = builder.transform(transform).start()?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    settle().await;
    let tainted: Vec<String> = informer.snapshot().tainted().iter().map(ToString::to_string).collect();
    assert_eq!(tainted, ["default/a"]);
    Ok(())
}
