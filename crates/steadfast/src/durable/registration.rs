//! How durable handlers come to an informer, and go.

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
use super::told::{DurableCounts, DurablePosition, Told};
use crate::error::HandlerError;
use crate::informer::Informer;
use crate::shared::Shared;

const CONCURRENCY: usize = 16;

const DEADLINE: Duration = Duration::from_secs(60);

const PATIENCE: BackoffSettings = BackoffSettings {
    first: Duration::from_millis(500),
    second: Duration::from_secs(1),
    ceiling: Duration::from_secs(60),
};

/// The longest name, in bytes: it is in the key of each row.
const LONGEST_NAME: usize = 63;

impl<T: Resource + DeserializeOwned + Send + Sync + 'static> Informer<Lazy<T>> {
    /// A handler that acknowledges what it has done: what it was told and has not acknowledged when the program dies, the next
    /// life of the program tells it again, and what has changed in between.
    ///
    /// It goes by its name, under which the file of the informer's [checkpoint](crate::InformerBuilder::checkpoint) keeps what it
    /// is owed, whether or not a handler of that name is there.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steadfast::{Event, Informer, Lazy};
    /// # async fn register(id: &str, pod: &str) -> std::io::Result<()> { Ok(()) }
    /// # fn example(pods: &Informer<Lazy<Pod>>) -> Result<(), steadfast::HandlerError> {
    /// pods.durable("registry").on_event(|told| async move {
    ///     match &told.event {
    ///         Event::Deleted { last, .. } => println!("{} out of the registry", last.key()),
    ///         event => register(&told.id, event.object().key().name()).await?,
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
            patience: PATIENCE,
            unseen_ends: false,
        }
    }

    /// The durable handlers of this informer by their names: those that are there, and those for which an earlier life of the
    /// program has left something in the file.
    pub fn durables(&self) -> Vec<(Arc<str>, DurableCounts)> {
        self.shared().durables.counts()
    }

    /// Replaces a durable handler that an earlier run of the program had: each of `successors` takes over everything that is
    /// pending for `name`, and `name` is dropped. Both happen in one write of the file.
    ///
    /// Call this before the successors are added, for example after a handler was split into several. Nothing happens if the
    /// file has no handler `name`, or while the handler is in use. A successor that has a record of its own keeps that.
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

    /// Ends a durable handler for good, and drops all that is owed to it: one of the same name is new from then on, and is
    /// shown all there is. Returns whether there was one.
    ///
    /// For a handler that the program no longer has: until then it is owed each object that changes, once.
    pub fn drop_durable(&self, name: &str) -> bool {
        self.shared().durables.drop_name(name)
    }
}

/// A durable handler about to be added, with choices.
#[must_use = "a handler is there once it is added"]
pub struct DurableBuilder<'a, T: Send + Sync + 'static> {
    informer: &'a Informer<Lazy<T>>,
    name: String,
    concurrency: usize,
    namespace_share: Option<usize>,
    deadline: Duration,
    patience: BackoffSettings,
    unseen_ends: bool,
}

impl<T: Resource + DeserializeOwned + Send + Sync + 'static> DurableBuilder<'_, T> {
    /// How many calls may run at a time, each for another name; 16 unless set otherwise. Calls for one name never overlap.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls.max(1);
        self
    }

    /// Shares `calls` concurrent calls between namespaces: with `n` namespaces that have calls, each may have up to
    /// `calls / (n + 1)`, and at least one. So a namespace whose calls take long leaves some for the others. By default there
    /// are no shares.
    ///
    /// Calls that run are not ended when further namespaces have calls, so that up to twice `calls` may run at a time: set
    /// [`concurrency`](Self::concurrency) accordingly.
    pub fn namespace_share(mut self, calls: usize) -> Self {
        self.namespace_share = Some(calls);
        self
    }

    /// How long a call may take, 60 s unless set otherwise: then it is dropped and made again as after an error, so that one
    /// that never returns keeps nobody's place.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long is waited before a call is made again that failed: up to half a second, a second, doubling to a minute, unless
    /// set otherwise. Only its object waits.
    pub fn patience(mut self, patience: BackoffSettings) -> Self {
        self.patience = patience;
        self
    }

    /// Also delivers the deletion of an object that was created and deleted before its creation could be delivered. By default such
    /// an object is not reported at all.
    ///
    /// For one of several replicas: another one may have delivered the creation.
    pub fn unseen_deletions(mut self, deliver: bool) -> Self {
        self.unseen_ends = deliver;
        self
    }

    /// Calls `handle` with each event on the async runtime that is current now, until it returns `Ok`, which acknowledges the
    /// event. After an error, a panic or the deadline it is called with the same event again, after a while.
    ///
    /// An event is told when the file says that it is owed, some 50 ms after the change; what changes meanwhile, and while an
    /// event is told, is merged, so that of each object the next event is the net change since the last one that was
    /// acknowledged. A stay of which the handler was told has its end told, always.
    ///
    /// # Errors
    ///
    /// Where the informer has no checkpoint, one of this name is there, the name is none, no runtime is current, or after
    /// the informer's stop.
    pub fn on_event<F, Fut, E>(self, handle: F) -> Result<DurableRegistration<T>, HandlerError>
    where
        F: Fn(Told<Lazy<T>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let Self { informer, name, concurrency, namespace_share, deadline, patience, unseen_ends } = self;
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(HandlerError::Name { name });
        }
        let runtime = Handle::try_current().map_err(|_| HandlerError::NoRuntime)?;
        let handle = Arc::new(move |told| {
            let made = handle(told);
            Box::pin(async move { made.await.map_err(|error| error.to_string()) }) as _
        });
        let calls = Calls { handle, runtime, concurrency, namespace_share, deadline, patience, unseen_ends };
        let durable = informer.shared().add_durable(&name, calls)?;
        Ok(DurableRegistration { durable, shared: informer.shared().clone() })
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for DurableBuilder<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A durable handler's place at an informer. Dropping it removes nothing.
pub struct DurableRegistration<T: Send + Sync + 'static> {
    durable: Arc<Durable<Lazy<T>>>,
    shared: Arc<Shared<Lazy<T>>>,
}

impl<T: Send + Sync + 'static> DurableRegistration<T> {
    /// What the handler has done and has before it.
    pub fn counts(&self) -> DurableCounts {
        self.durable.counts()
    }

    /// Returns which changes the handler has acknowledged, by their versions; `None` before the informer has synced.
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
        // One lock: a change that the snapshot has is pending, or acknowledged.
        let (snapshot, _, (first_pending, is_viewed)) = self.shared.published(|_, _| self.durable.first_pending());
        let reached = snapshot.version().filter(|_| is_viewed)?.clone();
        Some(DurablePosition { reached, first_pending })
    }

    /// Ends the handler: no call begins any more. What it is owed is kept for whoever comes next under its name, in this life
    /// of the program or another.
    pub fn remove(&self) {
        self.durable.leave();
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for DurableRegistration<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DurableRegistration({:?} at {})", self.durable.name(), self.shared.name)
    }
}
