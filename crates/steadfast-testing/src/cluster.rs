//! A cluster under test: one scenario, played on any server.
//!
//! `STEADFAST_SERVER` says on which: the embedded one, which is the default, the reference, or what a kubeconfig leads
//! to. A scenario writes straight at the server and has informers look on through a proxy that can fail; what else is to
//! go wrong it names beforehand, as [`Need`]s. Where a server cannot be made to do that, the scenario is [`NotHere`], with
//! the reason. The history that the checker judges by is the server's own: the embedded one's, or that of the
//! reference's etcd. Of a cluster that is not ours it comes from a watch of its own in the scenario's own namespace, and
//! on our servers that watch is compared with the server's word, so that it can be relied on elsewhere.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steadfast::InformerFactory;
//! use steadfast_testing::cluster::{Cluster, Kind};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), steadfast_testing::Error> {
//! let cluster = Cluster::start(&Kind::Embedded, &[]).await?.map_err(|not_here| not_here.reason)?;
//! let recorder = cluster.recorder();
//! let factory = InformerFactory::new(&cluster.connection().await?);
//! recorder.record(&factory.informer::<ConfigMap>(cluster.scope())?).until_synced().await;
//!
//! cluster.network().cut();
//! cluster.writer().create("a", "1").await?;
//! cluster.network().heal();
//!
//! cluster.settle(&recorder).await?;
//! steadfast_contract::check(&cluster.history().await?, &recorder.trace())?;
//! cluster.end().await
//! # }
//! ```

mod chronicle;
mod lease;
mod need;
mod server;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, PostParams};
use kube::core::ObjectMeta;
use serde_json::Value;
use steadfast::transport::Settings;
use steadfast::{Connection, Scope};
use steadfast_contract::History;

use crate::proxy::{FaultProxy, NetworkFaults};
use crate::{Error, Recorder};
use chronicle::Chronicle;
pub use need::{Kind, Need};
use server::Server;
pub use writer::Writer;

/// How long informers may take until they have everything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a scenario cannot be played on this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHere {
    /// What cannot be done to it.
    pub need: Need,
    /// Why not.
    pub reason: &'static str,
}

impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} cannot be had: {}", self.need, self.reason)
    }
}

impl std::error::Error for NotHere {}

/// A server, a namespace in it, a writer there, and a network between it and the informers.
pub struct Cluster {
    kind: Kind,
    needs: Vec<Need>,
    server: Server,
    proxy: FaultProxy,
    config: kube::Config,
    namespace: String,
    writer: Writer,
    chronicles: Vec<Chronicle>,
    /// The names of the definitions that the scenario made.
    definitions: Vec<String>,
    /// The revision of the store's backup.
    backup: Option<u64>,
    begun: Instant,
}

impl Cluster {
    /// A cluster of this kind to which `needs` can be done; a scenario that needs nothing may share it with others.
    ///
    /// # Errors
    ///
    /// Where it does not start or does not answer; and within, where one of `needs` cannot be had.
    ///
    /// # Panics
    ///
    /// Where no tokio runtime is current.
    pub async fn start(kind: &Kind, needs: &[Need]) -> Result<Result<Self, NotHere>, Error> {
        for need in needs {
            if let Some(reason) = need.cannot_be_had(kind) {
                return Ok(Err(NotHere { need: *need, reason }));
            }
        }
        let begun = Instant::now();
        let server = Server::start(kind, needs).await?;
        let config = server.config().await?;
        let client = Connection::new(config.clone())?.client();
        let namespace = own_namespace()?;
        create_namespace(&client, &namespace).await?;
        let proxy = FaultProxy::start(server.addresses())?;
        let writer = Writer::new(client, &namespace);
        let (kind, needs) = (kind.clone(), needs.to_vec());
        let (chronicles, definitions, backup) = (Vec::new(), Vec::new(), None);
        let mut cluster =
            Self { kind, needs, server, proxy, config, namespace, writer, chronicles, definitions, backup, begun };
        cluster.follow(&ApiResource::erase::<ConfigMap>(&())).await?;
        Ok(Ok(cluster))
    }

    /// Which kind it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The scenario's own namespace, which nobody else writes in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// All of the scenario's own namespace.
    pub fn scope(&self) -> Scope {
        Scope::namespace(&self.namespace)
    }

    /// `name` in the scenario's own namespace, as recordings name objects.
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// Who writes in the scenario's own namespace, straight at the first API server.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// One more namespace of the scenario's own, and who writes there. Nothing but the server's own word tells its history.
    ///
    /// # Errors
    ///
    /// Where it cannot be created, or where the server has no word but its API.
    pub async fn another_namespace(&self) -> Result<(String, Writer), Error> {
        if matches!(self.kind, Kind::Other(_)) {
            return Err("another namespace has no history here".into());
        }
        let name = own_namespace()?;
        create_namespace(&self.writer.client(), &name).await?;
        let writer = Writer::new(self.writer.client(), &name);
        Ok((name, writer))
    }

