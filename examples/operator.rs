//! An operator: a custom resource, children that it owns, a status, a finalizer, events, one leader:
//! `cargo run -p steadfast-examples --bin operator`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use steadfast::{Connection, Informer, InformerFactory, NotSynced, Object, ObjectKey, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_controller::{
    Action, Controller, EventDraft, EventRecorder, FinalizerError, Finalizing, LeaderElection, back_off, finalizer,
};

const SOON: Duration = Duration::from_secs(30);

/// Why a call has failed.
#[derive(Debug)]
enum Failure {
    Request(kube::Error),
    /// Where nothing is known, nothing is done.
    Cache(NotSynced),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Cache(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Request(error)
    }
}

impl From<NotSynced> for Failure {
    fn from(error: NotSynced) -> Self {
        Self::Cache(error)
    }
}

/// A site with so many pages, each a config map under a name that the server chooses.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "shop.example", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
struct SiteSpec {
    pages: usize,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
struct SiteStatus {
    ready: usize,
}

struct Context {
    client: Client,
    pages: Informer<ConfigMap>,
    events: EventRecorder,
}

impl Context {
    fn api<K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>>(&self, site: &Site) -> Api<K> {
        Api::namespaced(self.client.clone(), &site.namespace().unwrap_or_default())
    }

    /// The pages that the cache has of a site: all that were made, for no call sees a cache that lacks what the last one wrote.
    fn pages_of(&self, site: &Site) -> Result<Vec<Object<ConfigMap>>, NotSynced> {
        let pages = self.pages.lister()?.namespace(&site.namespace().unwrap_or_default());
        let is_own = |page: &Object<ConfigMap>| {
            page.owner_references().iter().any(|owner| Some(&owner.uid) == site.metadata.uid.as_ref())
        };
        Ok(pages.into_iter().filter(is_own).collect())
    }
}

async fn reconcile(site: Arc<Site>, context: Arc<Context>) -> Result<Action, FinalizerError<Failure>> {
    let sites = context.api::<Site>(&site);
    finalizer(&sites, "shop.example/pages", site, |event| async {
        match event {
            Finalizing::Apply(site) => keep(&site, &context).await,
            Finalizing::Cleanup(site) => take_away(&site, 0, &context).await,
        }
    })
    .await
}

/// Makes the pages that are missing, takes away those that are too many, and writes the status.
async fn keep(site: &Site, context: &Context) -> Result<Action, Failure> {
    let ready = context.pages_of(site)?.len();
    for _ in ready..site.spec.pages {
        let mut page = ConfigMap::default();
        page.metadata.generate_name = Some(format!("{}-", site.name_any()));
        page.metadata.owner_references = site.controller_owner_ref(&()).map(|owner| vec![owner]);
        let page = context.api::<ConfigMap>(site).create(&PostParams::default(), &page).await?;
        let made = EventDraft::normal("PageMade", "Reconcile").note(format!("made {}", page.name_any()));
        context.events.publish(site, made);
    }
    take_away(site, site.spec.pages, context).await?;
    let status = SiteStatus { ready };
    if site.status.as_ref() != Some(&status) {
        let patch = Patch::Merge(json!({ "status": status }));
        context.api::<Site>(site).patch_status(&site.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(Action::await_change())
}

/// Takes away all pages but so many.
async fn take_away(site: &Site, kept: usize, context: &Context) -> Result<Action, Failure> {
    for page in context.pages_of(site)?.iter().skip(kept) {
        match context.api::<ConfigMap>(site).delete(&page.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            done => drop(done?),
        }
    }
    Ok(Action::await_change())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // A cluster for this example alone. In a program of yours: `let connection = Connection::infer().await?;`
    let server = ApiServer::start().await?;
    let connection = steadfast_testing::connection(&server).await?;
    let informers = InformerFactory::new(&connection);
    define(&connection.client(), &informers).await?;

    let sites = informers.informer::<Site>(Scope::all())?;

    let (done, is_done) = tokio::sync::oneshot::channel::<()>();
    // In a program of yours this is a signal.
    let until_done = async { drop(is_done.await) };
    let used = async {
        let used = use_it(connection.client(), &sites).await;
        drop(done);
        used
    };
    tokio::try_join!(operate(connection.clone(), until_done), used)?;
    informers.shutdown();
    Ok(())
}

/// The operator itself, while it leads and until it is stopped.
async fn operate(
    connection: Connection,
    stopped: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let informers = InformerFactory::new(&connection);
    // Caches fill while another one leads.
    let (_sites, pages) = (informers.informer::<Site>(Scope::all())?, informers.informer(Scope::all())?);
    let election = LeaderElection::builder(&connection, "default", "site-operator").build()?;
    let leader = election.until_leader().await.ok_or("the election was stopped")?;
    let events = EventRecorder::new(&connection, "shop.example/site-operator")?;
    // What this client sends is sent while the lease holds, or not at all.
    let context = Context { client: leader.client(), pages, events: events.clone() };
    let controller = Controller::<Site>::new(&informers, Scope::all())
        .owns::<ConfigMap>(Scope::all())
        .reads(&context.pages)
        .run(reconcile, back_off, Arc::new(context))?;
    tokio::select! {
        biased;
        // The process ends then, and begins anew as a candidate.
        () = leader.lost() => return Err("another one leads".into()),
        () = stopped => {}
    }
    let left = controller.stop(SOON).await;
    assert_eq!((left.cancelled, left.stuck), (0, 0));
    events.stop(SOON).await?;
    election.stop().await;
    informers.shutdown();
    Ok(())
}

/// What somebody does with it.
async fn use_it(client: Client, sites: &Informer<Site>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let api = Api::<Site>::namespaced(client.clone(), "default");
    api.create(&PostParams::default(), &Site::new("shop", SiteSpec { pages: 3 })).await?;
    let shop = ObjectKey::namespaced("default", "shop");
    let has = |ready: usize| {
        move |site: Option<&Site>| {
            site.and_then(|site| site.status.as_ref()).is_some_and(|status| status.ready == ready)
        }
    };
    sites.until_object(&shop, has(3), SOON).await?;
    println!("three pages are there");

    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let first = maps.list(&ListParams::default()).await?.items.into_iter().next().ok_or("there is a page")?;
    maps.delete(&first.name_any(), &DeleteParams::default()).await?;
    api.patch("shop", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "pages": 5 } }))).await?;
    sites.until_object(&shop, has(5), SOON).await?;
    println!("one that was lost is replaced, and there are five");

    api.delete("shop", &DeleteParams::default()).await?;
    sites.until_object(&shop, |site| site.is_none(), SOON).await?;
    assert_eq!(maps.list(&ListParams::default()).await?.items.len(), 0, "no page is left behind");
    println!("the site is gone, and its pages were before it");
    Ok(())
}

