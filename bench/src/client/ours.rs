//! Steadfast.

use std::collections::BTreeSet;

use kube::{Resource, ResourceExt};
use serde::Serialize;
use steadfast::{Connection, Event, Informer, InformerFactory, Kept, Lister, Registration, Scope};
use tokio::time::timeout;

use super::cache::{Cache, Node};
use super::progress::Progress;
use super::request::{ClientArgs, PATIENCE};
use crate::Trouble;
use crate::checksum::Checksum;

struct Ours<K> {
    lister: Lister<K>,
    _informer: Informer<K>,
    _registration: Registration<K>,
    _factory: InformerFactory,
}

/// An informer with one handler that has been told everything there is.
pub(super) async fn start<K>(
    config: kube::Config,
    kind: &K::DynamicType,
    args: &ClientArgs,
    progress: &Progress,
) -> Result<impl Cache + use<K>, Trouble>
where
    K: Kept + Resource + Serialize + Node,
{
    let connection = Connection::new(config)?;
    let factory = InformerFactory::new(&connection);
    let informer = factory.build_with::<K>(kind, Scope::all()).streamed_lists(!args.paged).start()?;
    let seen = progress.clone();
    let registration = informer.on_event(move |event| match event {
        Event::Added { object, .. } => seen.see(&*object),
        Event::Updated { new, .. } => seen.see(&*new),
        Event::Deleted { .. } | Event::Resynced { .. } => {}
    })?;
    timeout(PATIENCE, registration.until_synced()).await?;
    Ok(Ours { lister: informer.lister()?, _informer: informer, _registration: registration, _factory: factory })
}

impl<K: Kept + Resource + Serialize + Node> Cache for Ours<K> {
    fn len(&self) -> usize {
        self.lister.len()
    }

    fn keys(&self) -> Vec<(String, String)> {
        self.lister.all().iter().map(|object| (object.namespace().unwrap_or_default(), object.name_any())).collect()
    }

    fn has(&self, namespace: &str, name: &str) -> bool {
        self.lister.get(namespace, name).is_ok_and(|object| object.is_some())
    }

    fn list(&self, namespace: &str) -> usize {
        self.lister.namespace(namespace).len()
    }

    fn checksum(&self) -> Result<Checksum, serde_json::Error> {
        let mut checksum = Checksum::default();
        self.lister.all().iter().try_for_each(|object| checksum.add(&**object))?;
        Ok(checksum)
    }

    fn nodes(&self) -> usize {
        self.lister.all().iter().filter_map(|object| object.node().map(str::to_owned)).collect::<BTreeSet<_>>().len()
    }
}
