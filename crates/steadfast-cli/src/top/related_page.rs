//! Page of the related objects: the tree of owners and children of an opened object with their readiness, as
//! `steadfast watch --related` prints it. The tree is drawn again when an object changes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::core::ApiResource;
use steadfast::unstable::catalog::{Catalog, ServedResource};
use steadfast::{Call, Event, Handler, Informer, InformerFactory, Registration, Scope};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::details::PageLine;
use super::opening::Opener;
use super::pages::{PageSender, PageTask, PageUpdate, failure};
use super::row::RowKey;
use crate::changes::columns::Column;
use crate::changes::kind::Kind;
use crate::changes::phrases::{HealthEffect, Phrase};
use crate::changes::state::state;
use crate::failure::Failure;
use crate::watch::related::{RELATED_RESOURCES, Related, Root};
use crate::watch::watched::{CachedObject, MAX_PENDING_EVENTS, compressed_informer, decode_object};

/// Minimum time between two trees.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum time between two checks of the freshness of the caches.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The opened object.
pub(super) struct OpenedObject {
    /// Resource with its group: `deployments.apps`.
    pub(super) resource: String,
    pub(super) key: RowKey,
    /// Printer columns of a custom resource.
    pub(super) columns: Vec<Column>,
}

/// Starts the page.
pub(super) fn load_related(opener: Opener, object: OpenedObject, sender: PageSender) -> PageTask {
    PageTask::spawn(async move {
        if object.key.namespace().is_empty() {
            sender.send(failure("the tree shows objects of a namespace, and this object has none")).await;
            return;
        }
        let factory = InformerFactory::new(&opener.connection);
        let root = Root { resource: object.resource.clone(), name: object.key.name().to_owned() };
        let (related, changed) = (Related::new(vec![root], usize::MAX), Arc::new(Notify::new()));
        let mut informers = Vec::new();
        for resource in resources(&opener.catalog, &object.resource) {
            let columns = if resource.to_string() == object.resource { object.columns.clone() } else { Vec::new() };
            match RelatedInformer::start(&factory, &resource, &object.key, columns, &related, &changed) {
                Ok(informer) => informers.push(informer),
                Err(error) => {
                    sender.send(failure(&format!("{resource} cannot be watched: {error}"))).await;
                    return;
                }
            }
        }
        let mut sent = Vec::new();
        loop {
            let lines = page(&informers, &related).await;
            if lines != sent {
                sent.clone_from(&lines);
                if !sender.send(PageUpdate::Replace(lines)).await {
                    return;
                }
            }
            // Freshness changes without a notification, so the page is also updated at an interval.
            let _ = timeout(MAX_INTERVAL, changed.notified()).await;
            sleep(MIN_INTERVAL).await;
        }
    })
}

/// Returns the resources in which relatives are searched, each once. Events have a page of their own.
fn resources(catalog: &Catalog, own: &str) -> Vec<ServedResource> {
    let names = [own].into_iter().chain(RELATED_RESOURCES).filter(|name| *name != "events");
    let mut known = HashSet::new();
    names.filter_map(|name| catalog.find(name).ok()).filter(|resource| known.insert(resource.to_string())).collect()
}

/// Informer of one resource in the namespace of the opened object.
struct RelatedInformer {
    name: String,
    informer: Informer<CachedObject>,
    /// The handler is removed when the registration is dropped.
    _registration: Registration<CachedObject>,
}

impl RelatedInformer {
    fn start(
        factory: &InformerFactory,
        resource: &ServedResource,
        key: &RowKey,
        columns: Vec<Column>,
        related: &Related,
        changed: &Arc<Notify>,
    ) -> Result<Self, Failure> {
        let scope = if resource.namespaced { Scope::namespace(key.namespace()) } else { Scope::all() };
        let informer = compressed_informer(factory, &resource.api_resource, scope).start().map_err(Failure::usage)?;
        let handler = RelatedHandler {
            name: resource.to_string(),
            kind: Kind::new(&resource.api_resource.group, &resource.api_resource.kind),
            api_resource: resource.api_resource.clone(),
            columns,
            related: related.clone(),
            changed: Arc::clone(changed),
        };
        let registration = informer.handler().deliver_each(MAX_PENDING_EVENTS).add_handler(handler);
        Ok(Self { name: resource.to_string(), informer, _registration: registration.map_err(Failure::run)? })
    }
}

/// Handler that records the objects of one resource.
struct RelatedHandler {
    name: String,
    kind: Kind,
    api_resource: ApiResource,
    columns: Vec<Column>,
    related: Related,
    changed: Arc<Notify>,
}

impl Handler<CachedObject> for RelatedHandler {
    fn handle(&self, event: Event<CachedObject>, _call: Call) {
        if matches!(event, Event::Resynced { .. }) {
            return;
        }
        let object = decode_object(&self.api_resource, event.object());
        let state = state(&self.kind, &self.columns, &object);
        // `record` also returns whether `watch` prints a line for the object. The page shows only the tree.
        let _ = self.related.record(&self.name, &object, state, matches!(event, Event::Deleted { .. }));
        self.changed.notify_one();
    }
}

/// Returns the lines of the page: caches in doubt first, then the tree.
async fn page(watched: &[RelatedInformer], related: &Related) -> Vec<PageLine> {
    let doubts = watched.iter().filter_map(|watched| {
        let freshness = watched.informer.freshness();
        let is_in_doubt = freshness.doubt().is_some();
        is_in_doubt.then(|| PageLine::with_effect(HealthEffect::Degraded, &format!("{}: {freshness}", watched.name)))
    });
    let mut lines: Vec<PageLine> = doubts.collect();
    // The tree of a large namespace takes longer than a task may keep its thread.
    let related = related.clone();
    let tree = tokio::task::spawn_blocking(move || related.tree()).await.unwrap_or_default();
    lines.extend(tree.into_iter().map(tree_line));
    lines
}

/// Returns a line of the tree, whose text is escaped already.
fn tree_line(text: String) -> PageLine {
    let effect = if text.trim_start_matches(['├', '└', '│', '─', ' ']).starts_with(['✗', '?']) {
        HealthEffect::Degraded
    } else {
        HealthEffect::Neutral
    };
    PageLine { time: None, parts: vec![Phrase { text, effect }] }
}
