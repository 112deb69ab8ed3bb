//! Tests of the operator with a fault at each request. The final state must be the same as without a fault, and the
//! role in the manifests must allow exactly the sent requests.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{CustomResourceExt, ResourceExt};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use steadfast::{Connection, InformerFactory};
use steadfast_apiserver::{ApiServer, RequestRecord};
use steadfast_testing::TestkitError;
use steadfast_testing::sweep::{Fixture, Report, Sweep};

use super::ExampleResult;
use super::http::Metrics;
use super::operate::operate;
use super::site::{Site, SiteSpec};

const MANIFESTS: [(&str, &str); 3] = [
    ("crd.yaml", include_str!("manifests/crd.yaml")),
    ("rbac.yaml", include_str!("manifests/rbac.yaml")),
    ("workload.yaml", include_str!("manifests/workload.yaml")),
];

/// Namespace of the operator in a run. The sites are in another namespace.
const HOME: &str = "default";

/// Requests that may be absent from all runs. The operator reads a site again only if another client wrote the site
/// before the operator added its finalizer. The recorder patches only repeated events, and here each event names a
/// different page.
const OPTIONAL_REQUESTS: [(&str, &str, &str); 2] =
    [("shop.example", "sites", "get"), ("events.k8s.io", "events", "patch")];

/// Runs one process of the operator.
async fn process(connection: Connection) -> ExampleResult {
    operate(&InformerFactory::new(&connection), &Metrics::default(), pending()).await
}

/// Creates a site, deletes one page while the site grows, shrinks the site, and deletes the site.
async fn scenario(fixture: Fixture) -> Result<(), TestkitError> {
    let sites = Api::<Site>::namespaced(fixture.client(), "shops");
    let pages = Api::<ConfigMap>::namespaced(fixture.client(), "shops");
    let resize = |pages: usize| Patch::Merge(json!({ "spec": { "pages": pages } }));
    sites.create(&PostParams::default(), &Site::new("shop", SiteSpec { pages: 3 })).await?;
    sites.create(&PostParams::default(), &Site::new("stays", SiteSpec { pages: 1 })).await?;
    fixture.settle().await?;
    if let Some(page) = pages.list(&ListParams::default()).await?.items.first() {
        pages.delete(&page.name_any(), &DeleteParams::default()).await?;
    }
    sites.patch("shop", &PatchParams::default(), &resize(5)).await?;
    fixture.settle().await?;
    sites.patch("shop", &PatchParams::default(), &resize(2)).await?;
    fixture.settle().await?;
    sites.delete("shop", &DeleteParams::default()).await?;
    fixture.settle().await
}

/// Request of the operator in the terms of authorization.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    group: String,
    /// Resource with the subresource, if any.
    resource: String,
    verb: &'static str,
    namespace: Option<String>,
    name: Option<String>,
}

impl Request {
    /// Converts a request. `None` for a request without a resource, such as the server's version, which needs no
    /// permission.
    fn of(record: &RequestRecord) -> Option<Self> {
        let resource = record.resource.as_ref()?;
        let after = if resource.group().is_empty() { 3 } else { 4 };
        let mut rest: Vec<_> = record.path.split('/').skip(after).map(str::to_owned).collect();
        let namespace = (rest.first().is_some_and(|first| first == "namespaces") && rest.len() > 2).then(|| {
            rest.remove(0);
            rest.remove(0)
        });
        let name = (rest.len() > 1).then(|| rest.remove(1));
        let (group, resource) = (resource.group().to_owned(), rest.join("/"));
        Some(Self { group, resource, verb: record.verb.as_str(), namespace, name })
    }
}

/// Report of a sweep, and the requests of the operator in all runs.
static SWEEP: LazyLock<Result<(Report, BTreeSet<Request>), String>> = LazyLock::new(|| {
    let requested = Arc::new(Mutex::new(BTreeSet::new()));
    let all = requested.clone();
    let note = move |server: &ApiServer| {
        // The operator uses the first replica, and the scenario the other one.
        let requests = server.requests();
        let requests = requests.iter().filter(|record| record.replica == 0).filter_map(Request::of);
        all.lock().extend(requests);
        Ok(())
    };
    let define = |server: &ApiServer| {
        server.create(&Site::crd())?;
        server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shops" } }))?;
        Ok(())
    };
    // After 30 s without a write, the operator counts as finished. Without a fault, it never waits that long.
    let sweep = Sweep::new(process, scenario).repeats(2).quiet(Duration::from_secs(30)).prepare(define);
    let sweep = sweep.invariant("requests are recorded", note);
    let report = sweep.run().map_err(|error| error.to_string())?;
    Ok((report, std::mem::take(&mut *requested.lock())))
});

/// The final state is the same after any disconnect, loss, delay or kill.
#[test]
fn sweep_of_operator_finds_nothing() -> Result<(), TestkitError> {
    let (report, _) = SWEEP.as_ref().map_err(String::as_str)?;
    println!("{report}");
    report.check()
}

