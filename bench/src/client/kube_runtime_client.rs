//! The client of kube-runtime.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;

use futures::StreamExt;
use kube::api::Api;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::cache::{ClientCache, HasNodeName};
use super::progress::{Progress, SENT_ANNOTATION};
use super::request::{ClientArgs, SYNC_TIMEOUT};
use crate::BenchError;
use crate::checksum::Checksum;

struct KubeRuntimeClient<K: Resource + 'static>
where
    K::DynamicType: Hash + Eq,
{
    store: Store<K>,
    dynamic_type: K::DynamicType,
}

/// Starts a reflector over a watcher, and waits until a loop over its events has received all objects.
pub(super) async fn start<K>(
    config: kube::Config,
    dynamic_type: K::DynamicType,
    args: &ClientArgs,
    progress: &Progress,
) -> Result<impl ClientCache + use<K>, BenchError>
where
    K: Resource + Clone + Serialize + DeserializeOwned + Debug + Send + Sync + HasNodeName + 'static,
    K::DynamicType: Hash + Eq + Clone + Send + Sync,
{
    let api = Api::<K>::all_with(Client::try_from(config)?, &dynamic_type);
    let config = watcher::Config::default();
    // The default of the watcher is paged lists.
    let config = if args.paged { config } else { config.streaming_lists() };
    let writer = reflector::store::Writer::new(dynamic_type.clone());
    let store = writer.as_reader();
    let (handler_progress, trim) = (progress.clone(), args.trim);
    // Without the default backoff, the watcher would retry immediately after an error.
    let events = watcher(api, config).default_backoff().modify(move |object| {
        if trim {
            object.managed_fields_mut().clear();
        }
    });
    tokio::spawn(reflector::reflector(writer, events).for_each(move |event| {
        if let Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event {
            handler_progress.record(&object.resource_version().unwrap_or_default(), || {
                object.annotations().get(SENT_ANNOTATION)?.parse().ok()
            });
        }
        std::future::ready(())
    }));
    timeout(SYNC_TIMEOUT, store.wait_until_ready()).await??;
    Ok(KubeRuntimeClient { store, dynamic_type })
}

impl<K: Resource> KubeRuntimeClient<K>
where
    K::DynamicType: Hash + Eq + Clone,
{
    fn key(&self, namespace: &str, name: &str) -> ObjectRef<K> {
        ObjectRef::new_with(name, self.dynamic_type.clone()).within(namespace)
    }
}

impl<K> ClientCache for KubeRuntimeClient<K>
where
    K: Resource + Clone + Serialize + HasNodeName,
    K::DynamicType: Hash + Eq + Clone,
{
    fn len(&self) -> usize {
        self.store.len()
    }

    fn names(&self) -> Vec<(String, String)> {
        let objects = self.store.state();
        let mut names: Vec<_> =
            objects.iter().map(|object| (object.namespace().unwrap_or_default(), object.name_any())).collect();
        names.sort();
        names
    }

    fn has(&self, namespace: &str, name: &str) -> bool {
        self.store.get(&self.key(namespace, name)).is_some()
    }

    fn prepared_lookup(&self) -> Box<dyn Fn(usize) -> bool + '_> {
        let keys: Vec<_> = self.names().iter().map(|(namespace, name)| self.key(namespace, name)).collect();
        Box::new(move |index| self.store.get(&keys[index]).is_some())
    }

    fn prepared_node_lookup(&self) -> Box<dyn Fn(usize) -> bool + '_> {
        let keys: Vec<_> = self.names().iter().map(|(namespace, name)| self.key(namespace, name)).collect();
        Box::new(move |index| self.store.get(&keys[index]).is_some_and(|object| object.node().is_some()))
    }

    fn namespace_len(&self, namespace: &str) -> usize {
        // The store has no index, so users filter all objects.
        let objects = self.store.state();
        let in_namespace = objects.into_iter().filter(|object| object.meta().namespace.as_deref() == Some(namespace));
        in_namespace.collect::<Vec<_>>().len()
    }

    fn checksum(&self) -> Result<Checksum, BenchError> {
        let mut checksum = Checksum::default();
        self.store.state().iter().try_for_each(|object| checksum.add(&**object))?;
        Ok(checksum)
    }

    fn distinct_nodes(&self) -> usize {
        let objects = self.store.state();
        objects.iter().filter_map(|object| object.node().map(str::to_owned)).collect::<BTreeSet<_>>().len()
    }
}
