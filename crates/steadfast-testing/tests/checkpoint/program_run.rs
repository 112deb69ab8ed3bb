//! One run of a program: an informer of config maps with a checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use steadfast::{Checkpoint, Diagnostic, Event, Informer, InformerFactory, Lazy, Scope};
use steadfast_apiserver::{ApiServer, Verb};
use steadfast_contract::History;
use steadfast_testing::{InMemory, TestError};

use crate::files::Folder;

pub(crate) struct ProgramRun {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) informer: Informer<Lazy<ConfigMap>>,
    pub(crate) factory: InformerFactory,
    /// Events of its handler, as text.
    pub(crate) events: Arc<Mutex<Vec<String>>>,
    pub(crate) diagnostics: Arc<Mutex<Vec<Diagnostic>>>,
    path: PathBuf,
}

impl ProgramRun {
    /// Starts from the file at `path`.
    pub(crate) async fn start(server: &ApiServer, path: &Path, seed: u64) -> Result<Self, TestError> {
        let network = InMemory { seed, ..InMemory::default() };
        Self::start_on_network(server, &network, path).await
    }

    pub(crate) async fn start_on_network(
        server: &ApiServer,
        network: &InMemory,
        path: &Path,
    ) -> Result<Self, TestError> {
        Self::start_with(server, network, Checkpoint::open(path)?, path).await
    }

    /// Starts from `checkpoint`, which was opened from the file at `path`.
    pub(crate) async fn start_with(
        server: &ApiServer,
        network: &InMemory,
        checkpoint: Checkpoint,
        path: &Path,
    ) -> Result<Self, TestError> {
        let factory = InformerFactory::new(&network.connection(server).await?);
        let informer =
            factory.builder::<Lazy<ConfigMap>>(Scope::namespace("default")).checkpoint(&checkpoint).start()?;
        let (events, diagnostics) = <(Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<Diagnostic>>>)>::default();
        let (captured_events, captured_diagnostics) = (events.clone(), diagnostics.clone());
        informer.on_event(move |event| captured_events.lock().push(event_text(&event)))?;
        informer.on_diagnostic(move |diagnostic| captured_diagnostics.lock().push(diagnostic.clone()));
        Ok(Self { checkpoint, informer, factory, events, diagnostics, path: path.to_owned() })
    }

    /// Waits until the cache is fresh, contains the state of `server`, and is written to the checkpoint.
    pub(crate) async fn settle(&self, server: &ApiServer) -> Result<(), TestError> {
        self.informer.wait_for_version(&server.revision().to_string().as_str().into(), Duration::from_secs(60)).await?;
        for _ in 0..200 {
            if self.informer.freshness().is_fresh() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(self.informer.freshness().is_fresh(), "{}", self.informer.freshness());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(self.checkpoint.stats().failing, None);
        Ok(())
    }

    /// Simulates a kill: returns a copy of the current file, and then shuts this run down.
    pub(crate) fn simulate_kill(self, folder: &Folder) -> Result<PathBuf, TestError> {
        let checkpoint_copy = folder.file();
        std::fs::copy(&self.path, &checkpoint_copy)?;
        self.factory.shutdown();
        Ok(checkpoint_copy)
    }

    /// Returns the cached objects, with their version and value.
    pub(crate) fn cached_objects(&self) -> Vec<String> {
        let snapshot = self.informer.snapshot();
        let describe = |object: &steadfast::Object<Lazy<ConfigMap>>| {
            let value = object.get().ok().and_then(|map| map.data.clone()?.get("value").cloned());
            format!("{} v{} {}", object.key().name(), object.version(), value.unwrap_or_default())
        };
        snapshot.decodable().map(describe).collect()
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.events.lock().clone()
    }

    pub(crate) fn diagnostics(&self, is_wanted: impl Fn(&Diagnostic) -> bool) -> Vec<String> {
        self.diagnostics.lock().iter().filter(|diagnostic| is_wanted(diagnostic)).map(ToString::to_string).collect()
    }
}

fn event_text(event: &Event<Lazy<ConfigMap>>) -> String {
    let name = event.object().key().name().to_owned();
    match event {
        Event::Added { initial: true, .. } => format!("= {name}"),
        Event::Added { .. } => format!("+ {name}"),
        Event::Updated { .. } => format!("~ {name}"),
        Event::Deleted { certainty, .. } => format!("- {name} {certainty}"),
        Event::Resynced { .. } => format!("? {name}"),
    }
}

/// Returns the config maps of `server` with these `names`, in the format of [`ProgramRun::cached_objects`].
pub(crate) fn server_objects(server: &ApiServer, names: impl Iterator<Item = String>) -> Vec<String> {
    let describe = |name: String| {
        let object = server.get("configmaps", "default", &name).ok()?;
        let (version, value) = (object["metadata"]["resourceVersion"].as_str()?, object["data"]["value"].as_str()?);
        Some(format!("{name} v{version} {value}"))
    };
    let mut objects: Vec<String> = names.filter_map(describe).collect();
    objects.sort();
    objects
}

/// Returns the history of config maps on `server`.
pub(crate) fn config_maps(server: &ApiServer) -> Result<History, steadfast_testing::TestkitError> {
    steadfast_testing::history(server, "", "configmaps")
}

/// Returns the number of lists of config maps that the server received, streamed or not.
pub(crate) fn lists(server: &ApiServer) -> usize {
    let is_list = |verb: Verb| matches!(verb, Verb::List | Verb::StreamedList);
    let is_config_maps = |path: &str| path.ends_with("/configmaps");
    server.requests().iter().filter(|request| is_list(request.verb) && is_config_maps(&request.path)).count()
}
