//! Filters for relevant changes of an object.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube::Resource;
use steadfast::Cacheable;

/// Filter for the changes that trigger a reconcile. Defaults to all changes.
///
/// Creation, deletion, replacement by another object of the same name, and a change of `deletionTimestamp` always
/// match; no filter can hide them. A change that maps the object to other keys always matches too, for example a child
/// with a new owner.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use steadfast_controller::ChangeFilter;
///
/// // Changes of the spec or of the labels, not of the status.
/// let filter = ChangeFilter::<Deployment>::of_generation().or(ChangeFilter::of_labels());
/// // Changes of one field.
/// let filter = ChangeFilter::of(|deployment: &Deployment| deployment.spec.replicas);
/// ```
pub struct ChangeFilter<R> {
    /// Returns true if the change from the first to the second state is relevant. Without a predicate, all changes
    /// match.
    predicate: Option<RelevancePredicate<R>>,
}

type RelevancePredicate<R> = Arc<dyn Fn(&R, &R) -> bool + Send + Sync>;

impl<R: Resource + 'static> ChangeFilter<R> {
    /// Matches all changes.
    #[must_use]
    pub fn all() -> Self {
        Self { predicate: None }
    }

    /// Matches changes of `metadata.generation`: changes of the spec, not of the status. All changes of an object
    /// without a generation match.
    #[must_use]
    pub fn of_generation() -> Self {
        Self::between(|old, new| {
            let generation = new.meta().generation;
            generation.is_none() || old.meta().generation != generation
        })
    }

    /// Matches changes of the labels.
    #[must_use]
    pub fn of_labels() -> Self {
        Self::between(|old, new| old.meta().labels != new.meta().labels)
    }

    /// Matches changes of the annotations.
    #[must_use]
    pub fn of_annotations() -> Self {
        Self::between(|old, new| old.meta().annotations != new.meta().annotations)
    }

    /// Matches changes of the value that `project` returns.
    #[must_use]
    pub fn of<P: PartialEq>(project: impl Fn(&R) -> P + Send + Sync + 'static) -> Self {
        Self::between(move |old, new| project(old) != project(new))
    }

    /// Matches changes that this filter or `other` matches.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        // `None` accepts all changes, so the union with any filter accepts all as well.
        let Some((own, others)) = self.predicate.zip(other.predicate) else { return Self::all() };
        Self::between(move |old, new| own(old, new) || others(old, new))
    }

    fn between(is_relevant: impl Fn(&R, &R) -> bool + Send + Sync + 'static) -> Self {
        Self { predicate: Some(Arc::new(is_relevant)) }
    }

    /// Returns true if the change from `old` to `new` is relevant. Undecodable states and panics in the filter count as
    /// relevant.
    pub(super) fn is_relevant<K: Cacheable<Resource = R>>(&self, old: &K, new: &K) -> bool {
        let Some(predicate) = &self.predicate else { return true };
        let read = || {
            old.read_whole(|old| {
                new.read_whole(|new| {
                    let (was, is) = (old.meta(), new.meta());
                    // The start of a deletion and a recreation always matter: finalizers and owners depend on them.
                    was.deletion_timestamp != is.deletion_timestamp || was.uid != is.uid || predicate(old, new)
                })
            })
        };
        // A filter that panics or an undecodable object must not hide a change.
        !matches!(catch_unwind(AssertUnwindSafe(read)), Ok(Ok(Ok(false))))
    }
}

impl<R> Clone for ChangeFilter<R> {
    fn clone(&self) -> Self {
        Self { predicate: self.predicate.clone() }
    }
}

impl<R> fmt::Debug for ChangeFilter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.predicate.is_some() { "ChangeFilter(some)" } else { "ChangeFilter(all)" })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn pod(change: impl FnOnce(&mut Pod)) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some("u".into());
        pod.metadata.generation = Some(1);
        change(&mut pod);
        pod
    }

    fn is_relevant(filter: &ChangeFilter<Pod>, change: impl FnOnce(&mut Pod)) -> bool {
        filter.is_relevant(&pod(|_| {}), &pod(change))
    }

    fn filters() -> Vec<ChangeFilter<Pod>> {
        let node = || ChangeFilter::of(|pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
        vec![
            ChangeFilter::of_generation(),
            ChangeFilter::of_labels(),
            ChangeFilter::of_annotations(),
            node(),
            node().or(ChangeFilter::of_labels()),
        ]
    }

    #[test]
    fn unselected_changes_are_ignored() {
        for filter in filters() {
            assert!(!is_relevant(&filter, |pod| pod.metadata.resource_version = Some("2".into())));
        }
        assert!(is_relevant(&ChangeFilter::all(), |pod| pod.metadata.resource_version = Some("2".into())));
    }

    #[test]
    fn selected_changes_match() {
        assert!(is_relevant(&ChangeFilter::of_generation(), |pod| pod.metadata.generation = Some(2)));
        assert!(is_relevant(&ChangeFilter::of_generation(), |pod| pod.metadata.generation = None));
        let either = ChangeFilter::of_generation().or(ChangeFilter::of_labels());
        assert!(is_relevant(&either, |pod| pod.metadata.generation = Some(2)));
        assert!(is_relevant(&either, |pod| pod.metadata.labels = Some([("a".into(), "b".into())].into())));
        assert!(!is_relevant(&either, |pod| pod.metadata.annotations = Some([("a".into(), "b".into())].into())));
        assert!(is_relevant(&ChangeFilter::all().or(ChangeFilter::of_labels()), |_| {}));
    }

    #[test]
    fn deletion_and_replacement_always_match() {
        for filter in filters() {
            assert!(is_relevant(&filter, |pod| pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH))));
            assert!(is_relevant(&filter, |pod| pod.metadata.uid = Some("v".into())));
        }
    }
}