#[derive(Deserialize)]
struct Manifest {
    kind: String,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

/// One verb that a rule allows for one resource.
#[derive(Debug)]
struct Right {
    is_everywhere: bool,
    group: String,
    resource: String,
    names: Vec<String>,
    verb: String,
}

impl Right {
    fn allows(&self, request: &Request) -> bool {
        (&*self.group, &*self.resource, &*self.verb) == (&*request.group, &*request.resource, request.verb)
            && (self.names.is_empty() || request.name.as_ref().is_some_and(|name| self.names.contains(name)))
            && (self.is_everywhere || request.namespace.as_deref() == Some(HOME))
    }

    /// Returns `true` if the right is the most specific one for the request.
    fn is_for(&self, request: &Request) -> bool {
        self.allows(request) && self.is_everywhere == (request.namespace.as_deref() != Some(HOME))
    }
}

fn rights(rbac: &str) -> Result<Vec<Right>, serde_saphyr::Error> {
    let mut rights = Vec::new();
    let manifests: Vec<Manifest> = serde_saphyr::from_multiple(rbac)?;
    for manifest in manifests {
        let is_everywhere = manifest.kind == "ClusterRole";
        for Rule { api_groups, resources, resource_names, verbs } in manifest.rules {
            for group in &api_groups {
                for resource in &resources {
                    rights.extend(verbs.iter().map(|verb| Right {
                        is_everywhere,
                        group: group.clone(),
                        resource: resource.clone(),
                        names: resource_names.clone(),
                        verb: verb.clone(),
                    }));
                }
            }
        }
    }
    Ok(rights)
}

/// Returns the requests that `rbac` does not allow, and the rights in `rbac` that no request needs.
fn missing_and_unused_rights(
    rbac: &str,
    requested: &BTreeSet<Request>,
) -> Result<(Vec<String>, Vec<String>), TestkitError> {
    let rights = rights(rbac).map_err(|error| error.to_string())?;
    let missing = requested.iter().filter(|request| !rights.iter().any(|right| right.allows(request)));
    let unused = rights.iter().filter(|right| {
        let is_optional = OPTIONAL_REQUESTS.contains(&(&*right.group, &*right.resource, &*right.verb));
        !is_optional && !requested.iter().any(|request| right.is_for(request))
    });
    let unused = unused.map(|right| format!("{} {}.{}", right.verb, right.resource, right.group));
    Ok((missing.map(|request| format!("{request:?}")).collect(), unused.collect()))
}

#[test]
fn role_allows_exactly_the_sent_requests() -> ExampleResult {
    let (_, requested) = SWEEP.as_ref().map_err(String::as_str)?;
    let rbac = MANIFESTS[1].1;
    assert_eq!(missing_and_unused_rights(rbac, requested)?, (vec![], vec![]));

    let (missing, unused) =
        missing_and_unused_rights(&rbac.replace("[create, delete]", "[create, update]"), requested)?;
    assert!(missing.iter().all(|request| request.contains("\"delete\"")) && !missing.is_empty(), "{missing:#?}");
    assert_eq!(unused, ["update configmaps."]);
    // The lease is in the operator's own namespace, so no right in other namespaces is needed.
    let (missing, unused) = missing_and_unused_rights(&rbac.replace("kind: Role\n", "kind: ClusterRole\n"), requested)?;
    assert!(missing.is_empty(), "{missing:#?}");
    assert_eq!(
        unused,
        ["get leases.coordination.k8s.io", "update leases.coordination.k8s.io", "create leases.coordination.k8s.io"]
    );
    Ok(())
}

/// With `STEADFAST_REWRITE=1`, the test rewrites the file.
#[test]
fn manifest_definition_matches_the_type() -> ExampleResult {
    let (file, written) = MANIFESTS[0];
    let generated = format!(
        "# Made from `Site` by its test, with STEADFAST_REWRITE=1.\n{}",
        serde_saphyr::to_string(&Site::crd())?
    );
    if std::env::var_os("STEADFAST_REWRITE").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("operator/manifests").join(file), generated)?;
        return Ok(());
    }
    assert_eq!(generated, written, "{file} does not match the type: run with STEADFAST_REWRITE=1 to rewrite it");
    Ok(())
}

/// The server accepts all manifests in the order of their names, as `kubectl apply -f manifests/` sends them.
#[tokio::test]
async fn manifests_apply_in_order() -> ExampleResult {
    let server = ApiServer::start().await?;
    let mut kinds = Vec::new();
    for (file, text) in MANIFESTS {
        for manifest in serde_saphyr::from_multiple::<serde_json::Value>(text)? {
            let created = server.create(&manifest).map_err(|status| format!("{file}: {status:?}"))?;
            kinds.push(created["kind"].as_str().unwrap_or_default().to_owned());
        }
    }
    let all =
        "CustomResourceDefinition Namespace ServiceAccount ClusterRole ClusterRoleBinding Role RoleBinding Deployment";
    assert_eq!(kinds.join(" "), all);
    Ok(())
}
