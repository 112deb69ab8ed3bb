//! Uses a derived custom resource, from its definition to a cache:
//! `cargo run -p steadfast-examples --bin custom_resource`.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::{InformerFactory, ObjectKey, Scope};
use steadfast_apiserver::ApiServer;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Desired state of an `Order`.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "shop.example", version = "v1", kind = "Order", namespaced)]
struct OrderSpec {
    item: String,
    #[serde(default)]
    paid: bool,
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // An embedded cluster for this example. In your program, use `let connection = Connection::infer().await?;`.
    let server = ApiServer::start().await?;
    let connection = steadfast_testing::connection(&server).await?;
    // An ordinary client that shares the connections of the informers.
    let client = connection.client();

    let informers = InformerFactory::new(&connection);
    let definitions = informers.informer::<CustomResourceDefinition>(Scope::all())?;
    informers.wait_for_sync(TIMEOUT).await?;
    Api::all(client.clone()).create(&PostParams::default(), &Order::crd()).await?;
    let established = |definition: Option<&CustomResourceDefinition>| {
        let conditions = definition.and_then(|definition| definition.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Established" && one.status == "True"))
    };
    definitions.until_object(&ObjectKey::cluster(Order::crd_name()), established, TIMEOUT).await?;

    // From here on, the custom resource is used like any other resource.
    let orders = informers.informer::<Order>(Scope::namespace("default"))?;
    orders.wait_for_sync(TIMEOUT).await?;
    let api: Api<Order> = Api::namespaced(client, "default");
    let order = Order::new("first", OrderSpec { item: "tea".to_owned(), paid: false });
    let mut order = api.create(&PostParams::default(), &order).await?;

    // The cache contains the write after this wait.
    orders.wait_for(&order).await?;
    let held = orders.lister()?.get("default", "first")?.ok_or("the order was written")?;
    assert_eq!((held.spec.item.as_str(), held.spec.paid), ("tea", false));

    order.spec.paid = true;
    api.replace("first", &PostParams::default(), &order).await?;
    let paid = |order: Option<&Order>| order.is_some_and(|order| order.spec.paid);
    let order = orders.until_object(&ObjectKey::namespaced("default", "first"), paid, TIMEOUT).await?;
    println!("{} is paid at version {:?}", orders.name(), order.and_then(|order| order.resource_version()));

    informers.shutdown();
    Ok(())
}
