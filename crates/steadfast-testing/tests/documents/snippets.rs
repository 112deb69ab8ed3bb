//! The snippets of the READMEs, the guide and the page on operations, verbatim.

// The snippets are written for readability, and some need a context that a function here provides.
#![allow(unused, clippy::all, clippy::pedantic)]

use std::error::Error;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use steadfast::{
    Connection, Diagnostic, Event, FieldPath, InformerFactory, Lazy, ObjectKey, Scope, WatchEvent, parse_selector,
};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{Recorder, config_map, history, informers};

/// README.md, "As a library": the complete program, as in an empty crate.
#[rustfmt::skip]
pub(crate) mod readme {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;
    use steadfast::{Connection, Event, InformerFactory, Scope};

    #[tokio::main]
    async fn main() -> Result<(), Box<dyn std::error::Error>> {
        let connection = Connection::infer().await?;
        let informers = InformerFactory::new(&connection);
        let pods = informers.informer::<Pod>(Scope::all().labels("app=web"))?;
        pods.on_event(|event| match event {
            Event::Added { object, .. } => println!("+ {}", object.name_any()),
            Event::Updated { new, .. } => println!("~ {}", new.name_any()),
            Event::Deleted { last, certainty, .. } => println!("- {} ({certainty})", last.name_any()),
            Event::Resynced { .. } => {}
        })?;
        informers.wait_for_sync(Duration::from_secs(30)).await?;
        println!("web-0 exists: {}; {}", pods.lister()?.get("default", "web-0")?.is_some(), pods.freshness());
        informers.shutdown_drained(Duration::from_secs(5)).await;
        Ok(())
    }

    /// Runs the program, on a thread that may block.
    pub(crate) fn run() -> Result<(), String> {
        main().map_err(|error| error.to_string())
    }
}

/// docs/guide.md, "The first program": the complete program, as in an empty crate.
#[rustfmt::skip]
pub(crate) mod guide {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;
    use steadfast::{Connection, Event, InformerFactory, Scope};

    #[tokio::main]
    async fn main() -> Result<(), Box<dyn std::error::Error>> {
        let connection = Connection::infer().await?;                  // kubeconfig or in-cluster, as with kubectl
        let informers = InformerFactory::new(&connection);
        let pods = informers.informer::<Pod>(Scope::all().labels("app=web"))?;

        pods.on_event(|event| match event {
            Event::Added { object, initial } => println!("+ {} (initial: {initial})", object.name_any()),
            Event::Updated { old, new } => println!("~ {} {:?} to {:?}", new.name_any(), old.resource_version(), new.resource_version()),
            Event::Deleted { last, certainty, reason, .. } => println!("- {} ({certainty}, {reason})", last.name_any()),
            Event::Resynced { .. } => {}
        })?;

        informers.wait_for_sync(Duration::from_secs(30)).await?;      // the error names what is not synced, and why
        let web = pods.lister()?.get("default", "web-0")?;            // Option<Object<Pod>>, never blocks
        println!("{}: {}", web.is_some(), pods.freshness());          // "true: fresh, proven 0.4 s ago"

        informers.shutdown_drained(Duration::from_secs(5)).await;     // returns the undelivered events
        Ok(())
    }

    /// Runs the program, on a thread that may block.
    pub(crate) fn run() -> Result<(), String> {
        main().map_err(|error| error.to_string())
    }
}

/// docs/guide.md, "From client-go".
#[rustfmt::skip]
fn each_event(pods: steadfast::Informer<Pod>) -> Result<(), Box<dyn Error>> {
    fn write(_: &Event<Pod>) {}

    let registration = pods.handler().deliver_each(10_000).on_event(|event| write(&event))?;
    Ok(())
}

/// docs/guide.md, "Reading".
#[rustfmt::skip]
async fn reading(pods: steadfast::Informer<Pod>, by_node: steadfast::Index<Pod, String>) -> Result<(), Box<dyn Error>> {
    fn is_running(pod: &Pod) -> bool {
        pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
    }

    // Waits until the cached object meets the condition. An error reports the last observed state and the freshness.
    let web = ObjectKey::namespaced("shop", "web-0");
    let pod = pods.until_object(&web, |pod| pod.is_some_and(is_running), Duration::from_secs(60)).await?;

    // A snapshot does not change. It shares the objects of the cache instead of copying them.
    let snapshot = pods.snapshot();
    let selector = parse_selector("app=web,tier in (a,b),!legacy")?;
    for pod in snapshot.select(Some("shop"), &selector) { println!("{}", pod.name_any()); }
    for (node, pods) in by_node.snapshot().counts() { println!("{node}: {pods} pods"); }
    Ok(())
}

/// docs/guide.md, "Readiness": `State` replaces the extractor of axum here.
#[rustfmt::skip]
mod readiness {
    use http::StatusCode;
    use steadfast::InformerFactory;

    struct State<T>(T);

    async fn readyz(State(informers): State<InformerFactory>) -> (StatusCode, String) {
        let freshness = informers.freshness();
        (freshness.status(), freshness.to_string())
    }
}

