//! What feeds a mirror: views of clusters, which arrive and change while the mirror works.
//!
//! A mirror is opened and works before any cluster has responded. Each cluster adds its views when it can; until then the
//! feed names the cluster as missing, so that nothing is removed that may come from there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::view::View;
use crate::rule::Compiled;
use crate::source::{Lookout, Source};

/// What one view is made of. A view can be made of it again, after a restart of the task that had it.
#[derive(Clone)]
pub struct ViewSource {
    /// The informers of its cluster.
    pub lookout: Lookout,
    /// What the rule watches.
    pub source: Source,
    /// The rule.
    pub rule: Arc<Compiled>,
}

/// What one cluster contributes.
#[derive(Clone, Default)]
struct Part {
    sources: Vec<ViewSource>,
    missing: Option<String>,
}

/// What feeds one mirror, by cluster. Cheap to clone; all clones share the same content.
#[derive(Clone)]
pub struct Feed {
    parts: Arc<Mutex<BTreeMap<String, Part>>>,
    version: watch::Sender<u64>,
}

impl Default for Feed {
    fn default() -> Self {
        Self { parts: Arc::default(), version: watch::channel(0).0 }
    }
}

impl Feed {
    /// Sets the clusters that the mirror is fed by. New ones count as missing until [`set`](Self::set) says otherwise; the views
    /// of others are dropped.
    pub fn expect<'a>(&self, clusters: impl IntoIterator<Item = &'a str>) {
        {
            let mut parts = self.lock();
            let mut before = std::mem::take(&mut *parts);
            for cluster in clusters {
                let part = before.remove(cluster).unwrap_or_else(|| Part {
                    missing: Some("it has not been reached yet".to_owned()),
                    ..Part::default()
                });
                parts.insert(cluster.to_owned(), part);
            }
        }
        self.changed();
    }

    /// Replaces what `cluster` contributes; `missing` is the reason why it may be incomplete, if it may. Ignored for a cluster
    /// that is not expected.
    pub fn set(&self, cluster: &str, sources: Vec<ViewSource>, missing: Option<String>) {
        if let Some(part) = self.lock().get_mut(cluster) {
            *part = Part { sources, missing };
        }
        self.changed();
    }

    /// Returns the clusters whose contribution may be incomplete, each with the reason.
    pub fn missing(&self) -> BTreeMap<String, String> {
        let parts = self.lock();
        let missing = parts.iter().filter_map(|(cluster, part)| Some((cluster.clone(), part.missing.clone()?)));
        missing.collect()
    }

    /// Returns a receiver that is notified of every change.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Makes `views` those of the feed, in the order of their rules. Views that exist already are kept with all that they know.
    /// Returns the clusters whose views could not be made, each with the reason.
    pub(super) fn update(&self, views: &mut Vec<View>) -> BTreeMap<String, String> {
        // Copied, so that no lock is held while informers are started.
        let mut sources: Vec<ViewSource> = self.lock().values().flat_map(|part| part.sources.clone()).collect();
        sources.sort_by_key(|source| source.rule.number);
        let (mut before, mut failed) = (std::mem::take(views), BTreeMap::new());
        for ViewSource { lookout, source, rule } in sources {
            if let Some(at) = before.iter().position(|view| view.is_of(&lookout, &source, &rule)) {
                views.push(before.swap_remove(at));
                continue;
            }
            let (cluster, resource) = (source.cluster.clone(), source.resource_name());
            match View::begin(&lookout, source, rule) {
                Ok(view) => views.push(view),
                Err(why) => drop(failed.insert(cluster, format!("{resource}: {why}"))),
            }
        }
        failed
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Part>> {
        // No code panics under this lock.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_cluster_is_missing_until_it_is_set() {
        let feed = Feed::default();
        feed.expect(["east", "west"]);
        feed.set("east", Vec::new(), None);
        feed.set("other", Vec::new(), Some("not expected".to_owned()));
        assert_eq!(feed.missing().into_keys().collect::<Vec<_>>(), ["west"]);
        feed.expect(["west", "north"]);
        feed.set("west", Vec::new(), Some("widgets are not served".to_owned()));
        let missing = feed.missing();
        assert_eq!(missing["west"], "widgets are not served");
        assert_eq!(missing["north"], "it has not been reached yet");
        assert_eq!(missing.len(), 2);
    }
}
