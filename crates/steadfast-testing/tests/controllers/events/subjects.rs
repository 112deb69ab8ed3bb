//! Objects that events refer to.

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::ApiResource;
use kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::{Resource, ResourceExt};
use steadfast::{InformerFactory, Lazy, Scope};
use steadfast_testing::connection;

use super::*;

#[tokio::test(start_paused = true)]
async fn object_is_equal_in_each_form() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let factory = InformerFactory::new(&fixture.connection);
    let (typed, lazy) =
        (factory.informer::<ConfigMap>(Scope::all())?, factory.informer::<Lazy<ConfigMap>>(Scope::all())?);
    let metadata = factory.informer::<PartialObjectMeta<ConfigMap>>(Scope::all())?;
    factory.wait_for_sync(MINUTE).await?;
    let typed = typed.lister()?.get("default", "a")?.ok_or("the object is missing")?;
    let lazy = lazy.lister()?.get("default", "a")?.ok_or("the object is missing")?;
    let metadata = metadata.lister()?.get("default", "a")?.ok_or("the object is missing")?;

    let draft = || EventDraft::normal("Changed", "Changing").note("it was changed");
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let dynamic: DynamicObject = serde_json::from_value(serde_json::to_value(&*typed)?)?;
    fixture.events.publish(&*typed, draft());
    fixture.events.publish(&typed, draft());
    fixture.events.publish(typed.arc(), draft());
    fixture.events.publish(&lazy, draft());
    fixture.events.publish(&metadata, draft());
    fixture.events.publish(&typed.object_ref(&()), draft());
    fixture.events.publish(&dynamic.object_ref(&kind), draft());
    fixture.flush().await?;
    let published = fixture.published_events().await?;
    assert_eq!(published.iter().map(event_text).collect::<Vec<_>>(), ["a: it was changed ×7"]);
    let expected = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ConfigMap".to_owned()),
        namespace: Some("default".to_owned()),
        name: Some("a".to_owned()),
        uid: typed.uid(),
        ..ObjectReference::default()
    };
    assert_eq!(published[0].regarding, Some(expected));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_events_are_in_default() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    let mut node = Node::default();
    node.metadata.name = Some("n1".to_owned());
    fixture.events.publish(&node, EventDraft::warning("NotReady", "Checking").related(&subject("a")));
    fixture.flush().await?;
    let published = fixture.published_events().await?;
    assert_eq!(published[0].metadata.namespace.as_deref(), Some("default"));
    let regarding = published[0].regarding.clone().ok_or("the event has no object")?;
    assert_eq!((regarding.kind.as_deref(), regarding.namespace), (Some("Node"), None));
    assert_eq!(published[0].related.as_ref().and_then(|related| related.name.as_deref()), Some("a"));
    Ok(())
}

/// The recorder runs on its own threads, as in a program. Recorded events arrive although recorder and connection are
/// dropped.
#[tokio::test]
async fn dropped_connection_still_sends_recorded_events() -> Result<(), TestError> {
    let server = ApiServer::builder().start().await?;
    let recording = connection(&server).await?;
    let events = EventRecorder::new(&recording, "web")?;
    let recorders: Vec<_> = (0..4).map(|_| events.clone()).collect();
    drop((recording, events));
    let threads = recorders.into_iter().enumerate().map(|(number, events)| {
        std::thread::spawn(move || {
            for _ in 0..1000 {
                events.publish(&subject(&format!("a-{number}")), EventDraft::normal("Changed", "Changing"));
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().map_err(|_| "the thread panicked")?;
    }
    let api: Api<Event> = Api::all(connection(&server).await?.client());
    let start = Instant::now();
    loop {
        let event_count: i32 = api.list(&ListParams::default()).await?.iter().map(count).sum();
        if event_count == 4000 {
            return Ok(());
        }
        if start.elapsed() > MINUTE {
            return Err(format!("only {event_count} of 4000 events arrived").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
