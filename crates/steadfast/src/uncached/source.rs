//! What lists and changes have in common: how a server is asked, and what can go wrong.

use std::sync::Arc;
use std::time::Duration;

use steadfast_core::ResourceVersion;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::decode::{DecodeOptions, Decoder, Kept, RawObject};
use steadfast_core::random::Random;
use steadfast_core::reflector::{Failure, FailureKind};

use crate::answers::Asker;
use crate::connection::Connection;
use crate::environment::SharedEnvironment;
use crate::resource::{Collection, DynamicType};
use crate::scope::Scope;
use crate::transport::Reader;

/// What a [`List`](super::List) or [`Changes`](super::Changes) cannot give. All but [`Unreadable`](Self::Unreadable) end the stream.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The server does not have, or no longer has, everything that came after a version.
    #[error(
        "{resource}: what came after version {version} cannot be had: {why}; list, and go on from the list's version"
    )]
    Expired {
        /// The resource and its scope.
        resource: String,
        /// The version that was to be gone on from.
        version: ResourceVersion,
        /// What the server said.
        why: Arc<str>,
    },
    /// The server does not do what it was requested: permission or resource missing, a selector that is none.
    #[error("{resource}: {why}")]
    Refused {
        /// The resource and its scope.
        resource: String,
        /// What the server said, and which permission it needs.
        why: Arc<str>,
    },
    /// A list could not be completed, and cannot be gone on with.
    #[error("{resource}: the list broke off: {why}; begin again")]
    Interrupted {
        /// The resource and its scope.
        resource: String,
        /// The last of what went wrong.
        why: Arc<str>,
    },
    /// One object cannot be read. The stream goes on with the next.
    #[error("{resource}: {why}")]
    Unreadable {
        /// The resource and its scope.
        resource: String,
        /// Which object it is and what is wrong with it, without its content.
        why: Arc<str>,
    },
}

/// What both streams read by.
pub(super) struct Source {
    pub(super) asker: Asker,
    scope: Scope,
    decoder: Decoder,
    pub(super) environment: SharedEnvironment,
    pub(super) random: Random,
    pub(super) backoff: Backoff,
}

impl Source {
    pub(super) fn new<K: Kept>(connection: &Connection, kind: &DynamicType<K>, scope: Scope) -> Self {
        let collection = Collection::of::<K>(kind, &scope);
        // Nobody says when an answer is read: it must not hold up what informers read.
        let asker = Asker { reader: Reader::Caller, ..Asker::new::<K>(connection.clone(), &collection, &scope) };
        let environment = connection.environment().clone();
        let random = Random::new(environment.random());
        let backoff = Backoff::new(BackoffSettings::default());
        Self { asker, scope, decoder: Decoder::new(DecodeOptions::default()), environment, random, backoff }
    }

    /// The resource and its scope, for people.
    pub(super) fn name(&self) -> String {
        format!("{} in {}", self.asker.resource, self.scope)
    }

    /// Waits before the next attempt, as long as the server asks for or patience says.
    pub(super) async fn wait(&mut self, failure: &Failure) {
        let patience = self.backoff.fail(&mut self.random);
        let wait = failure.retry_after.map_or(patience, |asked| asked.max(patience));
        self.sleep(wait).await;
    }

    pub(super) async fn sleep(&self, time: Duration) {
        self.environment.sleep_until(self.environment.now() + time).await;
    }

    /// The object as it is wanted.
    pub(super) fn keep<K: Kept>(&mut self, object: &RawObject) -> Result<K, StreamError> {
        if self.asker.is_stray(&object.identity.key) {
            return Err(self.unreadable(&self.asker.why_stray(&object.identity.key)));
        }
        K::decode(object, &mut self.decoder).map_err(|error| self.unreadable(&error))
    }

    pub(super) fn unreadable(&self, why: &impl ToString) -> StreamError {
        StreamError::Unreadable { resource: self.name(), why: why.to_string().into() }
    }

    /// What ends a stream, if `failure` does: no other attempt would have another answer.
    pub(super) fn refusal(&self, failure: &Failure) -> Option<StreamError> {
        matches!(failure.kind, FailureKind::Denied | FailureKind::Invalid)
            .then(|| StreamError::Refused { resource: self.name(), why: failure.why.clone() })
    }
}

debug_as_message!(StreamError);
