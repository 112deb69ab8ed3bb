//! Demonstration of the operator on an embedded cluster, with a client that uses it.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, CustomResourceExt, ResourceExt};
use serde_json::json;
use steadfast::{Informer, InformerFactory, ObjectKey, Scope};
use steadfast_apiserver::ApiServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::http::{Metrics, routes};
use super::operate::operate;
use super::site::{Site, SiteSpec};

type Error = Box<dyn std::error::Error + Send + Sync>;

const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn demo() -> Result<(), Error> {
    let server = ApiServer::start().await?;
    let connection = steadfast_testing::connection(&server).await?;
    let (informers, metrics) = (InformerFactory::new(&connection), Metrics::default());
    define(&connection.client(), &informers).await?;
    let sites = informers.informer::<Site>(Scope::all())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(axum::serve(listener, routes(&informers, &metrics)).into_future());

    let (done, is_done) = tokio::sync::oneshot::channel::<()>();
    let exercised = async {
        let result = exercise(connection.client(), &sites, address).await;
        drop(done);
        result
    };
    tokio::try_join!(operate(&informers, &metrics, async { drop(is_done.await) }), exercised)?;
    serving.abort();
    informers.shutdown();
    Ok(())
}

/// Creates, changes and deletes a site.
async fn exercise(client: Client, sites: &Informer<Site>, address: SocketAddr) -> Result<(), Error> {
    let api = Api::<Site>::namespaced(client.clone(), "default");
    api.create(&PostParams::default(), &Site::new("shop", SiteSpec { pages: 3 })).await?;
    let shop = ObjectKey::namespaced("default", "shop");
    let has = |ready: usize| {
        move |site: Option<&Site>| {
            site.and_then(|site| site.status.as_ref()).is_some_and(|status| status.ready == ready)
        }
    };
    sites.until_object(&shop, has(3), TIMEOUT).await?;
    println!("three pages exist");

    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let first = maps.list(&ListParams::default()).await?.items.into_iter().next().ok_or("the site must have a page")?;
    maps.delete(&first.name_any(), &DeleteParams::default()).await?;
    api.patch("shop", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "pages": 5 } }))).await?;
    sites.until_object(&shop, has(5), TIMEOUT).await?;
    println!("a lost page was replaced, and five pages exist");

    api.delete("shop", &DeleteParams::default()).await?;
    sites.until_object(&shop, |site| site.is_none(), TIMEOUT).await?;
    assert_eq!(maps.list(&ListParams::default()).await?.items.len(), 0, "no page remains");
    println!("the pages were deleted, and then the site");

    assert!(request(address, "/readyz").await?.ends_with("\r\n\r\nok\n"));
    let metrics = request(address, "/metrics").await?;
    let calls = sample(&metrics, r#"controller_runtime_reconcile_total{controller="sites",result="success"}"#)?;
    let pages = sample(&metrics, r#"steadfast_events_recorded_total{recorder="site-operator"}"#)?;
    println!("{calls} reconciles created {pages} pages");
    // Three pages, one replacement, and two more pages.
    assert_eq!(pages, 6);
    assert!(calls >= 3 && sample(&metrics, r#"workqueue_adds_total{name="sites"}"#)? >= calls);
    assert_eq!(sample(&metrics, r#"leader_election_master_status{name="site-operator"}"#)?, 1);
    Ok(())
}

/// Creates the definition, and waits until it is established.
async fn define(client: &Client, informers: &InformerFactory) -> Result<(), Error> {
    let definitions = informers.informer::<CustomResourceDefinition>(Scope::all())?;
    definitions.wait_for_sync(TIMEOUT).await?;
    Api::all(client.clone()).create(&PostParams::default(), &Site::crd()).await?;
    let established = |definition: Option<&CustomResourceDefinition>| {
        let conditions = definition.and_then(|definition| definition.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Established" && one.status == "True"))
    };
    definitions.until_object(&ObjectKey::cluster(Site::crd_name()), established, TIMEOUT).await?;
    Ok(())
}

async fn request(address: SocketAddr, path: &str) -> Result<String, Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

/// Returns the value of a metric with its labels. The values in this example are integers.
fn sample(metrics: &str, name: &str) -> Result<u64, Error> {
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .ok_or_else(|| format!("metric {name} is missing: {metrics}"))?;
    Ok(value.trim().trim_end_matches(".0").parse()?)
}