/// Has the resource defined, and waits until it is there.
async fn define(client: &Client, informers: &InformerFactory) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let definitions = informers.informer::<CustomResourceDefinition>(Scope::all())?;
    definitions.wait_for_sync(SOON).await?;
    Api::all(client.clone()).create(&PostParams::default(), &Site::crd()).await?;
    let established = |definition: Option<&CustomResourceDefinition>| {
        let conditions = definition.and_then(|definition| definition.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Established" && one.status == "True"))
    };
    definitions.until_object(&ObjectKey::cluster(Site::crd_name()), established, SOON).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use steadfast_testing::Error;
    use steadfast_testing::sweep::{Stage, Sweep};

    use super::*;

    /// A site comes, loses a page while it grows, shrinks and goes.
    async fn scenario(stage: Stage) -> Result<(), Error> {
        let sites = Api::<Site>::namespaced(stage.client(), "default");
        let pages = Api::<ConfigMap>::namespaced(stage.client(), "default");
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

    /// Whatever is cut, lost, late or killed, wherever it is: the end is the same.
    #[test]
    fn nothing_that_is_disturbed_changes_where_the_operator_ends() -> Result<(), Error> {
        let sweep = Sweep::new(|connection| operate(connection, pending()), scenario);
        let define = |server: &ApiServer| {
            server.create(&Site::crd())?;
            Ok(())
        };
        let report = sweep.alike(2).prepare(define).run()?;
        println!("{report}");
        report.check()
    }
}
