//! The caches of a real server's protobuf and of its JSON must be equal.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource};
use serde_json::{Value, json};
use steadfast::{Cacheable, Encoding, Informer, InformerFactory, Lazy, Scope};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::support::{EVENT_TIMEOUT, define, definition, kind_of, until};

/// Two informers of one scope, one per encoding.
struct EncodingPair<K: Cacheable> {
    json: Informer<K>,
    protobuf: Informer<K>,
}

impl<K: Cacheable + Debug> EncodingPair<K> {
    async fn start(
        reference: &Reference,
        kind: &<K::Resource as Resource>::DynamicType,
        streamed: bool,
    ) -> Result<Self, TestError> {
        let start = async |protobuf: bool| -> Result<Informer<K>, TestError> {
            let factory = InformerFactory::new(&reference.connection().await?);
            let builder = factory.builder_with::<K>(kind, Scope::all()).streamed_lists(streamed).protobuf(protobuf);
            let informer = builder.keep_managed_fields().start()?;
            informer.wait_for_sync(EVENT_TIMEOUT).await?;
            Ok(informer)
        };
        Ok(Self { json: start(false).await?, protobuf: start(true).await? })
    }

    /// Waits until both caches contain the same versions.
    async fn until_equal_versions(&self) -> Result<(), TestError> {
        let versions = |informer: &Informer<K>| -> Vec<(String, String)> {
            let objects = informer.snapshot();
            objects.iter().map(|object| (object.key().to_string(), object.version().to_string())).collect()
        };
        until("both caches have the same versions", || versions(&self.json) == versions(&self.protobuf)).await
    }

    /// Waits until both caches are equal, and returns the number of objects.
    async fn compare(&self) -> Result<usize, TestError> {
        self.until_equal_versions().await?;
        let (json, protobuf) = (self.json.lister()?.all(), self.protobuf.lister()?.all());
        for (json, protobuf) in json.iter().zip(&protobuf) {
            // Not all types implement comparison, but all implement `Debug`.
            assert_eq!(format!("{:?}", **json), format!("{:?}", **protobuf), "{}", json.key());
        }
        Ok(protobuf.len())
    }
}

/// Returns the content type of the response to a request that prefers protobuf.
async fn content_type(client: &Client, path: &str) -> Result<String, TestError> {
    let accept = "application/vnd.kubernetes.protobuf,application/json";
    let request = http::Request::get(path).header("accept", accept).body(kube::client::Body::empty())?;
    let response = client.send(request).await?;
    Ok(response.headers()["content-type"].to_str()?.to_owned())
}

fn deployment(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"text": "zwölf ☸ \"12\"", "empty": ""}},
        "spec": {
            "replicas": 0, "paused": false, "minReadySeconds": 3, "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "volumes": [
                        {"name": "a", "emptyDir": {"sizeLimit": "1536Mi"}},
                        {"name": "b", "projected": {"sources": [{"configMap": {"name": "c", "optional": true}}]}},
                    ],
                    "securityContext": {"supplementalGroups": [0, 4711], "runAsUser": 0},
                    "containers": [{
                        "name": "main", "image": "example/main:1", "args": ["", "-v"],
                        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                        "ports": [{"name": "http", "containerPort": 8080}],
                        "resources": {"limits": {"cpu": "0.5", "memory": "1e9"}, "requests": {"cpu": "100m"}},
                        "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 7},
                    }],
                },
            },
        },
    })
}

