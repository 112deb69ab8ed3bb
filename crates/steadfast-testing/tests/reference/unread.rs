//! Unread responses must affect only their own client (C8).

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::client::Body;
use steadfast::{Connection, InformerFactory, Scope};
use steadfast_contract::check;
use steadfast_testing::TestError;
use steadfast_testing::cluster::Writer;
use steadfast_testing::reference::Reference;
use tokio::time::{sleep, timeout};

use crate::support::{EVENT_TIMEOUT, until_fresh};

/// Number of secrets. Together they exceed 4 MiB, the receive window of one response.
const SECRETS: usize = 6;
const SECRET_BYTES: usize = 700 * 1024;

/// Number of unread watches, and of unread lists. The windows of 25 responses add up to 100 MiB. That is more than the
/// 64 MiB which an earlier version allowed for a whole connection.
const UNREAD_RESPONSES: usize = 25;

/// Time without a proof after which an informer requests one, which needs responses of the server.
const PERIOD: Duration = Duration::from_secs(4);

/// Maximum time of an undisturbed response or event, on a busy machine.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(5);

const LARGE_PATH: &str = "/api/v1/namespaces/kube-public/secrets";

/// Starts watches and lists of [`LARGE_PATH`] on `connection`, and returns their unread responses.
async fn request_without_reading(connection: &Connection) -> Result<Vec<http::Response<Body>>, TestError> {
    let client = connection.client();
    let watch = format!("{LARGE_PATH}?watch=true&resourceVersion=0&timeoutSeconds=600");
    let responses =
        (0..2 * UNREAD_RESPONSES).map(|number| if number % 2 == 0 { &*watch } else { LARGE_PATH }).map(|path| {
            let client = client.clone();
            async move { Ok::<_, TestError>(client.send(Request::get(path).body(Body::empty())?).await?) }
        });
    try_join_all(responses).await
}

pub(crate) async fn unread_responses(reference: &Reference) -> Result<(), TestError> {
    let client = reference.connection().await?.client();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-public");
    for number in 0..SECRETS {
        let metadata = ObjectMeta { name: Some(format!("large-{number}")), ..ObjectMeta::default() };
        let data = [("value".to_owned(), ByteString(vec![b'x'; SECRET_BYTES]))];
        let secret = Secret { metadata, data: Some(data.into()), ..Secret::default() };
        secrets.create(&PostParams::default(), &secret).await?;
    }

    let connection = reference.connection().await?;
    let unread_response = timeout(EVENT_TIMEOUT, request_without_reading(&connection)).await??;
    let recorder = reference.recorder();
    let factory = InformerFactory::new(&connection);
    let scope = || Scope::namespace("kube-public").labels("app=unread");
    let informers = [
        factory.builder::<ConfigMap>(scope()).period(PERIOD).start()?,
        factory
            .builder::<ConfigMap>(scope().fields("metadata.name!=other"))
            .period(PERIOD)
            .streamed_lists(false)
            .start()?,
    ];
    for informer in &informers {
        recorder.record(informer);
        informer.wait_for_sync(MAX_RESPONSE_TIME).await?;
    }
    let config_maps = Api::<ConfigMap>::namespaced(connection.client(), "kube-public");
    let writer = Writer::new(client, "kube-public");
    writer.create_labelled("told", "unread").await?;
    for round in 0..4 {
        // First nothing changes, so the informers must request a proof. Then an object changes.
        let quiet_start = Instant::now();
        while quiet_start.elapsed() < PERIOD + PERIOD / 2 {
            for informer in &informers {
                assert!(informer.freshness().is_fresh(), "{}: {}", informer.name(), informer.freshness());
            }
            sleep(Duration::from_millis(20)).await;
        }
        let written = writer.set("told", &round.to_string()).await?;
        for informer in &informers {
            informer
                .wait_for_version(
                    &written.metadata.resource_version.clone().unwrap_or_default().as_str().into(),
                    MAX_RESPONSE_TIME,
                )
                .await?;
        }
        timeout(MAX_RESPONSE_TIME, config_maps.get("told")).await??;
    }
    for informer in &informers {
        until_fresh(informer).await?;
    }
    drop(unread_response);
    reference.settle(&recorder).await?;
    let newest_version = writer.write_unrelated().await?;
    check(&reference.history_until(newest_version, "", "configmaps").await?, &recorder.trace())?;
    Ok(())
}
