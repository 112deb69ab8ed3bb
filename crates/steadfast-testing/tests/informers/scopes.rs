//! Scopes of requests to a factory.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use steadfast::Scope;
use steadfast_testing::{TestError, config_map_in};

use super::{EVENT_TIMEOUT, InformerFixture, names};

#[tokio::test(start_paused = true)]
async fn default_scope_completes_requested_scopes() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let default = Scope::namespace("shop").labels("app=web");
    let factory = fixture.factory.with_default_scope(default.clone());
    assert_eq!(factory.informer::<Pod>(Scope::all())?.scope(), &default);
    let failed = factory.informer::<Pod>(Scope::all().fields("status.phase=Failed"))?;
    assert_eq!(failed.scope(), &default.clone().fields("status.phase=Failed"));
    let other_namespace = factory.informer::<Pod>(Scope::namespace("bank").labels("tier"))?;
    assert_eq!(other_namespace.scope(), &Scope::namespace("bank").labels("tier"));
    // Nodes are cluster-scoped, so only the labels of the default scope apply.
    assert_eq!(factory.informer::<Node>(Scope::all())?.scope(), &Scope::all().labels("app=web"));
    let error = factory.informer::<Node>(Scope::namespace("shop")).expect_err("a requested namespace is an error");
    assert!(error.to_string().contains("cluster-scoped"), "{error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn default_scope_shares_informers_of_factory() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for namespace in ["default", "kube-system"] {
        fixture.server.create(&config_map_in(namespace, namespace, "1"))?;
    }
    let factory = fixture.factory.with_default_scope(Scope::namespace("default"));
    let defaulted = factory.informer::<ConfigMap>(Scope::all())?;
    let shared_informer = fixture.factory.informer::<ConfigMap>(Scope::namespace("default"))?;
    assert_eq!(defaulted.cache_id(), shared_informer.cache_id());
    fixture.factory.wait_for_sync(EVENT_TIMEOUT).await?;
    assert_eq!(names(&defaulted.lister()?.all()), ["default"]);
    fixture.factory.shutdown();
    assert!(factory.informer::<ConfigMap>(Scope::all()).is_err(), "both handles share the shutdown");
    Ok(())
}
