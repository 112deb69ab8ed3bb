//! The custom resource, and the reconciliation of its objects.

use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use steadfast::{Informer, NotSynced, Object};
use steadfast_controller::{Action, EventDraft, EventRecorder, FinalizerError, Finalizing, finalizer};

/// Site with a number of pages, each a config map with a generated name.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "shop.example", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
pub(crate) struct SiteSpec {
    pub(crate) pages: usize,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub(crate) struct SiteStatus {
    pub(crate) ready: usize,
}

/// Error of a reconcile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Request(#[from] kube::Error),
    /// Without a synced cache, the reconcile does nothing.
    #[error(transparent)]
    Cache(#[from] NotSynced),
}

/// Shared state of the reconciles.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) pages: Informer<ConfigMap>,
    pub(crate) events: EventRecorder,
}

impl Context {
    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self, site: &Site) -> Api<K> {
        Api::namespaced(self.client.clone(), &site.namespace().unwrap_or_default())
    }

    /// Returns the cached pages of a site. The list is complete, because no reconcile runs on a cache that lacks the
    /// last reconcile's writes.
    fn pages_of(&self, site: &Site) -> Result<Vec<Object<ConfigMap>>, NotSynced> {
        let pages = self.pages.lister()?.namespace(&site.namespace().unwrap_or_default());
        let is_own = |page: &Object<ConfigMap>| {
            page.owner_references().iter().any(|owner| Some(&owner.uid) == site.metadata.uid.as_ref())
        };
        Ok(pages.into_iter().filter(is_own).collect())
    }
}

/// Reconciles `site`.
pub(crate) async fn reconcile(site: Arc<Site>, context: Arc<Context>) -> Result<Action, FinalizerError<Failure>> {
    let sites = context.api::<Site>(&site);
    finalizer(&sites, "shop.example/pages", site, |event| async {
        match event {
            Finalizing::Apply(site) => apply(&site, &context).await,
            Finalizing::Cleanup(site) => delete_surplus_pages(&site, 0, &context).await,
        }
    })
    .await
}

/// Creates missing pages, deletes surplus pages, and writes the status.
async fn apply(site: &Site, context: &Context) -> Result<Action, Failure> {
    let ready = context.pages_of(site)?.len();
    for _ in ready..site.spec.pages {
        let mut page = ConfigMap::default();
        page.metadata.generate_name = Some(format!("{}-", site.name_any()));
        page.metadata.owner_references = site.controller_owner_ref(&()).map(|owner| vec![owner]);
        let page = context.api::<ConfigMap>(site).create(&PostParams::default(), &page).await?;
        let created = EventDraft::normal("PageCreated", "Reconcile").note(format!("created {}", page.name_any()));
        context.events.publish(site, created);
    }
    delete_surplus_pages(site, site.spec.pages, context).await?;
    let status = SiteStatus { ready };
    if site.status.as_ref() != Some(&status) {
        let patch = Patch::Merge(json!({ "status": status }));
        context.api::<Site>(site).patch_status(&site.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(Action::await_change())
}

/// Deletes all pages beyond `kept`.
async fn delete_surplus_pages(site: &Site, kept: usize, context: &Context) -> Result<Action, Failure> {
    for page in context.pages_of(site)?.iter().skip(kept) {
        match context.api::<ConfigMap>(site).delete(&page.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            result => drop(result?),
        }
    }
    Ok(Action::await_change())
}
