//! Views of clusters for a mirror, added and changed while the mirror runs.
//!
//! A mirror starts before any cluster has responded. The views of a cluster are set when the cluster is available.
//! Until then the feed lists the cluster as missing, so that entries of the cluster are not removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::view::MirrorView;
use crate::rule::CompiledRule;
use crate::rule_source::{ClusterInformers, RuleSource};

/// Parameters of a view, sufficient to create the view again after a restart of the mirror's task.
#[derive(Clone)]
pub struct MirrorViewSource {
    /// Informers of the cluster.
    pub cluster_informers: ClusterInformers,
    /// Watched resource and scope.
    pub source: RuleSource,
    /// Rule of the view.
    pub rule: Arc<CompiledRule>,
}

/// Views of one cluster.
#[derive(Clone, Default)]
struct ClusterViews {
    sources: Vec<MirrorViewSource>,
    missing: Option<String>,
}

/// Views of one mirror, by cluster. Clones share the content.
#[derive(Clone)]
pub struct MirrorFeed {
    clusters: Arc<Mutex<BTreeMap<String, ClusterViews>>>,
    version: watch::Sender<u64>,
}

impl Default for MirrorFeed {
    fn default() -> Self {
        Self { clusters: Arc::default(), version: watch::channel(0).0 }
    }
}

impl MirrorFeed {
    /// Sets the expected clusters. New clusters are missing until a call of [`set`](Self::set). Views of other clusters
    /// are dropped.
    pub fn expect<'a>(&self, clusters: impl IntoIterator<Item = &'a str>) {
        {
            let mut views = self.lock();
            // Clusters that left the configuration are dropped with their views.
            let mut previous = std::mem::take(&mut *views);
            for cluster in clusters {
                let cluster_views = previous.remove(cluster).unwrap_or_else(|| ClusterViews {
                    missing: Some("the cluster has not responded yet".to_owned()),
                    ..ClusterViews::default()
                });
                views.insert(cluster.to_owned(), cluster_views);
            }
        }
        self.changed();
    }

    /// Replaces the views of `cluster`. `missing` is the reason why the views may be incomplete. Ignored for a cluster
    /// that is not expected.
    pub fn set(&self, cluster: &str, sources: Vec<MirrorViewSource>, missing: Option<String>) {
        if let Some(cluster_views) = self.lock().get_mut(cluster) {
            *cluster_views = ClusterViews { sources, missing };
        }
        self.changed();
    }

    /// Returns the clusters with incomplete views, with reasons.
    pub fn missing(&self) -> BTreeMap<String, String> {
        let clusters = self.lock();
        let missing = clusters
            .iter()
            .filter_map(|(cluster, cluster_views)| Some((cluster.clone(), cluster_views.missing.clone()?)));
        missing.collect()
    }

    /// Returns a receiver that is notified of every change.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Updates `views` to the content of the feed, in the order of the rules. Existing views are reused with their
    /// state. Returns the clusters with views that could not be started, with reasons.
    pub(super) fn update(&self, views: &mut Vec<MirrorView>) -> BTreeMap<String, String> {
        // Copied, so that no lock is held while starting informers.
        let mut sources: Vec<MirrorViewSource> =
            self.lock().values().flat_map(|cluster_views| cluster_views.sources.clone()).collect();
        sources.sort_by_key(|source| source.rule.number);
        let (mut previous, mut failed) = (std::mem::take(views), BTreeMap::new());
        for MirrorViewSource { cluster_informers, source, rule } in sources {
            // A view is reused if nothing relevant changed, with its caches and its evaluated entries.
            if let Some(at) =
                previous.iter().position(|view| view.has_source_and_rule(&cluster_informers, &source, &rule))
            {
                views.push(previous.swap_remove(at));
                continue;
            }
            let (cluster, resource) = (source.cluster.clone(), source.resource_name());
            match MirrorView::start(&cluster_informers, source, rule) {
                Ok(view) => views.push(view),
                Err(reason) => drop(failed.insert(cluster, format!("{resource}: {reason}"))),
            }
        }
        failed
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ClusterViews>> {
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
