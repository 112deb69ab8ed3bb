//! Definition of a pool, shared by both controllers.

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec};
use kube::{Resource, ResourceExt};

/// Returns the number of pods that the pool requires.
pub(crate) fn size_of(pool: &ConfigMap) -> usize {
    let size = pool.data.as_ref().and_then(|data| data.get("size"));
    size.and_then(|size| size.parse().ok()).unwrap_or_default()
}

/// Returns `true` if the pod belongs to the pool and is not being deleted.
pub(crate) fn is_of(pod: &impl Resource, pool: &ConfigMap) -> bool {
    let is_owned = pod.owner_references().iter().any(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref());
    is_owned && pod.meta().deletion_timestamp.is_none()
}

/// Returns a new pod of the pool, with a generated name.
pub(crate) fn pod_of(pool: &ConfigMap) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.generate_name = Some(format!("{}-", pool.name_any()));
    pod.metadata.labels = Some([("pool".to_owned(), pool.name_any())].into());
    pod.metadata.owner_references = pool.controller_owner_ref(&()).map(|owner| vec![owner]);
    let main = Container { name: "main".into(), image: Some("pause:3".into()), ..Container::default() };
    pod.spec = Some(PodSpec { containers: vec![main], ..PodSpec::default() });
    pod
}