    /// The network between informers and the API servers, which are its targets.
    pub fn network(&self) -> &NetworkFaults {
        self.proxy.faults()
    }

    /// A connection through the network that can fail, with everything as it is by default.
    ///
    /// # Errors
    ///
    /// Where it cannot be made.
    pub async fn connection(&self) -> Result<Connection, Error> {
        self.connection_with(Settings::default()).await
    }

    /// The same with these times and limits.
    ///
    /// # Errors
    ///
    /// Where it cannot be made.
    #[allow(clippy::unused_async, reason = "as the others that connect")]
    pub async fn connection_with(&self, settings: Settings) -> Result<Connection, Error> {
        Ok(Connection::builder(self.proxied()?).settings(settings).build()?)
    }

    /// The configuration of a client that comes straight to the first API server.
    pub fn direct(&self) -> &kube::Config {
        &self.config
    }

    /// The configuration of a client that comes through the network that can fail.
    ///
    /// # Errors
    ///
    /// Where the server's address is none.
    pub fn proxied(&self) -> Result<kube::Config, Error> {
        let mut config = self.config.clone();
        let scheme = config.cluster_url.scheme_str().unwrap_or("https").to_owned();
        // The certificate is still that of the server behind.
        let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        config.tls_server_name.get_or_insert(host);
        let url = format!("{scheme}://{}", self.proxy.address());
        config.cluster_url = url.parse().map_err(|error| format!("{url}: {error}"))?;
        Ok(config)
    }

    /// A recorder by the clock of the history.
    pub fn recorder(&self) -> Recorder {
        self.server.recorder()
    }

    /// From here on nothing is written, and the server can be reached: waits until all that `recorder` observes has
    /// everything, and writes down how it is.
    ///
    /// # Errors
    ///
    /// Where the server does not say what its newest version is.
    pub async fn settle(&self, recorder: &Recorder) -> Result<(), Error> {
        recorder.settle_at(&self.writer.newest_version().await?, PATIENCE).await;
        Ok(())
    }

    /// Defines a custom resource, until the scenario ends.
    ///
    /// # Errors
    ///
    /// Where the server refuses it.
    pub async fn define(&mut self, definition: Value) -> Result<(), Error> {
        let definition: CustomResourceDefinition = serde_json::from_value(definition)?;
        let definitions: Api<CustomResourceDefinition> = Api::all(self.writer.client());
        let defined = definitions.create(&PostParams::default(), &definition).await?;
        self.definitions.extend(defined.metadata.name);
        Ok(())
    }

    /// Follows one more resource of the scenario's own namespace from here on, before anything is written of it.
    ///
    /// # Errors
    ///
    /// Where it cannot be listed and watched.
    pub async fn follow(&mut self, resource: &ApiResource) -> Result<(), Error> {
        // A watch that a scenario breaks tells no history.
        if self.needs.is_empty() {
            let begun = self.begun;
            self.chronicles.push(Chronicle::begin(self.writer.client(), &self.namespace, resource, begun).await?);
        }
        Ok(())
    }

    /// What happened to config maps, for the checker.
    ///
    /// # Errors
    ///
    /// As [`history_of`](Self::history_of).
    pub async fn history(&self) -> Result<History, Error> {
        self.history_of(&ApiResource::erase::<ConfigMap>(&())).await
    }

    /// What happened to a resource that was [`follow`](Self::follow)ed.
    ///
    /// # Errors
    ///
    /// Where it is not complete, or where the server's word and what a watch of it reported differ.
    pub async fn history_of(&self, resource: &ApiResource) -> Result<History, Error> {
        let until = self.writer.write_something_else().await?;
        let own = self.server.history(until, &resource.group, &resource.plural).await?;
        let watched = match self.chronicles.iter().find(|chronicle| chronicle.resource == *resource) {
            Some(chronicle) => Some(chronicle.history().await?),
            None => None,
        };
        match (own, watched) {
            (Some(own), Some(watched)) => {
                agree(&own, &watched, &self.namespace)?;
                Ok(own)
            }
            (Some(history), None) | (None, Some(history)) => Ok(history),
            (None, None) => Err(format!("nobody followed {}", resource.plural).into()),
        }
    }

    /// How many lists of config maps the first API server has streamed so far, in its own count, which others that share
    /// it add to; none where that is not ours to ask.
    ///
    /// # Errors
    ///
    /// Where it does not answer.
    pub async fn streamed_lists(&self) -> Result<Option<u64>, Error> {
        self.server.streamed_lists(&self.writer.client()).await
    }

    // What is done to the servers: 0 is the first API server, 1 the second.

    /// Kills an API server: every connection dies at once.
    ///
    /// # Errors
    ///
    /// Where the scenario did not say that it [needs](Need) this; the same holds for all that follow.
    pub fn kill(&mut self, server: usize) -> Result<(), Error> {
        self.said(Need::Kill)?;
        self.server.kill(server)
    }

