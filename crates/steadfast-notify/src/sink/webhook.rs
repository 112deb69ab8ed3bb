//! Sink that sends HTTP requests: `CloudEvents` 1.0 by default, or a custom body.
//!
//! | module | contents |
//! |---|---|
//! | `body` | bodies: `CloudEvents`, or an expression over the message |
//! | `target` | address, headers and connection, with the current secrets |
//! | `response` | action after a response: delivered, retry, pause, rejected, redirect |
//! | `redirect` | target address of a redirect |
//! | `signature` | name of the header with the signature, and its HMAC |
//!
//! Requests use the connections of the steadfast client library: dead connections are replaced, and proxies and
//! certificates work like for API servers.

mod body;
mod redirect;
mod response;
mod signature;
mod target;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::LOCATION;
use http_body_util::BodyExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use steadfast::unstable::cause::root_cause;
use tokio::time::{Instant, timeout};

use super::message_sink::{DeliveryFuture, MessageSink};
use crate::config::sinks::{self, WebhookMode};
use crate::delivery_outcome::DeliveryOutcome;
use crate::expression::{Expression, Purpose};
use crate::message::Message;
use crate::secret::{NOT_READ_IN_TIME, ReadingLock, read_in_time};
use crate::server::ServerConfigError;
use body::RequestBody;
use redirect::MAX_REDIRECTS;
use response::{ResponseAction, classify, excerpt};
pub use signature::SIGNATURE_HEADER;
use target::{LoadedSecrets, WebhookTarget};

/// Maximum number of bytes to read from a response body.
const MAX_RESPONSE_BYTES: usize = 4096;

/// Timeout of a response body after the head. The status decides the result. The body is only needed for error messages
/// and for reusing the connection.
const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum age of secrets before the files are read again.
const SECRETS_MAX_AGE: Duration = Duration::from_secs(1);

/// Variables of a body expression.
const VARIABLE_NAMES: [&str; 2] = ["message", "secrets"];

/// Variables of a body expression in batched mode.
const BATCHED_VARIABLE_NAMES: [&str; 2] = ["messages", "secrets"];

/// Returns the purpose of the `body` expression of a sink.
pub(crate) fn body_purpose(mode: WebhookMode) -> Purpose {
    Purpose::Body(if mode == WebhookMode::Batched { &BATCHED_VARIABLE_NAMES } else { &VARIABLE_NAMES })
}

/// Sink that sends HTTP requests.
pub struct Webhook {
    settings: sinks::WebhookConfig,
    folder: PathBuf,
    body: Option<Expression>,
    /// Target with the secrets of the last read, and the instant of that read.
    target_and_read_time: Mutex<(Arc<WebhookTarget>, Instant)>,
    /// Held during a read of the secrets.
    reading: ReadingLock,
}

impl Webhook {
    /// Reads the secrets and prepares the connection. Relative paths start at `folder`.
    pub(super) async fn open(
        settings: &sinks::WebhookConfig,
        folder: PathBuf,
        reading: ReadingLock,
    ) -> Result<Self, ServerConfigError> {
        let body = match &settings.body {
            None => None,
            Some(text) => {
                Some(Expression::compile(text, body_purpose(settings.mode)).map_err(|_| ServerConfigError {
                    field: "body".to_owned(),
                    description: "the expression is invalid".to_owned(),
                    remedy: "correct the expression",
                })?)
            }
        };
        let (read_settings, read_folder) = (settings.clone(), folder.clone());
        let loaded = read_in_time(&reading, move || LoadedSecrets::read(&read_settings, &read_folder)).await;
        let not_read_in_time = || {
            let (description, remedy) = NOT_READ_IN_TIME;
            ServerConfigError { field: String::new(), description: description.to_owned(), remedy }
        };
        let loaded = loaded.ok_or_else(not_read_in_time)??;
        let target = Arc::new(WebhookTarget::new(settings, &folder, loaded).await?);
        Ok(Self {
            settings: settings.clone(),
            folder,
            body,
            target_and_read_time: Mutex::new((target, Instant::now())),
            reading,
        })
    }

    fn target_and_read_time(&self) -> (Arc<WebhookTarget>, Instant) {
        self.target_and_read_time.lock().clone()
    }

    /// Returns the target with current secrets. Reads the files again after [`SECRETS_MAX_AGE`], or immediately if
    /// `must_reload` is true. If a file cannot be read, the known secrets stay in use: a file may be missing for an
    /// instant during replacement.
    async fn target(&self, must_reload: bool) -> Arc<WebhookTarget> {
        let (current, read_at) = self.target_and_read_time();
        // At most one read of the secrets per second, however many messages are sent.
        if !must_reload && read_at.elapsed() < SECRETS_MAX_AGE {
            return current;
        }
        let (settings, folder) = (self.settings.clone(), self.folder.clone());
        let loaded = read_in_time(&self.reading, move || LoadedSecrets::read(&settings, &folder)).await;
        let reloaded = match loaded {
            Some(Ok(loaded)) if !loaded.has_same_content(&current.loaded_secrets) => {
                WebhookTarget::new(&self.settings, &self.folder, loaded).await.ok().map(Arc::new)
            }
            _ => None,
        };
        let target = reloaded.unwrap_or(current);
        // The instant is stored even if nothing has changed, because it delays the next read.
        *self.target_and_read_time.lock() = (target.clone(), Instant::now());
        target
    }

