//! Aggregated APIs: the reference forwards their requests to other servers.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::{Api, DynamicObject, ListParams, WatchParams};
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Diagnostic, InformerFactory, Scope};
use steadfast_apiserver::{ApiServer, BodyCorruption, InjectedResponse, RequestRule, ResourceDeclaration, Verb};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::support::{EVENT_TIMEOUT, POLL_INTERVAL, kind_of, until, until_fresh, until_polled};

/// Tests an API like `metrics.k8s.io`: watches are not supported, and listed objects have neither UIDs nor versions.
pub(crate) async fn list_only_api(reference: &Reference) -> Result<(), TestError> {
    let declaration = ResourceDeclaration::cluster_scoped("metrics.k8s.io", "v1beta1", "NodeMetrics", "nodes");
    let backend = ApiServer::builder().tls(true).resource(declaration).start().await?;
    let rule = RequestRule::any().resource("nodes.metrics.k8s.io");
    backend.faults().respond(rule.clone().verb(Verb::Watch).verb(Verb::StreamedList), InjectedResponse::code(405));
    backend.faults().corrupt(rule.verb(Verb::List), BodyCorruption::MissingIdentity);
    let node =
        |name: &str| json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": name}});
    backend.create(&node("a"))?;
    reference.aggregate("metrics.k8s.io", "v1beta1", backend.address(0).ok_or("no address")?).await?;

    let connection = reference.connection().await?;
    let mut kind = kind_of("metrics.k8s.io", "v1beta1", "NodeMetrics");
    "nodes".clone_into(&mut kind.plural);
    let nodes: Api<DynamicObject> = Api::all_with(connection.client(), &kind);
    let list = nodes.list(&ListParams::default()).await?;
    assert_eq!((list.items.len(), &list.metadata.resource_version, &list.items[0].metadata.uid), (1, &None, &None));
    let watch_error = nodes.watch(&WatchParams::default(), "0").await.err();
    assert!(matches!(&watch_error, Some(kube::Error::Api(status)) if status.code == 405), "{watch_error:?}");

    let factory = InformerFactory::new(&connection);
    let informer = factory.builder_with::<DynamicObject>(&kind, Scope::all()).poll_every(POLL_INTERVAL).start()?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let polled = until_polled(&informer).await?;
    assert!(polled.contains("no version from which a watch can start"), "{polled}");
    backend.create(&node("b"))?;
    let lister = informer.lister()?;
    until("the object is listed", || lister.get_cluster("b").is_ok_and(|object| object.is_some())).await?;
    assert!(lister.get_cluster("a")?.is_some());
    backend.merge_patch("nodes.metrics.k8s.io", "", "a", json!({"usage": {"cpu": "1"}}))?;
    until("the change is visible", || {
        lister.get_cluster("a").is_ok_and(|object| object.is_some_and(|object| object.data["usage"]["cpu"] == "1"))
    })
    .await?;
    until_polled(&informer).await.map(drop)
}

/// Tests an API that combines several stores: the newest object does not have the highest version. An order by versions
/// would lose most events (C12).
pub(crate) async fn api_with_counter_per_namespace(reference: &Reference) -> Result<(), TestError> {
    const NAMESPACES: [&str; 4] = ["default", "kube-public", "kube-system", "kube-node-lease"];
    let declaration = ResourceDeclaration::namespaced("stores.steadfast.test", "v1", "Crate", "crates");
    let backend = ApiServer::builder().tls(true).resource(declaration).start().await?;
    backend.faults().namespace_counters(true);
    let crate_object = |namespace: &str, name: &str| {
        let metadata = json!({"namespace": namespace, "name": name});
        json!({"apiVersion": "stores.steadfast.test/v1", "kind": "Crate", "metadata": metadata})
    };
    for namespace in NAMESPACES {
        backend.create(&crate_object(namespace, "first"))?;
    }
    reference.aggregate("stores.steadfast.test", "v1", backend.address(0).ok_or("no address")?).await?;

    let kind = kind_of("stores.steadfast.test", "v1", "Crate");
    let factory = InformerFactory::new(&reference.connection().await?);
    let informer = factory.informer_with::<DynamicObject>(&kind, Scope::all())?;
    let disorder_count = Arc::new(Mutex::new(0));
    let captured_count = disorder_count.clone();
    informer.on_diagnostic(move |note| {
        if matches!(note, Diagnostic::VersionsUnordered) {
            *captured_count.lock() += 1;
        }
    });
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let cached_keys = || -> BTreeSet<(String, String)> {
        let snapshot = informer.snapshot();
        snapshot
            .iter()
            .map(steadfast::Entry::key)
            .map(|key| (key.namespace().unwrap_or_default().to_owned(), key.name().to_owned()))
            .collect()
    };
    let mut expected: BTreeSet<(String, String)> =
        NAMESPACES.iter().map(|namespace| ((*namespace).to_owned(), "first".to_owned())).collect();
    for round in 0..8 {
        for namespace in NAMESPACES {
            let (new_name, last_name) = (format!("n-{round}"), format!("n-{}", round - 1));
            backend.create(&crate_object(namespace, &new_name))?;
            expected.insert((namespace.to_owned(), new_name));
            if round > 0 {
                backend.delete(&crate_object(namespace, &last_name))?;
                expected.remove(&(namespace.to_owned(), last_name));
            }
        }
        match round {
            // In round 3, the watch resumes from the cached version, which any of the counters may have issued. In
            // round 5, this version has expired.
            3 => backend.faults().end_watches(),
            5 => backend.faults().restart(),
            _ => {}
        }
        until(&format!("the cache has all of round {round}"), || cached_keys() == expected).await?;
    }
    until_fresh(&informer).await?;
    assert_eq!(*disorder_count.lock(), 1, "the missing version order must be reported once");
    Ok(())
}
