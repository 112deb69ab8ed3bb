//! Registration and removal of durable handlers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use serde::de::DeserializeOwned;
use steadfast_core::Lazy;
use steadfast_core::backoff::BackoffSettings;
use tokio::runtime::Handle;

use super::calls::{Calls, Durable};
use super::event::{DurableEvent, DurablePosition, DurableStats};
use crate::error::HandlerError;
use crate::informer::Informer;
use crate::shared::Shared;

const CONCURRENCY: usize = 16;

const DEADLINE: Duration = Duration::from_secs(60);

const DEFAULT_BACKOFF: BackoffSettings = BackoffSettings {
    initial_delay: Duration::from_millis(500),
    second_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(60),
};

/// Maximum length of a name in bytes. The name is part of every row's key.
const MAX_NAME_BYTES: usize = 63;

impl<T: Resource + DeserializeOwned + Send + Sync + 'static> Informer<Lazy<T>> {
    /// Returns a builder for a handler that acknowledges events.
    ///
    /// After a crash of the process, the next run delivers the unacknowledged events again, merged with later changes.
    /// The file of the informer's [checkpoint](crate::InformerBuilder::checkpoint) stores the pending deliveries under
    /// the handler's name, even while no handler of this name is registered.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steadfast::{Event, Informer, Lazy};
    /// # async fn register(id: &str, pod: &str) -> std::io::Result<()> { Ok(()) }
    /// # fn example(pods: &Informer<Lazy<Pod>>) -> Result<(), steadfast::HandlerError> {
    /// pods.durable("registry").on_event(|durable| async move {
    ///     match &durable.event {
    ///         Event::Deleted { last, .. } => println!("{} out of the registry", last.key()),
    ///         event => register(&durable.id, event.object().key().name()).await?,
    ///     }
    ///     Ok::<_, std::io::Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn durable(&self, name: &str) -> DurableBuilder<'_, T> {
        DurableBuilder {
            informer: self,
            name: name.to_owned(),
            concurrency: CONCURRENCY,
            namespace_share: None,
            deadline: DEADLINE,
            backoff: DEFAULT_BACKOFF,
            deliver_unseen_deletions: false,
        }
    }

    /// Returns the statistics of this informer's durable handlers by name: the registered handlers, and handlers of
    /// earlier runs with rows in the file.
    pub fn durable_handlers(&self) -> Vec<(Arc<str>, DurableStats)> {
        self.shared().durable_handlers.stats()
    }

    /// Replaces a durable handler of an earlier run: each of `successors` takes over everything that is pending for
    /// `name`, and `name` is dropped. Both happen in one write of the file.
    ///
    /// Call this before the successors are added, for example after a handler was split into several. Nothing happens
    /// if the file has no handler `name`, or while the handler is in use. A successor with a record of its own keeps
    /// its own pending deliveries.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steadfast::{Informer, Lazy};
    /// # fn example(pods: &Informer<Lazy<Pod>>) -> Result<(), steadfast::HandlerError> {
    /// pods.replace_durable("registry", &["registry-east", "registry-west"]);
    /// for region in ["registry-east", "registry-west"] {
    ///     pods.durable(region).on_event(|_| async { Ok::<_, std::io::Error>(()) })?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace_durable(&self, name: &str, successors: &[&str]) {
        self.shared().replace_durable(name, successors);
    }

    /// Removes a durable handler permanently, with all its pending deliveries. Returns true if the handler existed.
    ///
    /// A later handler of this name starts as new, with all objects. Use this for a handler that the program no longer
    /// has. Without the removal, each object that changes keeps one pending delivery for the handler.
    pub fn drop_durable(&self, name: &str) -> bool {
        self.shared().durable_handlers.drop_name(name)
    }
}

/// Builder of a durable handler and its options.
#[must_use = "a handler exists after it was added"]
pub struct DurableBuilder<'a, T: Send + Sync + 'static> {
    informer: &'a Informer<Lazy<T>>,
    name: String,
    concurrency: usize,
    namespace_share: Option<usize>,
    deadline: Duration,
    backoff: BackoffSettings,
    deliver_unseen_deletions: bool,
}

