//! Sources of rules: handlers that deliver to the engine for streams, and caches for mirrors.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::DynamicObject;
use steadfast::{Informer, Lazy};
use steadfast_notify::{
    ClusterInformers, Engine, MirrorInput, MirrorInputSource, Plan, RuleSource, RuleSubscription, forget_unlisted,
    subscription_name,
};

use super::connections::ConnectedClusters;
use crate::console;
use crate::failure::Failure;

/// A watched source of a rule.
pub(super) struct WatchedSource {
    pub(super) source: RuleSource,
    pub(super) informer: Informer<Lazy<DynamicObject>>,
    /// Handlers of the rule, by stream.
    subscriptions: BTreeMap<String, RuleSubscription>,
}

impl WatchedSource {
    /// Returns the settled progress of all streams, by published name. A stream has the version up to which all changes are
    /// settled. It may also have the instant up to which messages caused by time or lookups are settled.
    pub(super) fn settled_progress(&self) -> impl Iterator<Item = (String, u64)> {
        self.subscriptions.iter().flat_map(|(sink, subscription)| subscription.settled_progress(&self.source, sink))
    }

    /// Returns the version that the cache has reached for each stream, by the name of the subscription. Skips
    /// streams without a known version.
    pub(super) fn reached_versions(&self) -> impl Iterator<Item = (String, u64)> {
        let subscriptions = self.subscriptions.iter();
        subscriptions.filter_map(|(sink, subscription)| {
            Some((subscription_name(&self.source, sink), subscription.reached_version()?))
        })
    }

    /// Returns true if the rule sends messages, and no checkpoint stores its settled versions.
    pub(super) fn is_unrecorded(&self) -> bool {
        !self.subscriptions.is_empty() && !self.source.may_be_stored()
    }

    fn watches(&self, source: &RuleSource) -> bool {
        let RuleSource { cluster, resource, scope, .. } = &self.source;
        (cluster, resource, scope) == (&source.cluster, &source.resource, &source.scope)
    }
}

/// Deletes the state of rules and streams that are no longer configured, which would otherwise be kept forever. Rules
/// in `incomplete` keep their state: their sources are not fully known yet.
pub(super) fn forget_rules(watched_sources: &[WatchedSource], incomplete: &[&str]) {
    for WatchedSource { source, informer, .. } in watched_sources {
        // Rules that share an informer also share the stored state of handlers, so the streams of all these rules count
        // as configured.
        let sharing_informer = watched_sources.iter().filter(|other| other.watches(source));
        let configured: Vec<(&str, &str)> = sharing_informer
            .flat_map(|other| other.subscriptions.keys().map(|sink| (other.source.rule.as_str(), sink.as_str())))
            .collect();
        forget_unlisted(informer, &configured, incomplete);
    }
}

/// Watches all of `sources` on `cluster_informers`. Sources that `previous` contains continue without interruption; all
/// other sources of `previous` end. Also returns the sources that cannot be watched, with the errors.
pub(super) fn watch_sources(
    plan: &Plan,
    cluster_informers: &ClusterInformers,
    engine: &Engine,
    mut previous: Vec<WatchedSource>,
    sources: impl IntoIterator<Item = RuleSource>,
) -> (Vec<WatchedSource>, Vec<(RuleSource, String)>) {
    let (mut watched_sources, mut failed) = (Vec::new(), Vec::new());
    for source in sources {
        let streams: Vec<&str> =
            plan.rule(&source.rule).map(|rule| plan.streams_of(&rule.config).collect()).unwrap_or_default();
        let existing =
            previous.iter().position(|existing| existing.source == source).map(|at| previous.swap_remove(at));
        if let Some(mut existing) = existing {
            // Moves the handlers into the new subscription, so that unchanged streams keep their progress.
            let subscriptions = std::mem::take(&mut existing.subscriptions);
            match RuleSubscription::start(cluster_informers, &source, &streams, subscriptions, engine) {
                Ok(subscriptions) => watched_sources.push(WatchedSource { subscriptions, ..existing }),
                Err(reason) => failed.push((source, reason)),
            }
            continue;
        }
        // An informer that several rules share reports its diagnostics once.
        let is_first = !previous.iter().chain(&watched_sources).any(|other| other.watches(&source));
        let report_line = is_first.then(|| Arc::new(console::report) as Arc<_>);
        let started = source.informer(cluster_informers, report_line).and_then(|informer| {
            let subscriptions = RuleSubscription::start(cluster_informers, &source, &streams, BTreeMap::new(), engine)?;
            Ok(WatchedSource { source: source.clone(), informer, subscriptions })
        });
        match started {
            Ok(started) => watched_sources.push(started),
            Err(reason) => failed.push((source, reason)),
        }
    }
    (watched_sources, failed)
}

/// Returns the sources of `mirror` among `sources`, which are all on `cluster_informers`.
pub(super) fn input_sources(
    plan: &Plan,
    mirror: &str,
    cluster_informers: &ClusterInformers,
    sources: &[RuleSource],
) -> Vec<MirrorInputSource> {
    let feeds = sources.iter().filter_map(|source| {
        let rule = plan.rule(&source.rule)?;
        let is_fed = rule.config.to.iter().any(|sink| sink == mirror);
        is_fed.then(|| MirrorInputSource {
            cluster_informers: cluster_informers.clone(),
            source: source.clone(),
            rule: rule.clone(),
        })
    });
    feeds.collect()
}

/// Starts the caches of each mirror, by mirror name, for a command.
pub(super) fn start_inputs(
    plan: &Plan,
    connected_clusters: &ConnectedClusters,
    sources: &[RuleSource],
) -> Result<BTreeMap<String, Vec<MirrorInput>>, Failure> {
    let mut inputs = BTreeMap::<String, Vec<MirrorInput>>::new();
    for source in sources {
        let (Some(rule), Some(connected_cluster)) = (plan.rule(&source.rule), connected_clusters.get(&source.cluster))
        else {
            continue;
        };
        for mirror in plan.mirrors_of(&rule.config) {
            let input = MirrorInput::start(&connected_cluster.cluster_informers, source.clone(), rule.clone())
                .map_err(Failure::run)?;
            inputs.entry(mirror.to_owned()).or_default().push(input);
        }
    }
    Ok(inputs)
}
