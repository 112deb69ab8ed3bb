//! Check `sizes`: number of objects of each resource, and estimated memory of a cache in each form.

use serde_json::{Value, json};
use steadfast::Lazy;
use steadfast::kube::core::{DynamicObject, PartialObjectMeta};
use steadfast::unstable::cached_bytes;
use steadfast::unstable::catalog::ServedResource;

use super::finding::Finding;
use super::list_sample::{ListSample, ListSamples};
use crate::built_in_groups::is_built_in_group;
use crate::byte_count::format_bytes;
use crate::changes::text::plural;

/// Name of the check.
pub(super) const CHECK: &str = "sizes";

/// Estimated memory of decoded objects above which another form is recommended.
const LARGE_CACHE_BYTES: usize = 1 << 30;

/// Evaluates the pages of objects.
pub(super) fn findings(samples: &ListSamples) -> Vec<Finding> {
    let of_sample = |(resource, sample): &(ServedResource, Result<ListSample, _>)| match sample {
        Ok(sample) => check_resource(resource, sample),
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

fn check_resource(resource: &ServedResource, sample: &ListSample) -> Finding {
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
    // A cache of metadata receives no other fields of the objects.
    let part = |object: &Value| json!({"metadata": object["metadata"]});
    let metadata: Vec<Value> = sample.objects.iter().map(part).collect();
    let all = |bytes: usize| bytes.checked_mul(count).map(|all| all / objects.len());
    Some(CacheEstimate {
        decoded: all(decoded(resource, cached_bytes::<DynamicObject>(&objects, false)?))?,
        lazy: all(cached_bytes::<Lazy<DynamicObject>>(&objects, false)?)?,
        packed: all(cached_bytes::<Lazy<DynamicObject>>(&objects, true)?)?,
        metadata: all(cached_bytes::<PartialObjectMeta<DynamicObject>>(&metadata, false)?)?,
    })
}

/// Memory of an object as its type in `k8s-openapi`, in percent of its memory as `DynamicObject`.
///
/// Measured with pods; a test compares both. The program does not decode the types themselves, since their code would
/// be a fifth of the program.
const TYPED_PERCENT: usize = 55;

/// Returns the memory of decoded objects that take `dynamic` bytes as `DynamicObject`, the form for kinds without a
/// type.
fn decoded(resource: &ServedResource, dynamic: usize) -> usize {
    if is_built_in_group(&resource.api_resource.group) { dynamic.saturating_mul(TYPED_PERCENT) / 100 } else { dynamic }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::default_resources;

    fn pods() -> ServedResource {
        default_resources(None).remove(0)
    }

    fn pod(name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "7", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": "shop/app:1.4", "command": ["x".repeat(2_000)]}]},
        })
    }

    /// Returns a pod as large as a usual one.
    fn full_pod() -> Value {
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-11-01T08:00:00Z"});
        let variable = |number: usize| json!({"name": format!("SETTING_{number}"), "value": format!("value-{number}")});
        let container = |name: &str| {
            json!({
                "name": name, "image": format!("registry.example.com/shop/{name}:1.4.2"), "imagePullPolicy": "IfNotPresent",
                "args": ["--port=8080", "--log=info"], "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "env": (0..8).map(variable).collect::<Vec<_>>(),
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 5},
                "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/token", "readOnly": true}],
                "securityContext": {"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}},
            })
        };
        let status = |name: &str| {
            json!({
                "name": name, "ready": true, "restartCount": 0, "started": true, "image": format!("shop/{name}:1.4.2"),
                "imageID": format!("sha256:{}", "a".repeat(64)), "containerID": format!("containerd://{}", "b".repeat(64)),
                "state": {"running": {"startedAt": "2026-11-01T08:00:00Z"}},
            })
        };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-7d9f-x2x4z", "namespace": "shop", "uid": "5e1c", "resourceVersion": "7",
                "creationTimestamp": "2026-11-01T08:00:00Z", "labels": {"app": "web", "pod-template-hash": "7d9f"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9f", "uid": "4d", "controller": true}],
            },
            "spec": {
                "nodeName": "node-3", "serviceAccountName": "web", "restartPolicy": "Always",
                "containers": [container("app"), container("proxy")],
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
                "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
            },
            "status": {
                "phase": "Running", "podIP": "10.0.0.7", "hostIP": "192.168.0.3", "startTime": "2026-11-01T08:00:00Z",
                "conditions": (["Ready", "Initialized", "ContainersReady", "PodScheduled"].map(condition)),
                "containerStatuses": [status("app"), status("proxy")],
            },
        })
    }

    #[test]
    fn estimate_is_near_typed_memory() {
        let sample = ListSample { objects: vec![full_pod()], count: Some(1) };
        let estimate = estimate(&pods(), &sample, 1).expect("an estimate").decoded;
        let typed = cached_bytes::<k8s_openapi::api::core::v1::Pod>(&sample.objects, false).expect("a decodable pod");
        assert!(estimate.abs_diff(typed) < typed / 5, "estimated {estimate}, typed {typed}");
    }

    #[test]
    fn estimate_scales_with_count() {
        let sample = ListSample { objects: vec![pod("a"), pod("b")], count: Some(2) };
        let two = estimate(&pods(), &sample, 2).expect("an estimate");
        let full =
            estimate(&pods(), &ListSample { objects: vec![full_pod()], count: Some(1) }, 1).expect("an estimate");
        assert!(full.metadata < full.decoded, "{full:?}");
        let thousand = estimate(&pods(), &sample, 1_000).expect("an estimate");
        assert!(thousand.decoded.abs_diff(two.decoded * 500) <= 500, "{thousand:?}, {two:?}");
        assert!(two.decoded > 4_000 && two.lazy > 4_000, "{two:?}");
        // The second object has only its difference to the first one.
        assert!(two.packed > 2_000 && two.packed < two.lazy, "{two:?}");
    }

    #[test]
    fn large_cache_is_reported_with_other_forms() {
        let sample = ListSample { objects: vec![pod("a")], count: Some(1_000_000) };
        let finding = check_resource(&pods(), &sample);
        assert!(finding.remedy.is_some_and(|remedy| remedy.contains("Lazy<K>")));
        let uncounted = ListSample { count: None, ..sample };
        assert!(check_resource(&pods(), &uncounted).message.contains("does not report the number"));
    }
}
