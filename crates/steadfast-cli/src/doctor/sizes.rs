//! Check `sizes`: number of objects of each resource, and estimated memory of a cache in each form.

use serde_json::{Value, json};
use steadfast::k8s_openapi::api::{apps, batch, coordination, core, discovery};
use steadfast::kube::core::{DynamicObject, PartialObjectMeta};
use steadfast::unstable::cached_bytes;
use steadfast::unstable::catalog::ServedResource;
use steadfast::{Cacheable, Lazy};

use super::finding::Finding;
use super::list_sample::{ListSample, ListSamples};
use crate::byte_count::format_bytes;
use crate::changes::text::plural;

/// Name of the check.
pub(super) const CHECK: &str = "sizes";

/// Estimated memory of decoded objects above which another form is recommended.
const LARGE_CACHE_BYTES: usize = 1 << 30;

/// Evaluates the pages of objects.
pub(super) fn findings(samples: &ListSamples) -> Vec<Finding> {
    let of_sample = |(resource, sample): &(ServedResource, Result<ListSample, _>)| match sample {
        Ok(sample) => of_resource(resource, sample),
        Err(error) => Finding::not_checked(CHECK, resource, error),
    };
    samples.iter().map(of_sample).collect()
}

/// Estimated memory in bytes of a cache with all objects of a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CacheEstimate {
    decoded: usize,
    lazy: usize,
    packed: usize,
    metadata: usize,
}

fn of_resource(resource: &ServedResource, sample: &ListSample) -> Finding {
    let sampled = sample.objects.len();
    let Some(count) = sample.count else {
        return Finding::not_checked(
            CHECK,
            resource,
            format!("the server does not report the number of objects; {sampled} were listed"),
        );
    };
    if sampled == 0 {
        let data = json!({"objects": 0});
        return Finding::ok(CHECK, resource, "no objects").with_data(data);
    }
    let json: usize = sample.objects.iter().map(|object| object.to_string().len()).sum();
    let Some(estimate) = estimate(resource, sample, count) else {
        return Finding::not_checked(
            CHECK,
            resource,
            format!("{count} objects, which cannot be decoded as {}", resource.api_resource.kind),
        );
    };
    let CacheEstimate { decoded, lazy, packed, metadata } = estimate;
    let size = |bytes: usize| format_bytes(bytes as u64);
    let message = format!(
        "{} of {} on average; estimated cache: decoded {}, Lazy {}, Lazy and packed {}, metadata only {} (from \
         a sample of {sampled})",
        plural(count, "object"),
        size(json / sampled),
        size(decoded),
        size(lazy),
        size(packed),
        size(metadata),
    );
    let data = json!({
        "objects": count, "sampled": sampled, "averageBytes": json / sampled, "decodedBytes": decoded, "lazyBytes": lazy,
        "packedBytes": packed, "metadataBytes": metadata,
    });
    let finding = if decoded > LARGE_CACHE_BYTES {
        Finding::warning(
            CHECK,
            resource,
            message,
            "each program with an informer of this resource needs this memory",
            "cache `Lazy<K>` packed, only the metadata, or a type with the needed fields, or select objects by labels",
        )
    } else {
        Finding::ok(CHECK, resource, message)
    };
    finding.with_data(data)
}

/// Estimates the memory of `count` objects from the sample.
fn estimate(resource: &ServedResource, sample: &ListSample, count: usize) -> Option<CacheEstimate> {
    let objects: Vec<Value> = sample.objects.iter().map(|object| complete(resource, object)).collect();
    // A server that sends only the metadata sends no other fields.
    let part = |object: &Value| json!({"metadata": object["metadata"]});
    let metadata: Vec<Value> = sample.objects.iter().map(part).collect();
    let all = |bytes: usize| bytes.checked_mul(count).map(|all| all / objects.len());
    Some(CacheEstimate {
        decoded: all(decoded(resource, &objects)?)?,
        lazy: all(cached_bytes::<Lazy<DynamicObject>>(&objects, false)?)?,
        packed: all(cached_bytes::<Lazy<DynamicObject>>(&objects, true)?)?,
        metadata: all(cached_bytes::<PartialObjectMeta<DynamicObject>>(&metadata, false)?)?,
    })
}

/// Returns the object with its type, which items of a list lack.
fn complete(resource: &ServedResource, object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        let served = &resource.api_resource;
        fields.entry("apiVersion").or_insert_with(|| served.api_version.clone().into());
        fields.entry("kind").or_insert_with(|| served.kind.clone().into());
    }
    object
}

/// Returns the memory of the objects as values of their type in `k8s-openapi`, or as `DynamicObject`.
fn decoded(resource: &ServedResource, objects: &[Value]) -> Option<usize> {
    fn of<K: Cacheable>(objects: &[Value]) -> Option<usize> {
        cached_bytes::<K>(objects, false)
    }
    let measure = match (resource.api_resource.group.as_str(), resource.api_resource.kind.as_str()) {
        ("", "Pod") => of::<core::v1::Pod>,
        ("", "Service") => of::<core::v1::Service>,
        ("", "ConfigMap") => of::<core::v1::ConfigMap>,
        ("", "Secret") => of::<core::v1::Secret>,
        ("", "Event") => of::<core::v1::Event>,
        ("", "Node") => of::<core::v1::Node>,
        ("", "Namespace") => of::<core::v1::Namespace>,
        ("discovery.k8s.io", "EndpointSlice") => of::<discovery::v1::EndpointSlice>,
        ("apps", "Deployment") => of::<apps::v1::Deployment>,
        ("apps", "ReplicaSet") => of::<apps::v1::ReplicaSet>,
        ("apps", "StatefulSet") => of::<apps::v1::StatefulSet>,
        ("apps", "DaemonSet") => of::<apps::v1::DaemonSet>,
        ("batch", "Job") => of::<batch::v1::Job>,
        ("coordination.k8s.io", "Lease") => of::<coordination::v1::Lease>,
        _ => of::<DynamicObject>,
    };
    measure(objects)
}

#[cfg(test)]
mod tests {
    use super::super::context::default_resources;
    use super::*;

    fn pods() -> ServedResource {
        default_resources(None).remove(0)
    }

    fn pod(name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "7", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": "shop/app:1.4", "command": ["x".repeat(2_000)]}]},
        })
    }

    #[test]
    fn estimate_scales_with_count() {
        let sample = ListSample { objects: vec![pod("a"), pod("b")], count: Some(2) };
        let two = estimate(&pods(), &sample, 2).expect("an estimate");
        let thousand = estimate(&pods(), &sample, 1_000).expect("an estimate");
        assert_eq!(thousand.decoded, two.decoded * 500);
        assert!(two.decoded > 4_000 && two.lazy > 4_000, "{two:?}");
        // The second object has only its difference to the first one.
        assert!(two.packed > 2_000 && two.packed < two.lazy && two.metadata < two.decoded, "{two:?}");
    }

    #[test]
    fn large_cache_is_reported_with_other_forms() {
        let sample = ListSample { objects: vec![pod("a")], count: Some(1_000_000) };
        let finding = of_resource(&pods(), &sample);
        assert!(finding.remedy.is_some_and(|remedy| remedy.contains("Lazy<K>")));
        let uncounted = ListSample { count: None, ..sample };
        assert!(of_resource(&pods(), &uncounted).message.contains("does not report the number"));
    }
}
