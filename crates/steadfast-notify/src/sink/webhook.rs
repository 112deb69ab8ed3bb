//! Sink that sends HTTP requests: `CloudEvents` 1.0 by default, or a body of the user's own.
//!
//! | module | contents |
//! |---|---|
//! | `body` | bodies: `CloudEvents`, or an expression over the message |
//! | `target` | address, headers and connection, with the secrets as the files have them now |
//! | `response` | meaning of a response: delivered, retry, pause, refused |
//! | `redirect` | address that a redirect leads to |
//!
//! Requests use the library's connections: a dead connection is replaced, proxies and certificates work as for API servers.

mod body;
mod redirect;
mod response;
mod signature;
mod target;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::LOCATION;
use http_body_util::BodyExt;
use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::stream::{Delivering, Stream};
use crate::config::sinks::{self, Mode};
use crate::expression::{Expression, Purpose};
use crate::message::Message;
use crate::outcome::Outcome;
use crate::server::Wrong;
use body::Content;
use redirect::MAX_REDIRECTS;
use response::{Meaning, excerpt, meaning};
pub use signature::SIGNATURE;
use target::{Material, Target};

/// Bytes of a response's body that are read.
const MAX_RESPONSE_BYTES: usize = 4096;

/// Time for the body of a response after its head. The head decides; the body is for error messages and for reusing the
/// connection.
const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long secrets are used before the files are read again.
const SECRETS_MAX_AGE: Duration = Duration::from_secs(1);

/// Names that an expression for a body may use.
const NAMES: [&str; 2] = ["message", "secrets"];

/// The same for a body of several messages.
const BATCHED_NAMES: [&str; 2] = ["messages", "secrets"];

/// Returns what the `body` of a sink is for.
pub(crate) fn purpose(mode: Mode) -> Purpose {
    Purpose::Body(if mode == Mode::Batched { &BATCHED_NAMES } else { &NAMES })
}

/// Sink that sends HTTP requests.
pub struct Webhook {
    settings: sinks::Webhook,
    folder: PathBuf,
    body: Option<Expression>,
    /// The receiver with the secrets in use, and when the files were read.
    current: Mutex<(Arc<Target>, Instant)>,
}

impl Webhook {
    /// Reads the secrets and prepares the connection. Relative paths begin at `folder`.
    pub(super) async fn open(settings: &sinks::Webhook, folder: PathBuf) -> Result<Self, Wrong> {
        let body = match &settings.body {
            None => None,
            Some(text) => Some(Expression::compile(text, purpose(settings.mode)).map_err(|_| Wrong {
                field: "body".to_owned(),
                what: "the expression is not valid".to_owned(),
                remedy: "correct it",
            })?),
        };
        let material = Material::read(settings, &folder)?;
        let target = Arc::new(Target::new(settings, &folder, material).await?);
        Ok(Self { settings: settings.clone(), folder, body, current: Mutex::new((target, Instant::now())) })
    }

    fn current(&self) -> (Arc<Target>, Instant) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the receiver with the secrets as the files have them; read again if that was a second ago, or if `now`. If they
    /// cannot be read, the ones in use stay: a file may be missing for an instant while it is replaced.
    async fn target(&self, now: bool) -> Arc<Target> {
        let (current, read) = self.current();
        if !now && read.elapsed() < SECRETS_MAX_AGE {
            return current;
        }
        let (settings, folder) = (self.settings.clone(), self.folder.clone());
        let reading = tokio::task::spawn_blocking(move || Material::read(&settings, &folder));
        let fresh = match reading.await {
            Ok(Ok(material)) if !material.is_same(&current.material) => {
                Target::new(&self.settings, &self.folder, material).await.ok().map(Arc::new)
            }
            _ => None,
        };
        let target = fresh.unwrap_or(current);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = (target.clone(), Instant::now());
        target
    }

