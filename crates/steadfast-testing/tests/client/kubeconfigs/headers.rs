//! Headers of requests and responses: credentials of a single request, and warnings of the server.

use std::io::Write;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use steadfast::Connection;
use steadfast_apiserver::ApiServer;
use tokio::sync::mpsc;

use crate::kubeconfigs::support::{Folder, Outcome, PODS, SECRET, config, connection, kubeconfig};

#[tokio::test]
async fn own_authorization_of_a_request_is_kept() -> Outcome {
    let server = ApiServer::builder().require_credentials().token("configured").token(SECRET).start().await?;
    let user = json!({"token": "configured"});
    let connection = connection(&Folder::new(), &kubeconfig(&server, &json!({}), &user)).await?;
    // Only the token of the request is valid now.
    server.faults().replace_tokens(&[SECRET]);
    for (token, expected) in [(SECRET, StatusCode::OK), ("unknown", StatusCode::UNAUTHORIZED)] {
        let request = || Request::get(PODS).header(AUTHORIZATION, format!("Bearer {token}"));
        let requests_before = server.requests().len();
        let response = connection.send(request().body(Body::empty())?).await?;
        assert_eq!(response.status(), expected, "{token}");
        let response = connection.client().send(request().body(Body::empty())?).await?;
        assert_eq!(response.status(), expected, "{token}, by the client");
        assert_eq!(server.requests().len(), requests_before + 2, "the server's verdict is final: {token}");
    }
    Ok(())
}

#[tokio::test]
async fn own_impersonation_of_a_request_is_kept() -> Outcome {
    let server = ApiServer::start().await?;
    let user = json!({"as": "jane", "as-groups": ["developers"]});
    let connection = connection(&Folder::new(), &kubeconfig(&server, &json!({}), &user)).await?;
    let request = Request::get(PODS).header("impersonate-user", "joe").body(Body::empty())?;
    assert_eq!(connection.send(request).await?.status(), StatusCode::OK);
    let record = server.requests().pop().ok_or("no request")?;
    assert_eq!(record.impersonation, [("impersonate-user".to_owned(), "joe".to_owned())]);
    Ok(())
}

/// Captures the log of this thread.
#[derive(Clone, Default)]
struct LogWriter(Arc<Mutex<Vec<u8>>>);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn server_warnings_are_logged_once_and_received() -> Outcome {
    let log = LogWriter::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _subscribed = tracing::subscriber::set_default(subscriber);

    let server = ApiServer::start().await?;
    let folder = Folder::new();
    let file = folder.write("config.yaml", &kubeconfig(&server, &json!({}), &json!({})).to_string());
    let (warning_sender, mut warnings) = mpsc::unbounded_channel();
    let connection = Connection::builder(config(&file, None).await?)
        .on_warning(move |warning| drop(warning_sender.send(warning.clone())))
        .build()?;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(connection.client());
    for name in ["first", "second"] {
        let webhook = serde_json::from_value(json!({"metadata": {"name": name}, "webhooks": []}))?;
        webhooks.create(&PostParams::default(), &webhook).await?;
    }
    let first = warnings.recv().await.ok_or("no warning")?;
    let second = warnings.recv().await.ok_or("no second warning")?;
    assert!(first.text.contains("this server calls no webhooks"), "{first:?}");
    assert_eq!((first.repeated, second.repeated, &second.text), (false, true, &first.text));
    let log = String::from_utf8_lossy(&log.0.lock()).into_owned();
    assert_eq!(log.matches("the server sent a warning").count(), 1, "{log}");
    Ok(())
}
