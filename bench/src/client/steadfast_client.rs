//! Benchmark client with an informer of Steadfast.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use steadfast::environment::threads::ThreadedEnvironment;
use steadfast::{
    Checkpoint, CheckpointStats, Connection, DynamicType, Event, Informer, InformerFactory, Lister, Registration, Scope,
};
use tokio::time::{Duration, sleep, timeout};

use super::cache::ClientCache;
use super::cached_form::CachedForm;
use super::output::print_response;
use super::progress::Progress;
use super::request::{ClientArgs, SYNC_TIMEOUT};
use crate::BenchError;
use crate::checksum::Checksum;

struct SteadfastClient<K> {
    lister: Lister<K>,
    _informer: Informer<K>,
    _registration: Registration<K>,
    checkpoint: Option<Checkpoint>,
    _factory: InformerFactory,
}

/// Starts an informer, and waits until its handler has received all objects.
pub(super) async fn start<K: CachedForm>(
    config: kube::Config,
    dynamic_type: &DynamicType<K>,
    args: &ClientArgs,
    progress: &Progress,
) -> Result<impl ClientCache + use<K>, BenchError> {
    let threads = ThreadedEnvironment::new()?.with_helpers(args.helpers);
    let connection = Connection::builder(config).environment(Arc::new(threads)).build()?;
    let factory = InformerFactory::new(&connection);
    let builder = factory.builder_with::<K>(dynamic_type, Scope::all()).streamed_lists(!args.paged);
    let builder = builder.protobuf(args.protobuf).delta_compressed(args.delta_compressed);
    let builder = builder.decode_on_demand_above(args.decode_on_demand_above);
    let checkpoint = args.checkpoint.as_ref().map(Checkpoint::open).transpose()?;
    let builder = match &checkpoint {
        Some(checkpoint) => K::with_checkpoint(builder, checkpoint),
        None => builder,
    };
    let informer = builder.start()?;
    // Readers have the objects of a checkpoint long before the handler has received these objects.
    if checkpoint.is_some() {
        print_response(&wait_until_readable(&informer, args.expect).await?);
    }
    let handler_progress = progress.clone();
    let registration = informer.on_event(move |event| match event {
        Event::Added { object, .. } | Event::Updated { new: object, .. } => {
            handler_progress.record(object.version().as_str(), || object.sent_nanos());
        }
        // Deletions have no sending time, so only existing objects count.
        Event::Deleted { .. } | Event::Resynced { .. } => {}
    })?;
    timeout(SYNC_TIMEOUT, registration.until_synced()).await?;
    Ok(SteadfastClient {
        lister: informer.lister()?,
        _informer: informer,
        _registration: registration,
        checkpoint,
        _factory: factory,
    })
}

/// Waits until readers have all objects, independently of handlers. Returns the response for this phase.
async fn wait_until_readable<K: CachedForm>(informer: &Informer<K>, objects: usize) -> Result<Value, BenchError> {
    timeout(SYNC_TIMEOUT, async {
        while informer.snapshot().len() < objects {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await?;
    Ok(json!({ "phase": "readable" }))
}

impl<K: CachedForm> ClientCache for SteadfastClient<K> {
    fn len(&self) -> usize {
        self.lister.len()
    }

    fn names(&self) -> Vec<(String, String)> {
        let key = |key: &steadfast::ObjectKey| (key.namespace().unwrap_or_default().to_owned(), key.name().to_owned());
        self.lister.all().iter().map(|object| key(object.key())).collect()
    }

    fn has(&self, namespace: &str, name: &str) -> bool {
        self.lister.get(namespace, name).is_ok_and(|object| object.is_some())
    }

    fn prepared_lookup(&self) -> Box<dyn Fn(usize) -> bool + '_> {
        let keys: Vec<_> = self.lister.all().iter().map(|object| object.key().clone()).collect();
        Box::new(move |index| self.lister.get_by_key(&keys[index]).is_ok_and(|object| object.is_some()))
    }

    fn prepared_node_lookup(&self) -> Box<dyn Fn(usize) -> bool + '_> {
        let keys: Vec<_> = self.lister.all().iter().map(|object| object.key().clone()).collect();
        Box::new(move |index| {
            let found = self.lister.get_by_key(&keys[index]).ok().flatten();
            found.is_some_and(|object| object.node_name().is_some())
        })
    }

    fn namespace_len(&self, namespace: &str) -> usize {
        self.lister.namespace(namespace).len()
    }

    fn checkpoint_stats(&self) -> Option<CheckpointStats> {
        self.checkpoint.as_ref().map(Checkpoint::stats)
    }

    fn checksum(&self) -> Result<Checksum, BenchError> {
        let mut checksum = Checksum::default();
        self.lister.all().iter().try_for_each(|object| object.add_to(&mut checksum))?;
        Ok(checksum)
    }

    fn distinct_nodes(&self) -> usize {
        self.lister.all().iter().filter_map(|object| object.node_name()).collect::<BTreeSet<_>>().len()
    }
}
