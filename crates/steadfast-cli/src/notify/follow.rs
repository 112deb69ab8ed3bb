//! What rules look at: followed by those that send to streams, and there for those that feed mirrors.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use steadfast::Informer;
use steadfast_notify::{Engine, Following, Plan, Source, View};

use super::places::Places;
use crate::failure::Failure;

/// What a rule looks at in one place.
pub(super) struct Followed {
    pub(super) source: Source,
    pub(super) informer: Informer<DynamicObject>,
    /// Where the rule sends to streams.
    _following: Option<Following>,
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
        let is_same = |Followed { source: known, _following: following, .. }: &Followed| {
            let is_same = (&known.rule, &known.cluster, &known.resource, &known.scope)
                == (&source.rule, &source.cluster, &source.resource, &source.scope);
            is_same && following.is_some() == has_streams
        };
        if let Some(at) = before.iter().position(is_same) {
            followed.push(before.swap_remove(at));
            continue;
        }
        let Some(place) = places.get(&source.cluster) else { continue };
        let informer = place.factory.informer_with(&source.resource, source.scope.clone()).map_err(Failure::run)?;
        let begin = || Following::begin(&place.factory, source.clone(), engine).map_err(Failure::run);
        let following = if has_streams { Some(begin()?) } else { None };
        followed.push(Followed { source, informer, _following: following });
    }
    Ok(followed)
}

/// What each mirror is made equal to, by its name.
pub(super) fn views(plan: &Plan, places: &Places, sources: &[Source]) -> Result<BTreeMap<String, Vec<View>>, Failure> {
    let mut views: BTreeMap<String, Vec<View>> = BTreeMap::new();
    for source in sources {
        let (Some(rule), Some(place)) = (plan.rule(&source.rule), places.get(&source.cluster)) else { continue };
        for mirror in plan.mirrors_of(&rule.config) {
            let view = View::begin(&place.factory, source.clone(), rule.clone()).map_err(Failure::run)?;
            views.entry(mirror.to_owned()).or_default().push(view);
        }
    }
    Ok(views)
}