impl<T: Resource + DeserializeOwned + Send + Sync + 'static> DurableBuilder<'_, T> {
    /// Sets the maximum number of concurrent calls. Defaults to 16. Calls for one object never overlap.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls.max(1);
        self
    }

    /// Shares `calls` concurrent calls between namespaces. Each of `n` namespaces with calls may have up to
    /// `calls / (n + 1)`, and at least one. A namespace with slow calls then leaves calls for the other namespaces.
    /// Disabled by default.
    ///
    /// Running calls continue when further namespaces start calls. Up to twice `calls` may therefore run concurrently:
    /// set [`concurrency`](Self::concurrency) accordingly.
    pub fn namespace_share(mut self, calls: usize) -> Self {
        self.namespace_share = Some(calls);
        self
    }

    /// Sets the timeout of a call. Defaults to 60 s.
    ///
    /// A call that exceeds the timeout is dropped and retried, like a call that returned an error. A stuck call
    /// therefore does not count against the concurrency for longer.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the backoff between retries of a failed call. Defaults to a random delay of at most 0.5 s, then 1 s,
    /// doubling up to 60 s. The backoff delays only the failed object.
    pub fn backoff(mut self, backoff: BackoffSettings) -> Self {
        self.backoff = backoff;
        self
    }

    /// Also delivers the deletion of an object that was created and deleted before its creation could be delivered.
    /// Disabled by default: such an object is not reported at all.
    ///
    /// Enable this for replicated programs: another replica may have delivered the creation.
    pub fn unseen_deletions(mut self, deliver: bool) -> Self {
        self.deliver_unseen_deletions = deliver;
        self
    }

    /// Calls `handle` with each event on the current async runtime. `Ok` acknowledges the event. After an error, a
    /// panic or a timeout the same event is delivered again, after a backoff.
    ///
    /// An event is delivered after its pending delivery is stored in the file, about 50 ms after the change. Changes
    /// are merged until the pending delivery is stored, and during a call. The next event of an object is therefore the
    /// net change since its last acknowledged event. If the handler received the creation of an object, it also
    /// receives the deletion.
    ///
    /// # Errors
    ///
    /// Returns an error if the informer has no checkpoint, if a handler of this name exists, or if the name is invalid.
    /// Also returns an error outside an async runtime, or if the informer was stopped.
    pub fn on_event<F, Fut, E>(self, handle: F) -> Result<DurableRegistration<T>, HandlerError>
    where
        F: Fn(DurableEvent<Lazy<T>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let Self { informer, name, concurrency, namespace_share, deadline, backoff, deliver_unseen_deletions } = self;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(HandlerError::InvalidName { name });
        }
        // Captured now: the calls start from threads of the informer, outside the caller's runtime.
        let runtime = Handle::try_current().map_err(|_| HandlerError::NoRuntime)?;
        let handle = Arc::new(move |event| {
            let call = handle(event);
            Box::pin(async move { call.await.map_err(|error| error.to_string()) }) as _
        });
        let calls =
            Calls { handle, runtime, concurrency, namespace_share, deadline, backoff, deliver_unseen_deletions };
        let durable = informer.shared().add_durable(&name, calls)?;
        Ok(DurableRegistration { durable, shared: informer.shared().clone() })
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for DurableBuilder<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Registration of a durable handler at an informer. Dropping it does not remove the handler.
pub struct DurableRegistration<T: Send + Sync + 'static> {
    durable: Arc<Durable<Lazy<T>>>,
    shared: Arc<Shared<Lazy<T>>>,
}

impl<T: Send + Sync + 'static> DurableRegistration<T> {
    /// Returns the statistics of the handler.
    pub fn stats(&self) -> DurableStats {
        self.durable.stats()
    }

    /// Returns the acknowledged changes of the handler as versions, or `None` before the informer has synced.
    ///
    /// Also returns `None` while a delivery that an earlier release stored is pending, if its first version is unknown.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(registration: &steadfast::DurableRegistration<Pod>) {
    /// if let Some(position) = registration.position() {
    ///     println!("seen: {:?}, acknowledged below: {:?}", position.reached, position.first_pending);
    /// }
    /// # }
    /// ```
    pub fn position(&self) -> Option<DurablePosition> {
        // Both values are read under one lock: each change in the snapshot is pending or acknowledged.
        let (snapshot, _, (first_pending, is_known)) =
            self.shared.with_publication(|_, _| self.durable.first_pending());
        let reached = snapshot.version().filter(|_| is_known)?.clone();
        Some(DurablePosition { reached, first_pending })
    }

    /// Removes the handler: no further call starts. Its pending deliveries stay stored for the next handler of this
    /// name, in this run or a later one.
    ///
    /// Running calls continue, and can still acknowledge their events. If such a call fails, the next handler receives the
    /// event without a backoff, and `failures` does not count the call.
    pub fn remove(&self) {
        self.durable.detach();
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for DurableRegistration<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DurableRegistration({:?} at {})", self.durable.name(), self.shared.name)
    }
}
