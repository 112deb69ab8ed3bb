//! Inputs of clusters for a mirror, added and changed while the mirror runs.
//!
//! A mirror starts before any cluster has responded. The inputs of a cluster are set when the cluster is available.
//! Until then the feed lists the cluster as missing, so that entries of the cluster are not removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::input::MirrorInput;
use crate::rule::CompiledRule;
use crate::rule_source::{ClusterInformers, RuleSource};

/// Parameters of an input, sufficient to create the input again after a restart of the mirror's task.
#[derive(Clone)]
pub struct MirrorInputSource {
    /// Informers of the cluster.
    pub cluster_informers: ClusterInformers,
    /// Watched resource and scope.
    pub source: RuleSource,
    /// Rule of the input.
    pub rule: Arc<CompiledRule>,
}

/// Inputs of one cluster.
#[derive(Clone, Default)]
struct ClusterInputs {
    sources: Vec<MirrorInputSource>,
    missing: Option<String>,
}

/// Inputs of one mirror, by cluster. Clones share the content.
#[derive(Clone)]
pub struct MirrorFeed {
    clusters: Arc<Mutex<BTreeMap<String, ClusterInputs>>>,
    version: watch::Sender<u64>,
}

impl Default for MirrorFeed {
    fn default() -> Self {
        Self { clusters: Arc::default(), version: watch::channel(0).0 }
    }
}

impl MirrorFeed {
    /// Sets the expected clusters. New clusters are missing until a call of [`set`](Self::set). Inputs of other clusters
    /// are dropped.
    pub fn expect<'a>(&self, clusters: impl IntoIterator<Item = &'a str>) {
        {
            let mut inputs = self.lock();
            // Clusters that left the configuration are dropped with their inputs.
            let mut previous = std::mem::take(&mut *inputs);
            for cluster in clusters {
                let cluster_inputs = previous.remove(cluster).unwrap_or_else(|| ClusterInputs {
                    missing: Some("the cluster has not responded yet".to_owned()),
                    ..ClusterInputs::default()
                });
                inputs.insert(cluster.to_owned(), cluster_inputs);
            }
        }
        self.changed();
    }

    /// Replaces the inputs of `cluster`. `missing` is the reason why the inputs may be incomplete. Ignored for a cluster
    /// that is not expected.
    pub fn set(&self, cluster: &str, sources: Vec<MirrorInputSource>, missing: Option<String>) {
        if let Some(cluster_inputs) = self.lock().get_mut(cluster) {
            *cluster_inputs = ClusterInputs { sources, missing };
        }
        self.changed();
    }

    /// Returns the clusters with incomplete inputs, with reasons.
    pub fn missing(&self) -> BTreeMap<String, String> {
        let clusters = self.lock();
        let missing = clusters
            .iter()
            .filter_map(|(cluster, cluster_inputs)| Some((cluster.clone(), cluster_inputs.missing.clone()?)));
        missing.collect()
    }

    /// Returns a receiver that is notified of every change.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Updates `inputs` to the content of the feed, in the order of the rules. Existing inputs are reused with their
    /// state. Returns the clusters with inputs that could not be started, with reasons.
    pub(super) fn update(&self, inputs: &mut Vec<MirrorInput>) -> BTreeMap<String, String> {
        // Copied, so that no lock is held while starting informers.
        let mut sources: Vec<MirrorInputSource> =
            self.lock().values().flat_map(|cluster_inputs| cluster_inputs.sources.clone()).collect();
        sources.sort_by_key(|source| source.rule.number);
        let (mut previous, mut failed) = (std::mem::take(inputs), BTreeMap::new());
        for MirrorInputSource { cluster_informers, source, rule } in sources {
            // An input is reused if nothing relevant changed, with its caches and its evaluated entries.
            if let Some(at) =
                previous.iter().position(|input| input.has_source_and_rule(&cluster_informers, &source, &rule))
            {
                inputs.push(previous.swap_remove(at));
                continue;
            }
            let (cluster, resource) = (source.cluster.clone(), source.resource_name());
            match MirrorInput::start(&cluster_informers, source, rule) {
                Ok(input) => inputs.push(input),
                Err(reason) => drop(failed.insert(cluster, format!("{resource}: {reason}"))),
            }
        }
        failed
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ClusterInputs>> {
        // No code panics under this lock.
        self.clusters.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_cluster_is_missing_until_set() {
        let feed = MirrorFeed::default();
        feed.expect(["east", "west"]);
        feed.set("east", Vec::new(), None);
        feed.set("other", Vec::new(), Some("not expected".to_owned()));
        assert_eq!(feed.missing().into_keys().collect::<Vec<_>>(), ["west"]);
        feed.expect(["west", "north"]);
        feed.set("west", Vec::new(), Some("widgets are not served".to_owned()));
        let missing = feed.missing();
        assert_eq!(missing["west"], "widgets are not served");
        assert_eq!(missing["north"], "the cluster has not responded yet");
        assert_eq!(missing.len(), 2);
    }
}