async fn write_objects(client: &Client) -> Result<(), TestError> {
    let (params, patch_params) = (PostParams::default(), PatchParams::default());
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    for name in ["one", "two", "three"] {
        deployments.create(&params, &serde_json::from_value(deployment(name))?).await?;
    }
    let secret = json!({"metadata": {"name": "s"}, "data": {"bytes": "AP+AfwA=", "none": ""}, "immutable": false});
    secrets.create(&params, &serde_json::from_value(secret)?).await?;
    let service = json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "one"}, "ports": [
        {"name": "http", "port": 80, "targetPort": "http"}, {"name": "other", "port": 81, "targetPort": 8081},
    ]}});
    services.create(&params, &serde_json::from_value(service)?).await?;
    let change = json!({"spec": {"replicas": 7}, "metadata": {"labels": {"changed": "yes"}}});
    deployments.patch("two", &patch_params, &Patch::Merge(change)).await?;
    deployments.delete("three", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protobuf_and_json_caches_are_equal() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let client = reference.connection().await?.client();
    let protobuf = "application/vnd.kubernetes.protobuf";
    assert_eq!(content_type(&client, "/apis/apps/v1/deployments?limit=1").await?, protobuf);
    let stream = content_type(&client, "/api/v1/configmaps?watch=true&timeoutSeconds=1").await?;
    assert_eq!(stream, format!("{protobuf};stream=watch"));

    // Custom resources are always served as JSON.
    define(&reference, definition("Kettle", &[("v1", true)])).await?;
    let kettles = kind_of(crate::support::GROUP, "v1", "Kettle");
    let dynamic = ApiResource::erase::<Deployment>(&());
    for (round, streamed) in [true, false].into_iter().enumerate() {
        let deployments = EncodingPair::<Deployment>::start(&reference, &(), streamed).await?;
        let services = EncodingPair::<Service>::start(&reference, &(), streamed).await?;
        let secrets = EncodingPair::<Secret>::start(&reference, &(), streamed).await?;
        let as_dynamic = EncodingPair::<DynamicObject>::start(&reference, &dynamic, streamed).await?;
        let lazy = EncodingPair::<Lazy<Deployment>>::start(&reference, &(), streamed).await?;
        let metadata = EncodingPair::<PartialObjectMeta<Deployment>>::start(&reference, &(), streamed).await?;
        let kettles = EncodingPair::<DynamicObject>::start(&reference, &kettles, streamed).await?;
        if round == 0 {
            // In this round the caches receive the writes by their watches, and in the next round by lists.
            write_objects(&client).await?;
            let kettle = DynamicObject::new("k", &kind_of(crate::support::GROUP, "v1", "Kettle"));
            let kettle = kettle.data(json!({"spec": {"boils": true}}));
            let kettles = kind_of(crate::support::GROUP, "v1", "Kettle");
            Api::<DynamicObject>::namespaced_with(client.clone(), "default", &kettles)
                .create(&PostParams::default(), &kettle)
                .await?;
            let last: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
            last.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "last"}}))?)
                .await?;
        }
        for (count, min_count) in [
            (compare_at_least(&deployments, 2).await?, 2),
            (compare_at_least(&as_dynamic, 2).await?, 2),
            (compare_at_least(&metadata, 2).await?, 2),
            (compare_at_least(&services, 2).await?, 2),
            (compare_at_least(&secrets, 1).await?, 1),
            (compare_at_least(&kettles, 1).await?, 1),
            (compare_lazily(&lazy).await?, 2),
            (EncodingPair::<Namespace>::start(&reference, &(), streamed).await?.compare().await?, 2),
            (EncodingPair::<CustomResourceDefinition>::start(&reference, &(), streamed).await?.compare().await?, 1),
            (EncodingPair::<APIService>::start(&reference, &(), streamed).await?.compare().await?, 10),
            (EncodingPair::<Node>::start(&reference, &(), streamed).await?.compare().await?, 0),
        ] {
            assert!(count >= min_count, "{count} objects, not {min_count}");
        }
        for informer in [&deployments.protobuf, &deployments.json] {
            let two = informer.lister()?.get("default", "two")?.ok_or("the object was changed, not deleted")?;
            assert_eq!(two.spec.replicas, Some(7));
            assert!(informer.lister()?.get("default", "three")?.is_none(), "the object was deleted");
        }
    }
    Ok(())
}

/// Waits until both caches have the objects, each in its own encoding. Returns the number of objects that decode to
/// equal values.
async fn compare_lazily(pair: &EncodingPair<Lazy<Deployment>>) -> Result<usize, TestError> {
    until("both caches have the objects", || pair.protobuf.snapshot().len() >= 2).await?;
    pair.until_equal_versions().await?;
    let (json, protobuf) = (pair.json.lister()?.all(), pair.protobuf.lister()?.all());
    for (json, protobuf) in json.iter().zip(&protobuf) {
        assert_eq!((json.encoding(), protobuf.encoding()), (Encoding::Json, Encoding::Protobuf));
        assert_eq!(*json.get()?, *protobuf.get()?, "{}", json.key());
    }
    Ok(protobuf.len())
}

/// Waits for at least `min_count` objects, and checks that both caches are equal.
async fn compare_at_least<K: Cacheable + Debug>(pair: &EncodingPair<K>, min_count: usize) -> Result<usize, TestError> {
    until("all objects are cached", || pair.protobuf.snapshot().len() >= min_count).await?;
    pair.compare().await
}