/// docs/guide.md, "Without a cache".
#[rustfmt::skip]
async fn without_a_cache(connection: Connection) -> Result<(), Box<dyn Error>> {
    fn keep<T>(_: T) {}
    fn forget<T>(_: T) {}
    fn remember<T>(_: T) {}

    let mut objects = steadfast::list::<Pod>(&connection, Scope::all());          // in pages; buffers one object at a time
    while let Some(pod) = objects.next().await { keep(pod?); }

    let version = objects.version().expect("a complete list has one");
    let mut changes = steadfast::watch_from::<Pod>(&connection, Scope::all(), &version);
    while let Some(change) = changes.next().await {
        match change? {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => keep(pod),
            WatchEvent::Deleted(pod) => forget(pod),
            WatchEvent::Bookmark(version) => remember(version),
        }
    }
    Ok(())
}

/// docs/guide.md, "Memory".
#[rustfmt::skip]
async fn memory(factory: InformerFactory) -> Result<(), Box<dyn Error>> {
    let pods = factory.informer::<Lazy<Pod>>(Scope::all())?;
    let node = FieldPath::new("spec.nodeName");
    let by_node = pods.index(move |pod: &Lazy<Pod>| pod.read::<String>(&node).ok().flatten());
    pods.on_event(|event| println!("{}", event.object().key()))?;
    pods.wait_for_sync(Duration::from_secs(30)).await?;
    for pod in by_node.get("node-1") {
        println!("{} has {} volumes", pod.key(), pod.get()?.spec.as_ref().map_or(0, |spec| spec.volumes.iter().len()));
    }
    Ok(())
}

/// docs/guide.md, "Several namespaces".
#[rustfmt::skip]
async fn several_namespaces(factory: InformerFactory) -> Result<(), Box<dyn Error>> {
    let scopes = Scope::all().labels("app=web").in_each(["team-a", "team-b"]);
    let pods = factory.multi_namespace_informer::<Pod>(scopes)?;
    pods.on_event(|event| println!("{event:?}"))?;                   // one call at a time, from one queue
    pods.wait_for_sync(Duration::from_secs(30)).await?;
    println!("{} pods, {}", pods.lister()?.len(), pods.freshness()); // the freshness of the worst namespace
    Ok(())
}

/// docs/guide.md, "Metrics".
#[rustfmt::skip]
pub(crate) fn metrics(connection: Connection) -> Result<String, Box<dyn Error>> {
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(steadfast::metrics::Metrics::new([&connection])));

    // At each scrape, served as `application/openmetrics-text; version=1.0.0; charset=utf-8`:
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// docs/guide.md, "Metrics".
#[rustfmt::skip]
fn names(factory: InformerFactory) -> Result<(), Box<dyn Error>> {
    fn publish(_: &Event<Pod>) {}

    let pods = factory.builder::<Pod>(Scope::all()).name("backends").start()?;
    pods.handler().name("dns").on_event(|event| publish(&event))?;
    Ok(())
}

/// docs/guide.md, "Tracing of requests".
#[rustfmt::skip]
fn tracing_of_requests(config: kube::Config) -> Result<Connection, Box<dyn Error>> {
    use http::{HeaderValue, Request};
    use kube::client::Body;
    use tower::util::MapRequestLayer;

    fn context_of_current_span() -> HeaderValue {
        HeaderValue::from_static("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    }

    let traced = MapRequestLayer::new(|mut request: Request<Body>| {
        request.headers_mut().insert("traceparent", context_of_current_span());
        request
    });
    let connection = Connection::builder(config).layer(traced).build()?;
    Ok(connection)
}

/// docs/guide.md, "An audit".
#[rustfmt::skip]
fn an_audit(factory: InformerFactory) -> Result<(), Box<dyn Error>> {
    let pods = factory.builder::<Pod>(Scope::all()).audit_every(Duration::from_secs(600)).start()?;
    pods.on_diagnostic(|diagnostic| if let Diagnostic::Lost { .. } = diagnostic { eprintln!("{diagnostic}") });
    Ok(())
}

/// docs/operations.md, "Checkpoints".
#[rustfmt::skip]
fn checkpoints(factory: InformerFactory) -> Result<(), Box<dyn Error>> {
    let checkpoint = steadfast::Checkpoint::open("/var/lib/my-program/cache")?;
    let pods = factory.builder::<Lazy<Pod>>(Scope::all()).checkpoint(&checkpoint).start()?;
    Ok(())
}

/// docs/guide.md, "A test with network faults".
#[rustfmt::skip]
pub(crate) async fn a_test_with_a_bad_network() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::start().await?;
    let config_maps = informers(&server).await?.informer::<ConfigMap>(Scope::all())?;
    let recorder = Recorder::of(&server);
    let recording = recorder.record(&config_maps);

    server.create(&config_map("a", "1"))?;
    recording.until_synced().await;
    server.faults().cut();
    server.delete_named("configmaps", "default", "a")?;
    server.create(&config_map("a", "2"))?;
    server.compact();
    server.faults().expire_events();
    server.faults().heal();

    recorder.settle(&server).await;
    assert_eq!(recording.descriptions("default/a"), ["Added", "Deleted Inferred Replaced", "Added"]);
    steadfast_contract::check(&history(&server, "", "configmaps")?, &recorder.trace())?;
    Ok(())
}
