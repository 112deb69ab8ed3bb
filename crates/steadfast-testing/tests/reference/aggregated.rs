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
    let declared = ResourceDeclaration::cluster_scoped("metrics.k8s.io", "v1beta1", "NodeMetrics", "nodes");
    let behind = ApiServer::builder().tls(true).resource(declared).start().await?;
    let rule = RequestRule::any().resource("nodes.metrics.k8s.io");
    behind.faults().respond(rule.clone().verb(Verb::Watch).verb(Verb::StreamedList), InjectedResponse::code(405));
    behind.faults().corrupt(rule.verb(Verb::List), BodyCorruption::Anonymous);
    let node =
        |name: &str| json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": name}});
    behind.create(&node("a"))?;
    reference.aggregate("metrics.k8s.io", "v1beta1", behind.address(0).ok_or("no address")?).await?;

    let connection = reference.connection().await?;
    let mut kind = kind_of("metrics.k8s.io", "v1beta1", "NodeMetrics");
    "nodes".clone_into(&mut kind.plural);
    let nodes: Api<DynamicObject> = Api::all_with(connection.client(), &kind);
    let all = nodes.list(&ListParams::default()).await?;
    assert_eq!((all.items.len(), &all.metadata.resource_version, &all.items[0].metadata.uid), (1, &None, &None));
    let watch = nodes.watch(&WatchParams::default(), "0").await.err();
    assert!(matches!(&watch, Some(kube::Error::Api(status)) if status.code == 405), "{watch:?}");

    let factory = InformerFactory::new(&connection);
    let informer = factory.builder_with::<DynamicObject>(&kind, Scope::all()).poll_every(POLL_INTERVAL).start()?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let polled = until_polled(&informer).await?;
    assert!(polled.contains("no version from which a watch can start"), "{polled}");
    behind.create(&node("b"))?;
    let lister = informer.lister()?;
    until("the object is listed", || lister.get_cluster("b").is_ok_and(|found| found.is_some())).await?;
    assert!(lister.get_cluster("a")?.is_some());
    behind.merge_patch("nodes.metrics.k8s.io", "", "a", json!({"usage": {"cpu": "1"}}))?;
    until("the change is visible", || {
        lister.get_cluster("a").is_ok_and(|found| found.is_some_and(|found| found.data["usage"]["cpu"] == "1"))
    })
    .await?;
    until_polled(&informer).await.map(drop)
}

/// Tests an API that combines several stores: the newest object does not have the highest version. An order by versions
/// would lose most events (C12).
pub(crate) async fn api_with_counter_per_namespace(reference: &Reference) -> Result<(), TestError> {
    const NAMESPACES: [&str; 4] = ["default", "kube-public", "kube-system", "kube-node-lease"];
    let declared = ResourceDeclaration::namespaced("stores.steadfast.test", "v1", "Crate", "crates");
    let behind = ApiServer::builder().tls(true).resource(declared).start().await?;
    behind.faults().own_counters(true);
    let one = |namespace: &str, name: &str| {
        let metadata = json!({"namespace": namespace, "name": name});
        json!({"apiVersion": "stores.steadfast.test/v1", "kind": "Crate", "metadata": metadata})
    };
    for namespace in NAMESPACES {
        behind.create(&one(namespace, "first"))?;
    }
    reference.aggregate("stores.steadfast.test", "v1", behind.address(0).ok_or("no address")?).await?;

    let kind = kind_of("stores.steadfast.test", "v1", "Crate");
    let factory = InformerFactory::new(&reference.connection().await?);
    let informer = factory.informer_with::<DynamicObject>(&kind, Scope::all())?;
    let disordered = Arc::new(Mutex::new(0));
    let counted = disordered.clone();
    informer.on_diagnostic(move |note| {
        if matches!(note, Diagnostic::Disordered) {
            *counted.lock() += 1;
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
    let mut there: BTreeSet<(String, String)> =
        NAMESPACES.iter().map(|namespace| ((*namespace).to_owned(), "first".to_owned())).collect();
    for round in 0..8 {
        for namespace in NAMESPACES {
            let (own, last) = (format!("n-{round}"), format!("n-{}", round - 1));
            behind.create(&one(namespace, &own))?;
            there.insert((namespace.to_owned(), own));
            if round > 0 {
                behind.delete(&one(namespace, &last))?;
                there.remove(&(namespace.to_owned(), last));
            }
        }
        match round {
            // In round 3, the watch resumes from the cached version, which any of the counters may have issued. In
            // round 5, this version has expired.
            3 => behind.faults().end_watches(),
            5 => behind.faults().restart(),
            _ => {}
        }
        until(&format!("the cache has all of round {round}"), || cached_keys() == there).await?;
    }
    until_fresh(&informer).await?;
    assert_eq!(*disordered.lock(), 1, "the missing version order must be reported once");
    Ok(())
}