    fn content(&self, messages: &[Arc<Message>], target: &Target) -> Result<Content, String> {
        let is_batched = self.settings.mode == Mode::Batched;
        match &self.body {
            None => Ok(body::cloud_events(messages, is_batched)),
            Some(body) => {
                let content_type = self.settings.content_type.as_deref();
                body::evaluated(body, messages, is_batched, target.secrets(), content_type)
            }
        }
    }

    /// Sends the messages once, and follows redirects.
    async fn attempt(&self, messages: &[Arc<Message>], target: &Target) -> Meaning {
        let refused = |why: String| Meaning::Outcome(Outcome::Refused { why });
        let retry = |why: String| Meaning::Outcome(Outcome::Retry { after: None, why });
        let content = match self.content(messages, target) {
            Ok(content) => content,
            Err(why) => return refused(why),
        };
        let mut to = target.address.clone();
        for _ in 0..=MAX_REDIRECTS {
            let client = match target.client(&self.settings, &self.folder, &to).await {
                Ok(client) => client,
                Err(why) => return retry(format!("no connection to {} can be made: {why}", to.origin)),
            };
            let request = match target.request(&to, &content.body, &content.kind) {
                Ok(request) => request,
                Err(error) => return refused(format!("the message makes no valid request: {error}")),
            };
            let response = match client.send(request).await {
                Ok(response) => response,
                Err(error) => return retry(innermost(&error)),
            };
            let (head, mut stream) = response.into_parts();
            let mut bytes = Vec::new();
            let read = async {
                while let Some(Ok(frame)) = stream.frame().await {
                    bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
                    if bytes.len() >= MAX_RESPONSE_BYTES {
                        break;
                    }
                }
            };
            // A body that does not come changes nothing: the status decides.
            let _ = timeout(RESPONSE_BODY_TIMEOUT, read).await;
            bytes.truncate(MAX_RESPONSE_BYTES);
            let excerpt = excerpt(&bytes, target.secret_texts());
            match meaning(head.status, &head.headers, &excerpt, Timestamp::now()) {
                Meaning::Redirect => {}
                meaning => return meaning,
            }
            let location = head.headers.get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
            to = match to.follow(location) {
                Ok(next) => next,
                Err(why) => return refused(format!("the server returned {}, and {why}", head.status)),
            };
            if content.is_secret && !to.is_same_origin(&target.address) {
                let why = "and the body may have secrets, which are for the configured server only";
                return refused(format!("the server returned {} to {}, {why}", head.status, to.origin));
            }
        }
        refused(format!(
            "the server redirected the request more than {MAX_REDIRECTS} times; set `url` to the final address"
        ))
    }

    /// Sends the messages once within the timeout.
    async fn attempt_in_time(&self, messages: &[Arc<Message>], target: &Target) -> Meaning {
        let limit = self.settings.timeout.0;
        timeout(limit, self.attempt(messages, target)).await.unwrap_or_else(|_| {
            Meaning::Outcome(Outcome::Retry { after: None, why: format!("there was no response within {limit:?}") })
        })
    }
}

impl Stream for Webhook {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> Delivering<'a> {
        Box::pin(async move {
            let target = self.target(false).await;
            let why = match self.attempt_in_time(messages, &target).await {
                Meaning::Outcome(outcome) => return outcome,
                Meaning::Unauthorized(why) => why,
                Meaning::Redirect => return Outcome::Refused { why: "a redirect leads nowhere".to_owned() },
            };
            // The secrets may have been replaced a moment ago.
            let fresh = self.target(true).await;
            if Arc::ptr_eq(&fresh, &target) {
                return Outcome::Retry { after: None, why: format!("{why}; the secrets are unchanged") };
            }
            match self.attempt_in_time(messages, &fresh).await {
                Meaning::Outcome(outcome) => outcome,
                Meaning::Unauthorized(why) => {
                    Outcome::Retry { after: None, why: format!("{why}, also with the secrets as they are now") }
                }
                Meaning::Redirect => Outcome::Refused { why: "a redirect leads nowhere".to_owned() },
            }
        })
    }
}

/// Returns the innermost cause of an error, which does not have the request in it.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
