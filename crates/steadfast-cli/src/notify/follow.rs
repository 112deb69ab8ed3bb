//! What rules look at: followed by those that send to streams, and there for those that feed mirrors.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::DynamicObject;
use steadfast::{Informer, Lazy};
use steadfast_notify::{Engine, Following, Plan, Source, View, forget_others};

use super::places::Places;
use crate::aside;
use crate::failure::Failure;

/// What a rule looks at in one place.
pub(super) struct Followed {
    pub(super) source: Source,
    pub(super) informer: Informer<Lazy<DynamicObject>>,
    /// Where the rule sends to streams.
    following: Option<Following>,
}

impl Followed {
    fn looks_at(&self, source: &Source) -> bool {
        let Source { cluster, resource, scope, .. } = &self.source;
        (cluster, resource, scope) == (&source.cluster, &source.resource, &source.scope)
    }
}

/// Forgets what is kept for rules that send to no stream any more: it would be kept for ever.
pub(super) fn forget_rules(followed: &[Followed]) {
    for Followed { source, informer, .. } in followed {
        let same = followed.iter().filter(|other| other.following.is_some() && other.looks_at(source));
        let rules: Vec<&str> = same.map(|other| other.source.rule.as_str()).collect();
        forget_others(informer, &rules);
    }
}

/// Looks at all of `sources`; whoever of `before` looks already at one of them goes on, others look no more.
pub(super) fn follow(
    plan: &Plan,
    places: &Places,
    engine: &Engine,
    mut before: Vec<Followed>,
    sources: Vec<Source>,
) -> Result<Vec<Followed>, Failure> {
    let mut followed = Vec::new();
    for source in sources {
        let has_streams = plan.rule(&source.rule).is_some_and(|rule| plan.has_streams(&rule.config));
        let is_same = |known: &Followed| known.source == source && known.following.is_some() == has_streams;
        if let Some(at) = before.iter().position(is_same) {
            followed.push(before.swap_remove(at));
            continue;
        }
        let Some(place) = places.get(&source.cluster) else { continue };
        // One that is shared tells what is to be known of it once.
        let is_first = !before.iter().chain(&followed).any(|other| other.looks_at(&source));
        let tell = is_first.then(|| Arc::new(aside::say) as Arc<_>);
        let informer = source.informer(&place.lookout, tell).map_err(Failure::run)?;
        let begin = || Following::begin(&place.lookout, source.clone(), engine).map_err(Failure::run);
        let following = if has_streams { Some(begin()?) } else { None };
        followed.push(Followed { source, informer, following });
    }
    Ok(followed)
}

/// What each mirror is made equal to, by its name.
pub(super) fn views(plan: &Plan, places: &Places, sources: &[Source]) -> Result<BTreeMap<String, Vec<View>>, Failure> {
    let mut views: BTreeMap<String, Vec<View>> = BTreeMap::new();
    for source in sources {
        let (Some(rule), Some(place)) = (plan.rule(&source.rule), places.get(&source.cluster)) else { continue };
        for mirror in plan.mirrors_of(&rule.config) {
            let view = View::begin(&place.lookout, source.clone(), rule.clone()).map_err(Failure::run)?;
            views.entry(mirror.to_owned()).or_default().push(view);
        }
    }
    Ok(views)
}
