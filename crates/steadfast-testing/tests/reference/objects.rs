//! Objects that only a real server accepts.

use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::json;
use steadfast::{InformerFactory, Scope};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::support::{EVENT_TIMEOUT, GROUP, define, definition, kind_of, until_fresh};

/// Nesting depth above the limit of `serde_json` and most other parsers. A real server accepts thousands of levels.
const LEVELS: usize = 200;

/// Tests an object that a real server accepts and no informer can decode (R8).
pub(crate) async fn deeply_nested_object(reference: &Reference) -> Result<(), TestError> {
    define(reference, definition("Well", &[("v1", true)])).await?;
    let kind = kind_of(GROUP, "v1", "Well");
    let client = reference.connection().await?.client();
    let wells: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let shallow_object = DynamicObject::new("shallow", &kind).data(json!({"spec": {}}));
    wells.create(&PostParams::default(), &shallow_object).await?;
    // As text, because a parsed tree would exceed the limit.
    let (opening, closing) = (r#"{"down":"#.repeat(LEVELS), "}".repeat(LEVELS));
    let metadata = r#"{"name":"deep"}"#;
    let deep_object =
        format!(r#"{{"apiVersion":"{GROUP}/v1","kind":"Well","metadata":{metadata},"spec":{opening}1{closing}}}"#);
    let path = format!("/apis/{GROUP}/v1/namespaces/default/wells");
    let request =
        http::Request::post(&path).header("content-type", "application/json").body(deep_object.into_bytes())?;
    client.request_text(request).await?;
    let response = client.request_text(http::Request::get(format!("{path}/deep")).body(Vec::new())?).await?;
    assert_eq!(response.matches("\"down\"").count(), LEVELS);
    assert!(wells.list(&ListParams::default()).await.is_err(), "the object must be too deep for other parsers");

    let mut informers = Vec::new();
    for streamed in [true, false] {
        let factory = InformerFactory::new(&reference.connection().await?);
        let builder = factory.builder_with::<DynamicObject>(&kind, Scope::namespace("default"));
        let informer = builder.streamed_lists(streamed).start()?;
        informer.wait_for_sync(EVENT_TIMEOUT).await?;
        let lister = informer.lister()?;
        assert!(lister.get("default", "shallow")?.is_some());
        let error = lister.get("default", "deep").expect_err("the object is too deep").to_string();
        assert!(error.contains("default/deep"), "{error}");
        until_fresh(&informer).await?;
        assert!(informer.freshness().to_string().contains("default/deep"), "{}", informer.freshness());
        informers.push(informer);
    }
    // The deletion of this object is delivered with its identity only. Later events are not affected.
    let request = http::Request::delete(format!("{path}/deep")).body(Vec::new())?;
    client.request_text(request).await?;
    let later_object = wells.create(&PostParams::default(), &DynamicObject::new("later", &kind)).await?;
    for informer in informers {
        informer.wait_for(&later_object).await?;
        assert!(informer.lister()?.get("default", "deep")?.is_none(), "the object is deleted");
        assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    }
    Ok(())
}
