//! Which changes of an object matter to a controller.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube::Resource;
use steadfast::Kept;

/// Which changes of an object have a controller called: all, unless something is said.
///
/// That an object is there, is gone, or is another one of the same name always matters, and so does a change of its
/// `deletionTimestamp`: no choice made here can swallow these. A change that maps the object to other keys always matters
/// too, for example when a child gets another owner.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use steadfast_controller::Changes;
///
/// // Of what the user wants, or of the labels; not of the status.
/// let changes = Changes::<Deployment>::of_generation().or(Changes::of_labels());
/// // Of one field.
/// let replicas = Changes::of(|deployment: &Deployment| deployment.spec.replicas);
/// ```
pub struct Changes<R> {
    /// Whether the second state matters to who knows the first; none for always.
    matters: Option<Matters<R>>,
}

type Matters<R> = Arc<dyn Fn(&R, &R) -> bool + Send + Sync>;

impl<R: Resource + 'static> Changes<R> {
    /// All.
    #[must_use]
    pub fn all() -> Self {
        Self { matters: None }
    }

    /// Those of `metadata.generation`: of what somebody wants, not of the status. An object without one always matters.
    #[must_use]
    pub fn of_generation() -> Self {
        Self::between(|old, new| {
            let generation = new.meta().generation;
            generation.is_none() || old.meta().generation != generation
        })
    }

    /// Those of the labels.
    #[must_use]
    pub fn of_labels() -> Self {
        Self::between(|old, new| old.meta().labels != new.meta().labels)
    }

    /// Those of the annotations.
    #[must_use]
    pub fn of_annotations() -> Self {
        Self::between(|old, new| old.meta().annotations != new.meta().annotations)
    }

    /// Those of what `project` finds in the object.
    #[must_use]
    pub fn of<P: PartialEq>(project: impl Fn(&R) -> P + Send + Sync + 'static) -> Self {
        Self::between(move |old, new| project(old) != project(new))
    }

    /// Those that matter here or to `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let Some((own, others)) = self.matters.zip(other.matters) else { return Self::all() };
        Self::between(move |old, new| own(old, new) || others(old, new))
    }

    fn between(matters: impl Fn(&R, &R) -> bool + Send + Sync + 'static) -> Self {
        Self { matters: Some(Arc::new(matters)) }
    }

    /// Whether `new` matters to who knows `old`. What cannot be decoded does, and so does what makes the choice panic.
    pub(super) fn matter<K: Kept<Resource = R>>(&self, old: &K, new: &K) -> bool {
        let Some(matters) = &self.matters else { return true };
        let read = || {
            old.read_whole(|old| {
                new.read_whole(|new| {
                    let (was, is) = (old.meta(), new.meta());
                    was.deletion_timestamp != is.deletion_timestamp || was.uid != is.uid || matters(old, new)
                })
            })
        };
        !matches!(catch_unwind(AssertUnwindSafe(read)), Ok(Ok(Ok(false))))
    }
}

impl<R> Clone for Changes<R> {
    fn clone(&self) -> Self {
        Self { matters: self.matters.clone() }
    }
}

impl<R> fmt::Debug for Changes<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.matters.is_some() { "Changes(some)" } else { "Changes(all)" })
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

    fn matter(changes: &Changes<Pod>, change: impl FnOnce(&mut Pod)) -> bool {
        changes.matter(&pod(|_| {}), &pod(change))
    }

    fn choices() -> Vec<Changes<Pod>> {
        let node = || Changes::of(|pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
        vec![
            Changes::of_generation(),
            Changes::of_labels(),
            Changes::of_annotations(),
            node(),
            node().or(Changes::of_labels()),
        ]
    }

    #[test]
    fn what_was_not_chosen_does_not_matter() {
        for changes in choices() {
            assert!(!matter(&changes, |pod| pod.metadata.resource_version = Some("2".into())));
        }
        assert!(matter(&Changes::all(), |pod| pod.metadata.resource_version = Some("2".into())));
    }

    #[test]
    fn what_was_chosen_matters() {
        assert!(matter(&Changes::of_generation(), |pod| pod.metadata.generation = Some(2)));
        assert!(matter(&Changes::of_generation(), |pod| pod.metadata.generation = None));
        let either = Changes::of_generation().or(Changes::of_labels());
        assert!(matter(&either, |pod| pod.metadata.generation = Some(2)));
        assert!(matter(&either, |pod| pod.metadata.labels = Some([("a".into(), "b".into())].into())));
        assert!(!matter(&either, |pod| pod.metadata.annotations = Some([("a".into(), "b".into())].into())));
        assert!(matter(&Changes::all().or(Changes::of_labels()), |_| {}));
    }

    #[test]
    fn no_choice_swallows_that_an_object_is_being_deleted_or_is_another_one() {
        for changes in choices() {
            assert!(matter(&changes, |pod| pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH))));
            assert!(matter(&changes, |pod| pod.metadata.uid = Some("v".into())));
        }
    }
}
