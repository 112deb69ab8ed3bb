//! The operator disturbed at each of its requests: it ends alike, and never wants more than its manifests allow.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{CustomResourceExt, ResourceExt};
use serde::Deserialize;
use serde_json::json;
use steadfast::{Connection, InformerFactory};
use steadfast_apiserver::{ApiServer, RequestRecord};
use steadfast_testing::Error;
use steadfast_testing::sweep::{Report, Stage, Sweep};

use super::Ended;
use super::operate::operate;
use super::outside::Metrics;
use super::site::{Site, SiteSpec};

const MANIFESTS: [(&str, &str); 3] = [
    ("crd.yaml", include_str!("manifests/crd.yaml")),
    ("rbac.yaml", include_str!("manifests/rbac.yaml")),
    ("workload.yaml", include_str!("manifests/workload.yaml")),
];

/// Where the operator itself runs in a play; sites are elsewhere.
const HOME: &str = "default";

/// What no play need make it do. A site is read again where somebody has written it between the operator's look and its
/// finalizer; an event that is the same once more is counted by a patch, and here each names another page.
const BESIDE: [(&str, &str, &str); 2] = [("shop.example", "sites", "get"), ("events.k8s.io", "events", "patch")];

/// One process of the operator.
async fn process(connection: Connection) -> Ended {
    operate(&InformerFactory::new(&connection), &Metrics::default(), pending()).await
}

/// A site comes, loses a page while it grows, shrinks and goes.
async fn scenario(stage: Stage) -> Result<(), Error> {
    let sites = Api::<Site>::namespaced(stage.client(), "shops");
    let pages = Api::<ConfigMap>::namespaced(stage.client(), "shops");
    let resize = |pages: usize| Patch::Merge(json!({ "spec": { "pages": pages } }));
    sites.create(&PostParams::default(), &Site::new("shop", SiteSpec { pages: 3 })).await?;
    sites.create(&PostParams::default(), &Site::new("stays", SiteSpec { pages: 1 })).await?;
    stage.settle().await?;
    if let Some(page) = pages.list(&ListParams::default()).await?.items.first() {
        pages.delete(&page.name_any(), &DeleteParams::default()).await?;
    }
    sites.patch("shop", &PatchParams::default(), &resize(5)).await?;
    stage.settle().await?;
    sites.patch("shop", &PatchParams::default(), &resize(2)).await?;
    stage.settle().await?;
    sites.delete("shop", &DeleteParams::default()).await?;
    stage.settle().await
}

/// What the operator asked for, as authorization sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    group: String,
    /// With the subresource, if there is one.
    resource: String,
    verb: &'static str,
    namespace: Option<String>,
    name: Option<String>,
}

impl Request {
    /// Of what is about no resource, as the server's version, nothing is to be allowed.
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

/// The report of a sweep, and what the operator asked for in any of its plays.
static SWEPT: LazyLock<Result<(Report, BTreeSet<Request>), String>> = LazyLock::new(|| {
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let all = asked.clone();
    let note = move |server: &ApiServer| {
        // The first replica is the operator's, the other one that of the scenario.
        let requests = server.requests();
        let requests = requests.iter().filter(|record| record.replica == 0).filter_map(Request::of);
        all.lock().unwrap_or_else(PoisonError::into_inner).extend(requests);
        Ok(())
    };
    let define = |server: &ApiServer| {
        server.create(&Site::crd())?;
        server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shops" } }))?;
        Ok(())
    };
    // Half a minute is longer than it ever waits, once nothing is disturbed any more.
    let sweep = Sweep::new(process, scenario).alike(2).quiet(Duration::from_secs(30)).prepare(define);
    let sweep = sweep.invariant("it is noted what was asked for", note);
    let report = sweep.run().map_err(|error| error.to_string())?;
    Ok((report, std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner))))
});

/// Whatever is cut, lost, late or killed, wherever it is: the end is the same.
#[test]
fn nothing_that_is_disturbed_changes_where_the_operator_ends() -> Result<(), Error> {
    let (report, _) = SWEPT.as_ref().map_err(String::as_str)?;
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

    /// Whether nothing less would do for it.
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

/// What `rbac` does not allow of what was asked for, and what it allows besides.
fn too_few_and_too_many(rbac: &str, asked: &BTreeSet<Request>) -> Result<(Vec<String>, Vec<String>), Error> {
    let rights = rights(rbac).map_err(|error| error.to_string())?;
    let missing = asked.iter().filter(|request| !rights.iter().any(|right| right.allows(request)));
    let idle = rights.iter().filter(|right| {
        let is_beside = BESIDE.contains(&(&*right.group, &*right.resource, &*right.verb));
        !is_beside && !asked.iter().any(|request| right.is_for(request))
    });
    let idle = idle.map(|right| format!("{} {}.{}", right.verb, right.resource, right.group));
    Ok((missing.map(|request| format!("{request:?}")).collect(), idle.collect()))
}

#[test]
fn the_role_allows_what_the_operator_asks_for_and_nothing_else() -> Ended {
    let (_, asked) = SWEPT.as_ref().map_err(String::as_str)?;
    let rbac = MANIFESTS[1].1;
    assert_eq!(too_few_and_too_many(rbac, asked)?, (vec![], vec![]));

    let (missing, idle) = too_few_and_too_many(&rbac.replace("[create, delete]", "[create, update]"), asked)?;
    assert!(missing.iter().all(|request| request.contains("\"delete\"")) && !missing.is_empty(), "{missing:#?}");
    assert_eq!(idle, ["update configmaps."]);
    // For the lease of the namespace it runs in, it needs no right elsewhere.
    let (missing, idle) = too_few_and_too_many(&rbac.replace("kind: Role\n", "kind: ClusterRole\n"), asked)?;
    assert!(missing.is_empty(), "{missing:#?}");
    assert_eq!(
        idle,
        ["get leases.coordination.k8s.io", "update leases.coordination.k8s.io", "create leases.coordination.k8s.io"]
    );
    Ok(())
}

/// `STEADFAST_REWRITE=1` writes it anew.
#[test]
fn the_definition_in_the_manifests_is_that_of_the_type() -> Ended {
    let (file, written) = MANIFESTS[0];
    let made = format!(
        "# Made from `Site` by its test, with STEADFAST_REWRITE=1.\n{}",
        serde_saphyr::to_string(&Site::crd())?
    );
    if std::env::var_os("STEADFAST_REWRITE").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("operator/manifests").join(file), made)?;
        return Ok(());
    }
    assert_eq!(made, written, "{file} is not what the type is: STEADFAST_REWRITE=1 writes it anew");
    Ok(())
}

/// A server takes all of them in the order of their names, as `kubectl apply -f manifests/` sends them.
#[tokio::test]
async fn the_manifests_can_be_applied() -> Ended {
    let server = ApiServer::start().await?;
    let mut kinds = Vec::new();
    for (file, text) in MANIFESTS {
        for manifest in serde_saphyr::from_multiple::<serde_json::Value>(text)? {
            let made = server.create(&manifest).map_err(|status| format!("{file}: {status:?}"))?;
            kinds.push(made["kind"].as_str().unwrap_or_default().to_owned());
        }
    }
    let all =
        "CustomResourceDefinition Namespace ServiceAccount ClusterRole ClusterRoleBinding Role RoleBinding Deployment";
    assert_eq!(kinds.join(" "), all);
    Ok(())
}