    /// Ends an API server in good order.
    ///
    /// # Errors
    ///
    /// Where it does not end, or the scenario did not say that it needs this.
    pub async fn shut_down(&mut self, server: usize) -> Result<(), Error> {
        self.said(Need::Shutdown)?;
        self.server.shut_down(server).await
    }

    /// Starts an API server again that was ended, at its address.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub async fn start_again(&mut self, server: usize) -> Result<(), Error> {
        self.server.start_again(server).await?;
        self.renew_writer()
    }

    fn renew_writer(&self) -> Result<(), Error> {
        // A write is never sent twice; it must not be what finds out that a connection has died.
        self.writer.renew(Connection::new(self.config.clone())?.client());
        Ok(())
    }

    /// The first API server is frozen with its sockets open, or goes on.
    ///
    /// # Errors
    ///
    /// Where the scenario did not say that it needs this.
    pub fn freeze(&mut self, on: bool) -> Result<(), Error> {
        self.said(Need::Freeze)?;
        self.server.freeze(on)
    }

    /// The store behind the API server is frozen, or goes on. Meanwhile nothing can be written.
    ///
    /// # Errors
    ///
    /// Where the scenario did not say that it needs this.
    pub fn freeze_store(&mut self, on: bool) -> Result<(), Error> {
        self.said(Need::FreezeStore)?;
        self.server.freeze_store(on)
    }

    /// The store forgets every state but the present one. An API server that runs has its window of events yet.
    ///
    /// # Errors
    ///
    /// Where it does not, or the scenario did not say that it needs this.
    pub async fn compact(&mut self) -> Result<(), Error> {
        self.said(Need::Compact)?;
        self.server.compact().await
    }

    /// Makes a backup of the store. Nothing may be written meanwhile.
    ///
    /// # Errors
    ///
    /// Where it cannot be made, or the scenario did not say that it needs a [restore](Need::Restore).
    pub async fn back_up(&mut self) -> Result<(), Error> {
        self.said(Need::Restore)?;
        self.backup = Some(self.server.back_up().await?);
        Ok(())
    }

    /// Puts the store back to its backup: every connection dies, and what was written since is undone.
    ///
    /// # Errors
    ///
    /// Where there is no backup, something does not start again, or the scenario did not say that it needs this.
    pub async fn restore(&mut self) -> Result<(), Error> {
        self.said(Need::Restore)?;
        self.server.restore(self.backup.ok_or("there is no backup")?).await?;
        self.renew_writer()
    }

    /// The second API server stops following the store, or catches up.
    ///
    /// # Errors
    ///
    /// Where the scenario did not say that it needs this.
    pub fn lag(&mut self, on: bool) -> Result<(), Error> {
        self.said(Need::Lag)?;
        self.server.lag(on)
    }

    fn said(&self, need: Need) -> Result<(), Error> {
        // Else the scenario would be begun where it cannot be told.
        if !self.needs.contains(&need) {
            return Err(format!("the scenario did not say that it needs {need:?}").into());
        }
        Ok(())
    }

    /// Takes away what the scenario made where it would stay, and makes whole what is shared with others.
    ///
    /// # Errors
    ///
    /// Where that cannot be done.
    pub async fn end(self) -> Result<(), Error> {
        self.take_away().await?;
        self.server.give_back().await
    }

    /// The same after a scenario that failed: what is shared and in a state that nobody knows is not given back.
    ///
    /// # Errors
    ///
    /// Where something cannot be taken away.
    pub async fn give_up(self) -> Result<(), Error> {
        // A server of our own goes with what is in it, and may not answer.
        if matches!(self.kind, Kind::Other(_)) { self.take_away().await } else { Ok(()) }
    }

    async fn take_away(&self) -> Result<(), Error> {
        let client = self.writer.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for name in &self.definitions {
            definitions.delete(name, &DeleteParams::default()).await?;
        }
        if matches!(self.kind, Kind::Other(_)) {
            let namespaces: Api<Namespace> = Api::all(client);
            namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

/// A name for a namespace that nobody has.
fn own_namespace() -> Result<String, Error> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    Ok(format!("steadfast-{now:x}-{}-{number}", std::process::id()))
}

async fn create_namespace(client: &kube::Client, name: &str) -> Result<(), Error> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// Expects both to tell the same of `namespace`: the same objects, changed at the same versions.
fn agree(own: &History, watched: &History, namespace: &str) -> Result<(), Error> {
    fn told<'a>(history: &'a History, namespace: &str) -> Vec<(u64, &'a str, &'a str, bool)> {
        let within = history.changes().iter().filter(|change| change.namespace.as_deref() == Some(namespace));
        within.map(|change| (change.version, &*change.uid, &*change.name, change.object.is_some())).collect()
    }
    let (own, watched) = (told(own, namespace), told(watched, namespace));
    if own == watched { Ok(()) } else { Err(format!("the server says {own:?}, and its watch {watched:?}").into()) }
}