    fn content(&self, messages: &[Arc<Message>], target: &WebhookTarget) -> Result<RequestBody, String> {
        let is_batched = self.settings.mode == WebhookMode::Batched;
        match &self.body {
            None => Ok(body::cloud_events(messages, is_batched)),
            Some(body) => {
                let content_type = self.settings.content_type.as_deref();
                body::evaluate_body(body, messages, is_batched, target.secrets(), content_type)
            }
        }
    }

    /// Sends the messages once, and follows redirects.
    async fn attempt(&self, messages: &[Arc<Message>], target: &WebhookTarget) -> ResponseAction {
        let rejection = |reason: String| ResponseAction::Outcome(DeliveryOutcome::Rejected { reason });
        let retry = |reason: String| ResponseAction::Outcome(DeliveryOutcome::Retry { retry_after: None, reason });
        let content = match self.content(messages, target) {
            Ok(content) => content,
            Err(reason) => return rejection(reason),
        };
        let mut address = target.address.clone();
        // 307 and 308 keep method and body, so each redirect repeats the full request.
        for _ in 0..=MAX_REDIRECTS {
            let client = match target.client_for(&self.settings, &self.folder, &address).await {
                Ok(client) => client,
                Err(reason) => return retry(format!("cannot connect to {}: {reason}", address.origin)),
            };
            let request = match target.request(&address, &content.body, &content.content_type) {
                Ok(request) => request,
                Err(error) => return rejection(format!("cannot build a request: {error}")),
            };
            let response = match client.send(request).await {
                Ok(response) => response,
                Err(error) => return retry(root_cause(&error)),
            };
            let (parts, mut stream) = response.into_parts();
            let mut bytes = Vec::new();
            let read_excerpt = async {
                while let Some(Ok(frame)) = stream.frame().await {
                    bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
                    if bytes.len() >= MAX_RESPONSE_BYTES {
                        break;
                    }
                }
            };
            let _ = timeout(RESPONSE_BODY_TIMEOUT, read_excerpt).await;
            bytes.truncate(MAX_RESPONSE_BYTES);
            let excerpt = excerpt(&bytes, target.secret_texts());
            match classify(parts.status, &parts.headers, &excerpt, Timestamp::now()) {
                ResponseAction::Redirect => {}
                action => return action,
            }
            let location = parts.headers.get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
            address = match address.follow(location) {
                Ok(next) => next,
                Err(reason) => return rejection(format!("the server returned {}, and {reason}", parts.status)),
            };
            // The body may contain secrets, so it must not be sent to another origin.
            if content.is_secret && !address.is_same_origin(&target.address) {
                let reason = "and the body may contain secrets for the configured server only";
                return rejection(format!("the server returned {} to {}, {reason}", parts.status, address.origin));
            }
        }
        rejection(format!(
            "the server redirected the request more than {MAX_REDIRECTS} times; set `url` to the final address"
        ))
    }

    /// Sends the messages once within the timeout.
    async fn attempt_in_time(&self, messages: &[Arc<Message>], target: &WebhookTarget) -> ResponseAction {
        let limit = self.settings.timeout.0;
        timeout(limit, self.attempt(messages, target)).await.unwrap_or_else(|_| {
            ResponseAction::Outcome(DeliveryOutcome::Retry {
                retry_after: None,
                reason: format!("no response within {limit:?}"),
            })
        })
    }
}

impl MessageSink for Webhook {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> DeliveryFuture<'a> {
        Box::pin(async move {
            let target = self.target(false).await;
            let reason = match self.attempt_in_time(messages, &target).await {
                ResponseAction::Outcome(outcome) => return outcome,
                ResponseAction::Unauthorized(reason) => reason,
                ResponseAction::Redirect => {
                    return DeliveryOutcome::Rejected { reason: "the redirect has no target".to_owned() };
                }
            };
            // The secrets may have been replaced since the last read.
            let reloaded = self.target(true).await;
            if Arc::ptr_eq(&reloaded, &target) {
                return DeliveryOutcome::Retry {
                    retry_after: None,
                    reason: format!("{reason}; the secrets are unchanged"),
                };
            }
            match self.attempt_in_time(messages, &reloaded).await {
                ResponseAction::Outcome(outcome) => outcome,
                ResponseAction::Unauthorized(reason) => DeliveryOutcome::Retry {
                    retry_after: None,
                    reason: format!("{reason}, also with the current secrets"),
                },
                ResponseAction::Redirect => {
                    DeliveryOutcome::Rejected { reason: "the redirect has no target".to_owned() }
                }
            }
        })
    }
}
