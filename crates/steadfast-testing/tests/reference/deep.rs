//! One object that a real server takes and nobody here can decode.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use steadfast::{InformerFactory, Scope};
use steadfast_testing::reference::Reference;
use steadfast_testing::{WorldError, widget_definition};

const SOON: Duration = Duration::from_secs(30);

/// As deep as the object is nested; `serde_json` goes to 128.
const LEVELS: usize = 200;

fn widget(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "deep.test/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec })
}

/// Writes past the types of kube, which cannot hold an answer that is as deep.
async fn create(reference: &Reference, body: &Value) -> Result<(), WorldError> {
    let client = reference.connection().await?.client();
    let path = "/apis/deep.test/v1/namespaces/default/widgets";
    let request =
        http::Request::post(path).header("content-type", "application/json").body(serde_json::to_vec(body)?)?;
    let answer = client.send(request.map(Into::into)).await?;
    let status = answer.status();
    if status.is_success() { Ok(()) } else { Err(format!("{path}: {status}").into()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deep_custom_resource_is_unknown_and_all_others_are_there() -> Result<(), WorldError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let client = reference.connection().await?.client();
    let definition = serde_json::from_value(widget_definition("deep.test"))?;
    let definitions: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition")),
    );
    definitions.create(&PostParams::default(), &definition).await?;

    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("deep.test", "v1", "Widget"));
    let served = async {
        while create(&reference, &widget("a", &json!({ "size": 1 }))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(SOON, served).await?;
    let deep = (0..LEVELS).fold(json!(1), |within, _| json!({ "a": within }));
    create(&reference, &widget("deep", &deep)).await?;
    create(&reference, &widget("z", &json!({ "size": 1 }))).await?;

    for streamed in [true, false] {
        let factory = InformerFactory::new(&reference.connection().await?);
        let builder = factory.build_with::<DynamicObject>(&kind, Scope::namespace("default"));
        let informer = builder.streamed_lists(streamed).start()?;
        informer.wait_for_sync(SOON).await?;
        let lister = informer.lister()?;
        assert!(lister.get("default", "a")?.is_some() && lister.get("default", "z")?.is_some());
        let unknown = lister.get("default", "deep").expect_err("nobody here can say what it is");
        assert!(unknown.to_string().contains("default/deep"), "{unknown}");
        let fresh = async {
            while !informer.freshness().is_fresh() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, fresh).await?;
        assert!(informer.freshness().to_string().contains("default/deep"), "{}", informer.freshness());

        let widgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
        let grow = Patch::Merge(json!({ "spec": { "size": if streamed { 2 } else { 3 } } }));
        informer.wait_for(&widgets.patch("a", &PatchParams::default(), &grow).await?).await?;
        factory.shutdown();
    }
    Ok(())
}
