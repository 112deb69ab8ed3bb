//! Requests and errors of the streams without a cache: [`List`](super::List) and [`Changes`](super::Changes).

use std::sync::Arc;
use std::time::Duration;

use steadfast_core::ResourceVersion;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::decode::{Cacheable, DecodeOptions, Decoder, RawObject};
use steadfast_core::random::Random;
use steadfast_core::reflector::{Failure, FailureKind};

use crate::connection::Connection;
use crate::environment::SharedEnvironment;
use crate::resource::{Collection, DynamicType};
use crate::responses::RequestBuilder;
use crate::scope::Scope;
use crate::transport::Reader;

/// Error of a [`List`](super::List) or [`Changes`](super::Changes). All but [`Unreadable`](Self::Unreadable) end the
/// stream.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The server does not have, or no longer has, all changes after a version.
    #[error(
        "{resource}: the changes after version {version} are not available: {reason}; list again, and continue from the version of the new list"
    )]
    Expired {
        /// Resource and scope.
        resource: String,
        /// Version at which the watch was to resume.
        version: ResourceVersion,
        /// Message of the server.
        reason: Arc<str>,
    },
    /// The server rejected the request: missing permission, unknown resource or an invalid selector.
    #[error("{resource}: {reason}")]
    Rejected {
        /// Resource and scope.
        resource: String,
        /// Message of the server, and the required permission.
        reason: Arc<str>,
    },
    /// A list could not be completed and cannot be continued.
    #[error("{resource}: the list was interrupted: {reason}; list again")]
    Interrupted {
        /// Resource and scope.
        resource: String,
        /// The last error.
        reason: Arc<str>,
    },
    /// One object cannot be decoded. The stream continues with the next.
    #[error("{resource}: {reason}")]
    Unreadable {
        /// Resource and scope.
        resource: String,
        /// Identity of the object and the decode error, without contents.
        reason: Arc<str>,
    },
}

/// Request state shared by both kinds of streams.
pub(super) struct StreamRequests {
    pub(super) request_builder: RequestBuilder,
    scope: Scope,
    decoder: Decoder,
    pub(super) environment: SharedEnvironment,
    pub(super) random: Random,
    pub(super) backoff: Backoff,
}

impl StreamRequests {
    pub(super) fn new<K: Cacheable>(connection: &Connection, kind: &DynamicType<K>, scope: Scope) -> Self {
        let collection = Collection::of::<K>(kind, &scope);
        // The caller decides when the response is read. An unread response must not block the connections of the
        // informers.
        let request_builder = RequestBuilder {
            reader: Reader::Caller,
            ..RequestBuilder::new::<K>(connection.clone(), &collection, &scope)
        };
        let environment = connection.environment().clone();
        let random = Random::new(environment.random());
        let backoff = Backoff::new(BackoffSettings::default());
        Self { request_builder, scope, decoder: Decoder::new(DecodeOptions::default()), environment, random, backoff }
    }

    /// Returns the resource and its scope, for display.
    pub(super) fn name(&self) -> String {
        format!("{} in {:#}", self.request_builder.resource, self.scope)
    }

    /// Waits before the next attempt, for the server's `Retry-After` or the backoff.
    pub(super) async fn wait(&mut self, failure: &Failure) {
        let backoff_delay = self.backoff.fail(&mut self.random);
        let wait = failure.retry_after.map_or(backoff_delay, |requested| requested.max(backoff_delay));
        self.sleep(wait).await;
    }

    pub(super) async fn sleep(&self, time: Duration) {
        self.environment.sleep_until(self.environment.now() + time).await;
    }

    /// Decodes the object as `K`.
    pub(super) fn decode<K: Cacheable>(&mut self, object: &RawObject) -> Result<K, StreamError> {
        if self.request_builder.is_in_other_namespace(&object.identity.key) {
            return Err(self.unreadable(&self.request_builder.other_namespace_reason(&object.identity.key)));
        }
        K::decode(object, &mut self.decoder).map_err(|error| self.unreadable(&error))
    }

    pub(super) fn unreadable(&self, reason: &impl ToString) -> StreamError {
        StreamError::Unreadable { resource: self.name(), reason: reason.to_string().into() }
    }

    /// Returns the error that ends the stream, if `failure` is permanent: a retry would get the same response.
    pub(super) fn permanent_error(&self, failure: &Failure) -> Option<StreamError> {
        matches!(failure.kind, FailureKind::Denied | FailureKind::Invalid)
            .then(|| StreamError::Rejected { resource: self.name(), reason: failure.message.clone() })
    }
}

debug_as_message!(StreamError);
