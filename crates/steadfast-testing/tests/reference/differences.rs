//! Delta relists from a real kube-apiserver: metadata at a version, and single objects at that version.

use std::sync::Arc;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Cacheable, Diagnostic, Informer, InformerFactory, Lazy, ReflectorSettings, Scope};
use steadfast_contract::check;
use steadfast_testing::cluster::Writer;
use steadfast_testing::reference::Reference;
use steadfast_testing::{EventRecording, Recorder, TestError};

use crate::support::{EVENT_TIMEOUT, GROUP, define, definition, kind_of, until, until_fresh};

const OBJECTS: usize = 600;

/// Number of objects that each relist transferred completely.
type FetchCounts = Arc<Mutex<Vec<Option<usize>>>>;

/// Custom resources of the test.
struct Widgets {
    kind: ApiResource,
    api: Api<DynamicObject>,
}

impl Widgets {
    async fn create(reference: &Reference, count: usize) -> Result<Self, TestError> {
        define(reference, definition("Widget", &[("v1", true)])).await?;
        let kind = kind_of(GROUP, "v1", "Widget");
        let api = Api::namespaced_with(reference.connection().await?.client(), "default", &kind);
        for number in 0..count {
            let widget = DynamicObject::new(&format!("widget-{number}"), &kind).data(json!({"spec": {"size": 1}}));
            api.create(&PostParams::default(), &widget).await?;
        }
        Ok(Self { kind, api })
    }

    async fn change(&self, number: usize) -> Result<(), TestError> {
        let patch = Patch::Merge(json!({"spec": {"size": 2}}));
        self.api.patch(&format!("widget-{number}"), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

fn record_fetches<K: Cacheable>(informer: &Informer<K>) -> FetchCounts {
    let fetched = FetchCounts::default();
    let counts = fetched.clone();
    informer.on_diagnostic(move |note| {
        if let Diagnostic::Relisted { fetched, .. } = note {
            counts.lock().push(*fetched);
        }
    });
    fetched
}

fn record<K: Cacheable>(recorder: &Recorder, informer: &Informer<K>, name: &str) -> (EventRecording<K>, FetchCounts) {
    (recorder.record_as(informer, name), record_fetches(informer))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relist_transfers_only_differing_objects() -> Result<(), TestError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let second_server = reference.start_another().await?;
    let recorder = reference.recorder();
    let writer = Writer::new(reference.connection().await?.client(), "default");
    for start in (0..OBJECTS).step_by(50) {
        let creations = (start..start + 50).map(|number| {
            let writer = &writer;
            async move { writer.create(&format!("object-{number}"), "1").await }
        });
        try_join_all(creations).await?;
    }
    let connection = reference.connection_by(reference.address(second_server)).await?;
    let settings = ReflectorSettings {
        page_size: Some(250),
        delta_min_objects: 500,
        delta_objects_per_difference: 100,
        ..ReflectorSettings::default()
    };
    let factory = InformerFactory::with_settings(&connection, settings);
    let (all_scope, selected_scope) = (Scope::all(), Scope::namespace("default").labels("!hidden"));
    let kind = ApiResource::erase::<ConfigMap>(&());
    let dynamic = factory.builder_with::<DynamicObject>(&kind, all_scope.clone()).start()?;
    let typed = factory.builder::<ConfigMap>(all_scope).delta_relists(true).start()?;
    let lazy = factory.builder::<Lazy<ConfigMap>>(selected_scope.clone()).protobuf(false).start()?;
    let full = factory.builder::<ConfigMap>(selected_scope).start()?;
    let widgets = Widgets::create(&reference, 10).await?;
    // The collection is small, and its metadata are transferred in protobuf.
    let settings = ReflectorSettings {
        delta_min_objects: 1,
        delta_objects_per_difference: 1,
        page_size: Some(4),
        ..ReflectorSettings::default()
    };
    let other_factory = InformerFactory::with_settings(&connection, settings);
    let custom = other_factory.builder_with::<DynamicObject>(&widgets.kind, Scope::all()).protobuf(true).start()?;
    let custom_fetches = record_fetches(&custom);
    let (dynamic, dynamic_fetches) = record(&recorder, &dynamic, "dynamic");
    let (typed, typed_fetches) = record(&recorder, &typed, "typed");
    let (lazy, lazy_fetches) = record(&recorder, &lazy, "lazy");
    let (full, full_fetches) = record(&recorder, &full, "full");
    factory.wait_for_sync(EVENT_TIMEOUT).await?;
    other_factory.wait_for_sync(EVENT_TIMEOUT).await?;
    until_fresh(dynamic.informer()).await?;

    // A restarted server has no events from before its start, and the compacted etcd has none either.
    reference.kill(second_server);
    writer.set("object-1", "changed").await?;
    writer.delete("object-2").await?;
    writer.recreate("object-4", "recreated").await?;
    writer.create("new", "1").await?;
    widgets.change(5).await?;
    reference.compact().await?;
    reference.start_again(second_server).await?;
    let has_relisted = |fetched: &FetchCounts| !fetched.lock().is_empty();
    let all_fetches = [&dynamic_fetches, &typed_fetches, &lazy_fetches, &full_fetches, &custom_fetches];
    until("all informers have relisted", || all_fetches.into_iter().all(has_relisted)).await?;
    reference.settle(&recorder).await?;

    let counts_of = |fetched: &FetchCounts| fetched.lock().clone();
    assert_eq!(
        (counts_of(&dynamic_fetches), counts_of(&typed_fetches), counts_of(&lazy_fetches)),
        (vec![Some(3)], vec![Some(3)], vec![Some(3)])
    );
    assert_eq!(counts_of(&full_fetches), [None], "protobuf is listed completely");
    assert_eq!(counts_of(&custom_fetches), [Some(1)], "metadata of custom resources support protobuf");
    let changed = custom.lister()?.get("default", "widget-5")?;
    assert!(changed.is_some_and(|widget| widget.data["spec"]["size"] == 2));
    assert_eq!(typed.informer().snapshot().checksum(), dynamic.informer().snapshot().checksum());
    assert_eq!(lazy.informer().snapshot().checksum(), full.informer().snapshot().checksum());
    let history = reference.history("", "configmaps").await?;
    let verdict = check(&history, &recorder.trace())?;
    assert_eq!((verdict.total().lost, verdict.total().repeated), (0, 0), "{verdict:?}");
    Ok(())
}
