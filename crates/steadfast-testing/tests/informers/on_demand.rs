//! Caches of a decoded type that keep objects encoded, and decode them on demand.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Deserializer};
use steadfast::{Event, Informer, Scope, parse_selector};
use steadfast_testing::{TestError, config_map};

use super::{EVENT_TIMEOUT, EventLog, InformerFixture, settle};

/// Data of a config map, whose decodes the type `C` counts.
struct Data<C>(BTreeMap<String, String>, PhantomData<C>);

/// Count of decodes.
trait Count: Send + Sync + 'static {
    fn count() -> &'static AtomicUsize;
}

impl<'de, C: Count> Deserialize<'de> for Data<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        C::count().fetch_add(1, Ordering::SeqCst);
        Ok(Self(BTreeMap::deserialize(deserializer)?, PhantomData))
    }
}

/// Config map that counts how often it is decoded.
#[derive(Deserialize)]
#[serde(bound = "C: Count")]
struct Counted<C: Count> {
    metadata: ObjectMeta,
    data: Data<C>,
}

// The derive does not support generic types.
impl<C: Count> Resource for Counted<C> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        <ConfigMap as Resource>::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        <ConfigMap as Resource>::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        <ConfigMap as Resource>::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        <ConfigMap as Resource>::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<C: Count> Counted<C> {
    fn value(&self) -> &str {
        &self.data.0["value"]
    }
}

/// Declares the count of a test: other tests of this process run at the same time.
macro_rules! count {
    ($type:ident) => {
        struct $type;

        impl Count for $type {
            fn count() -> &'static AtomicUsize {
                static COUNT: AtomicUsize = AtomicUsize::new(0);
                &COUNT
            }
        }
    };
}

fn start_informer<K: steadfast::Cacheable>(fixture: &InformerFixture) -> Result<Informer<K>, TestError>
where
    steadfast::DynamicType<K>: Default,
{
    for (name, value) in [("a", "1"), ("b", "1"), ("c", "2")] {
        let mut object = config_map(name, value);
        object.labels_mut().insert("app".to_owned(), name.to_owned());
        fixture.server.create(&object)?;
    }
    Ok(fixture.factory.builder::<K>(Scope::all()).decode_on_demand_above(Some(0)).start()?)
}

count!(Handled);

#[tokio::test(start_paused = true)]
async fn handlers_receive_object_decoded_on_arrival() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = start_informer::<Counted<Handled>>(&fixture)?;
    let events = EventLog::default();
    let log = events.clone();
    let _handler = informer.on_event(move |event| {
        log.record(match &event {
            Event::Updated { old, new } => format!("{} {} {}", new.key().name(), old.value(), new.value()),
            event => format!("{} {}", event.object().key().name(), event.object().value()),
        });
    })?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    settle().await;
    assert_eq!(events.all(), ["a 1", "b 1", "c 2"]);
    assert_eq!(Handled::count().load(Ordering::SeqCst), 3, "the objects of a short list are decoded once");

    fixture.write("a", "3")?;
    settle().await;
    assert_eq!(events.all()[3..], ["a 1 3"]);
    assert_eq!(Handled::count().load(Ordering::SeqCst), 4, "only the new state was decoded");

    // The cache has only the bytes of the new state, so the old object of the next event is decoded.
    fixture.write("a", "4")?;
    settle().await;
    assert_eq!(events.all()[4..], ["a 3 4"]);
    assert_eq!(Handled::count().load(Ordering::SeqCst), 6);
    Ok(())
}

count!(Read);

#[tokio::test(start_paused = true)]
async fn unused_decoded_form_is_dropped() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = start_informer::<Counted<Read>>(&fixture)?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let lister = informer.lister()?;
    let get = || lister.get("default", "a").map(|found| found.expect("the object exists"));
    let decoded = || Read::count().load(Ordering::SeqCst);
    let held = get()?;
    assert_eq!((held.value(), decoded()), ("1", 3));

    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(!get()?.is(&held), "the entry was replaced by one without the decoded form");
    assert_eq!((held.value(), decoded()), ("1", 3), "a handle keeps its decoded form");
    let first = get()?.arc().clone();
    assert_eq!((first.value(), decoded()), ("1", 4));
    assert!(Arc::ptr_eq(&first, get()?.arc()), "all readers share the decoded form");
    assert_eq!((get()?.version(), decoded()), (held.version(), 4));

    // The form was decoded a second time, so it stays for a minute after its last use.
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(Arc::ptr_eq(&first, get()?.arc()));
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(Arc::ptr_eq(&first, get()?.arc()));
    assert_eq!(decoded(), 4);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(get()?.value(), "1");
    assert_eq!(decoded(), 5, "an unused form is dropped");
    Ok(())
}

count!(Indexed);

#[tokio::test(start_paused = true)]
async fn indexes_and_selectors_decode_nothing() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = start_informer::<Counted<Indexed>>(&fixture)?;
    let by_value = informer.index(|object: &Counted<Indexed>| Some(object.value().to_owned()));
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let decoded = || Indexed::count().load(Ordering::SeqCst);
    assert_eq!(decoded(), 3);
    let names = |objects: Vec<steadfast::Object<Counted<Indexed>>>| {
        objects.iter().map(|object| object.key().name().to_owned()).collect::<Vec<_>>()
    };
    let lister = informer.lister()?;
    assert_eq!(names(by_value.get("1")), ["a", "b"]);
    assert_eq!(names(lister.select(&parse_selector("app in (b,c)")?)), ["b", "c"]);
    assert_eq!(names(lister.all()), ["a", "b", "c"]);
    assert_eq!(decoded(), 3, "these reads need no object");

    fixture.write("a", "2")?;
    settle().await;
    assert_eq!(names(by_value.get("2")), ["a", "c"]);
    assert_eq!(decoded(), 4, "the new state was decoded once");
    fixture.server.delete_named("configmaps", "default", "a")?;
    settle().await;
    assert_eq!((names(by_value.get("2")), decoded()), (vec!["c".to_owned()], 4));
    Ok(())
}

count!(Filtered);

#[tokio::test(start_paused = true)]
async fn filters_keep_nothing_decoded() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = start_informer::<Counted<Filtered>>(&fixture)?;
    let events = EventLog::default();
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let memory = informer.memory().objects;
    let log = events.clone();
    let _handler = informer
        .handler()
        .filter(|object: &Counted<Filtered>| object.value() == "1")
        .on_event(move |event: Event<Counted<Filtered>>| log.record(event.object().value().to_owned()))?;
    settle().await;
    assert_eq!(events.all(), ["1", "1"]);
    assert_eq!(informer.memory().objects, memory, "filter and handler have dropped their decoded objects");
    Ok(())
}

count!(Looped);

#[tokio::test(start_paused = true)]
async fn memory_falls_after_last_pass() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = start_informer::<Counted<Looped>>(&fixture)?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let (memory, lister) = (informer.memory().objects, informer.lister()?);
    for _ in 0..20 {
        assert!(lister.all().iter().all(|object| !object.value().is_empty()));
        assert!(informer.memory().objects > memory, "the decoded forms count");
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert_eq!(Looped::count().load(Ordering::SeqCst), 6, "only the first pass decodes");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(informer.memory().objects, memory, "unused decoded forms are dropped");
    Ok(())
}
