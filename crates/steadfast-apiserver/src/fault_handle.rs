//! Handle that switches faults.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::faults::{
    BodyCorruption, FaultRecord, InjectedResponse, InterceptAction, ObjectCorruption, ReplicaFaults, RequestRule,
    RequestStage, RuleEffect,
};
use crate::records::RequestRecord;
use crate::storage::Change;
use crate::streams::StreamControl;

/// Switches faults of one replica, or of all replicas, on and off.
///
/// Every switch is recorded with its time. A fault stays on until it is switched off or healed.
#[derive(Clone, Debug)]
pub struct Faults {
    cluster: Arc<Cluster>,
    replica: Option<usize>,
}

impl Faults {
    pub(crate) fn for_all_replicas(cluster: Arc<Cluster>) -> Self {
        Self { cluster, replica: None }
    }

    /// Returns a handle for the faults of one replica, counted from 0.
    ///
    /// # Panics
    /// Panics if the replica does not exist.
    #[must_use]
    pub fn replica(&self, replica: usize) -> Self {
        assert!(replica < self.cluster.replicas.len(), "replica {replica} does not exist");
        Self { cluster: Arc::clone(&self.cluster), replica: Some(replica) }
    }

    // Process lifetime.

    /// Stops the process: resets all connections and rejects new ones.
    pub fn stop(&self) {
        self.for_each_replica("stop", Some(true), |replica| {
            // The replica is stopped before the reset, so that a reconnecting client is rejected.
            self.change_faults(replica, |faults| faults.is_stopped = true);
            self.cluster.reset_links(replica);
        });
    }

    /// Starts the process. Its watch window starts at the current revision.
    pub fn start(&self) {
        self.for_each_replica("stop", Some(false), |replica| {
            // The cache restarts first, so that the first request reads the new cache.
            self.restart_cache(replica);
            self.change_faults(replica, |faults| faults.is_stopped = false);
        });
    }

    /// Replaces the process: resets all connections and starts the watch window again.
    pub fn restart(&self) {
        self.for_each_replica("restart", None, |replica| {
            self.change_faults(replica, |faults| faults.is_stopped = true);
            self.cluster.reset_links(replica);
            self.restart_cache(replica);
            self.change_faults(replica, |faults| faults.is_stopped = false);
        });
    }

    // Network.

    /// Rejects new connections; open ones stay.
    pub fn refuse(&self, on: bool) {
        self.set_fault("refuse", on, |faults| faults.refuses_connections = on);
    }

    /// Accepts connections and closes them immediately.
    pub fn accept_and_close(&self, on: bool) {
        self.set_fault("accept_and_close", on, |faults| faults.accept_and_close = on);
    }

    /// Resets all open connections.
    pub fn reset(&self) {
        self.for_each_replica("reset", None, |replica| self.cluster.reset_links(replica));
    }

    /// Resets each open connection after `bytes` more bytes, at any position within an object.
    pub fn reset_after_bytes(&self, bytes: u64) {
        self.for_each_replica("reset_after_bytes", None, |replica| {
            for link in self.cluster.open_links(replica) {
                link.reset_after(bytes);
            }
        });
    }

    /// Holds back all traffic in both directions without an error. The traffic continues when the fault ends.
    ///
    /// Over TCP, the kernel still acknowledges received data, unlike a network that loses packets.
    pub fn black_hole(&self, on: bool) {
        self.for_each_replica("black_hole", Some(on), |replica| {
            // `is_black_hole` applies to connections that are opened later. The loop changes the open connections.
            self.change_faults(replica, |faults| faults.is_black_hole = on);
            for link in self.cluster.open_links(replica) {
                link.set_black_hole(on, self.cluster.clock.elapsed());
            }
        });
    }

    /// Disconnects the network: resets open connections and rejects new ones until [`heal`](Self::heal).
    pub fn cut(&self) {
        self.for_each_replica("cut", Some(true), |replica| {
            // New connections are rejected before the reset, so that a client cannot reconnect in between.
            self.change_faults(replica, |faults| faults.refuses_connections = true);
            self.cluster.reset_links(replica);
        });
    }

    /// Restores the network: ends [`cut`](Self::cut), [`refuse`](Self::refuse), [`black_hole`](Self::black_hole) and
    /// [`accept_and_close`](Self::accept_and_close).
    pub fn heal(&self) {
        self.for_each_replica("cut", Some(false), |replica| {
            self.change_faults(replica, |faults| {
                faults.refuses_connections = false;
                faults.accept_and_close = false;
                faults.is_black_hole = false;
            });
            for link in self.cluster.open_links(replica) {
                link.set_black_hole(false, self.cluster.clock.elapsed());
            }
        });
    }

    /// Drains open connections: HTTP/2 connections receive a GOAWAY, streams in flight continue.
    pub fn goaway(&self) {
        self.for_each_replica("goaway", None, |replica| {
            for link in self.cluster.open_links(replica) {
                link.go_away();
            }
        });
    }

    // Streams and responses.

    /// Handles no requests and sends no data on streams. Connections stay open, and HTTP/2 pings are acknowledged.
    pub fn freeze(&self, on: bool) {
        self.set_fault("freeze", on, |faults| faults.is_frozen = on);
    }

    /// Stalls the open watch streams; their connections stay healthy.
    pub fn stall_streams(&self, on: bool) {
        self.for_each_replica("stall_streams", Some(on), |replica| {
            self.for_each_stream(replica, |_, control| control.set_stalled(on));
        });
    }

    /// Stalls or continues the watch stream of one request, by the request's number.
    pub fn stall_stream(&self, request: u64, on: bool) {
        self.for_each_replica("stall_stream", Some(on), |replica| {
            self.for_each_stream(replica, |id, control| {
                if id == request {
                    control.set_stalled(on);
                }
            });
        });
    }

    /// Ends the open watch streams cleanly.
    pub fn end_watches(&self) {
        self.for_each_replica("end_watches", None, |replica| self.for_each_stream(replica, |_, control| control.end()));
    }

    /// Delays every request by `delay` before it is processed. [`Duration::ZERO`] ends the fault.
    pub fn delay(&self, delay: Duration) {
        self.set_fault("delay", delay > Duration::ZERO, |faults| faults.delay = delay);
    }

    /// Sends no bookmarks to watches.
    pub fn no_bookmarks(&self, on: bool) {
        self.set_fault("no_bookmarks", on, |faults| faults.no_bookmarks = on);
    }

    /// Limits the versions of bookmarks: only a change of the watched resource or a consistent read raises them.
    ///
    /// This is the behaviour of an etcd with rare progress notifications. Bookmarks continue, but writes to other
    /// resources do not raise their versions.
    pub fn rare_progress(&self, on: bool) {
        self.set_fault("rare_progress", on, |faults| faults.rare_progress = on);
    }

    /// Omits the end marker of streamed lists, so that they never complete.
    pub fn no_initial_events_end(&self, on: bool) {
        self.set_fault("no_initial_events_end", on, |faults| faults.no_initial_events_end = on);
    }

    /// Sends the bookmark after the initial events without its annotation, like an ordinary bookmark.
    pub fn unannotated_initial_events_end(&self, on: bool) {
        self.set_fault("unannotated_initial_events_end", on, |faults| {
            faults.unannotated_initial_events_end = on;
        });
    }

    /// Rejects streamed lists, like a server on which they are disabled.
    pub fn refuse_streamed_lists(&self, on: bool) {
        self.set_fault("refuse_streamed_lists", on, |faults| faults.refuse_streamed_lists = on);
    }

    /// Treats streamed lists as plain watches, like a server that does not support them.
    pub fn ignore_streamed_lists(&self, on: bool) {
        self.set_fault("ignore_streamed_lists", on, |faults| faults.ignore_streamed_lists = on);
    }

    /// Gives objects versions from separate counters, one for each namespace.
    ///
    /// This is the behaviour of an aggregated server over several stores. Versions rise within a namespace and have no
    /// order across namespaces. Lists and bookmarks have versions above all of them. The server accepts every version
    /// that a client sends.
    ///
    /// The fault applies to new requests, and only to reads: responses to writes contain the single counter of the
    /// server.
    pub fn namespace_counters(&self, on: bool) {
        self.set_fault("namespace_counters", on, |faults| faults.has_namespace_counters = on);
    }

    /// Expires the next `times` continue tokens on use. The response is `410` with a token for the rest of the list at
    /// the current version.
    pub fn expire_continue_tokens(&self, times: u32) {
        self.set_fault("expire_continue_tokens", times > 0, |faults| faults.tokens_to_expire = times);
    }

    /// Sends bodies in chunks of at most `bytes` bytes, at any position within an object or a character; 0 ends the
    /// fault.
    ///
    /// The fault applies to new responses.
    pub fn split_bodies(&self, bytes: usize) {
        self.set_fault("split_bodies", bytes > 0, |faults| faults.max_chunk_bytes = bytes);
    }

    /// Sends an object with fields of a wrong type, also on open watches.
    pub fn undecodable(&self, namespace: &str, name: &str, on: bool) {
        self.corrupt_object(namespace, name, on.then_some(ObjectCorruption::WrongTypes));
    }

    /// Sends a corrupted object, also on open watches. `None` ends the fault.
    pub fn corrupt_object(&self, namespace: &str, name: &str, corruption: Option<ObjectCorruption>) {
        let key = (namespace.to_owned(), name.to_owned());
        self.set_fault("corrupt_object", corruption.is_some(), |faults| {
            let corrupted_objects = Arc::make_mut(&mut faults.corrupted_objects);
            match corruption {
                Some(corruption) => corrupted_objects.insert(key.clone(), corruption),
                None => corrupted_objects.remove(&key),
            };
        });
    }

    /// Sends `response` instead of the real response to requests that match the rule.
    pub fn respond(&self, rule: RequestRule, response: impl Into<InjectedResponse>) {
        self.log("respond", Some(true));
        self.cluster.rules.add(self.replica, rule, RuleEffect::Respond(response.into()));
    }

    /// Corrupts the response bodies of requests that match the rule.
    pub fn corrupt(&self, rule: RequestRule, corruption: BodyCorruption) {
        self.log("corrupt", Some(true));
        self.cluster.rules.add(self.replica, rule, RuleEffect::Corrupt(corruption));
    }

    /// Delays requests that match the rule by `wait` before they are processed, like a slow conversion of objects.
    pub fn delay_matching(&self, rule: RequestRule, wait: Duration) {
        self.log("delay_matching", Some(true));
        self.cluster.rules.add(self.replica, rule, RuleEffect::Delay(wait, None));
    }

    /// Delays requests that match the rule by `wait` and then sends `response`, like a dead conversion webhook with a
    /// `500` after its deadline.
    pub fn respond_after(&self, rule: RequestRule, wait: Duration, response: impl Into<InjectedResponse>) {
        self.log("respond_after", Some(true));
        self.cluster.rules.add(self.replica, rule, RuleEffect::Delay(wait, Some(response.into())));
    }

    /// Replaces the accepted tokens. If no tokens are left, a server without users accepts all requests, unless it was
    /// built with [`require_credentials`](crate::ApiServerBuilder::require_credentials).
    pub fn replace_tokens(&self, tokens: &[&str]) {
        self.log_for(None, "replace_tokens", None);
        self.cluster.set_tokens(tokens);
    }

    /// Ends [`respond`](Self::respond), [`corrupt`](Self::corrupt), [`delay_matching`](Self::delay_matching) and
    /// [`respond_after`](Self::respond_after) for new requests.
    pub fn clear_rules(&self) {
        self.log("respond", Some(false));
        self.cluster.rules.clear(self.replica);
    }

    /// Calls `interceptor` for each request, on arrival and after processing. The result decides how the request
    /// continues.
    ///
    /// A new interceptor replaces the previous one. It applies to all replicas, even if this handle selects one. The
    /// task that serves the request calls the interceptor, which should return quickly. It may switch faults.
    ///
    /// ```
    /// # use steadfast_apiserver::{ApiServer, InterceptAction, RequestStage, Verb};
    /// # async fn example(server: &ApiServer) {
    /// // Objects are created, and the client receives no response.
    /// server.faults().intercept(|request, stage| match (request.verb, stage) {
    ///     (Verb::Create, RequestStage::Processed) => InterceptAction::Reset,
    ///     _ => InterceptAction::Continue,
    /// });
    /// # }
    /// ```
    pub fn intercept(
        &self,
        interceptor: impl Fn(&RequestRecord, RequestStage) -> InterceptAction + Send + Sync + 'static,
    ) {
        self.log_for(None, "intercept", Some(true));
        self.cluster.interception.set(Some(Arc::new(interceptor)));
    }

    /// Ends [`intercept`](Self::intercept).
    pub fn clear_interceptor(&self) {
        self.log_for(None, "intercept", Some(false));
        self.cluster.interception.set(None);
    }

    // Watch cache and history.

    /// Stops the watch cache from following the history, or lets it catch up.
    pub fn lag(&self, on: bool) {
        self.for_each_cache("lag", on, |cache, revision| {
            cache.lag_at = on.then_some(cache.applied_revision.min(revision));
        });
    }

    /// Lets the watch cache follow the history up to `revision` only.
    pub fn lag_at(&self, revision: u64) {
        self.for_each_cache("lag", true, |cache, _| cache.lag_at = Some(revision));
    }

    /// Freezes the store of the replica: no writes, no consistent reads, no events. Bookmarks continue.
    pub fn freeze_etcd(&self, on: bool) {
        self.for_each_cache("freeze_etcd", on, |cache, revision| cache.frozen_at = on.then_some(revision));
    }

    /// Starts the window of events again at the revision of the watch cache. New watches from older versions then
    /// expire. Open watches continue.
    pub fn expire_events(&self) {
        self.for_each_replica("expire_events", None, |replica| {
            self.cluster
                .store
                .write(|state| state.caches[replica].window_start = state.caches[replica].applied_revision);
        });
    }

    /// Drops the events of the next `count` changes that match the predicate. Lists still contain these changes.
    pub fn drop_events(&self, count: usize, predicate: impl Fn(&Change) -> bool + Send + Sync + 'static) {
        let predicate = Arc::new(predicate);
        self.for_each_replica("drop_events", None, |replica| {
            let predicate = Arc::clone(&predicate);
            self.cluster.store.write(|state| state.caches[replica].drop_next(count, predicate));
        });
    }

    /// Drops the event of the next change of a resource, by its plural name.
    pub fn drop_next_event(&self, resource: &str) {
        let resource = resource.to_owned();
        self.drop_events(1, move |change| change.resource.resource() == resource);
    }

    /// Drops the event of the next change of the object with this UID.
    pub fn drop_event(&self, uid: &str) {
        let uid = uid.to_owned();
        self.drop_events(1, move |change| change.uid == uid);
    }

    /// Sends the last `count` events before the requested version again to each resumed watch.
    pub fn repeat_events(&self, count: usize) {
        self.set_fault("repeat_events", count > 0, |faults| faults.repeat_events = count);
    }

    /// Restores the history to an older revision, like a restore of etcd from a backup.
    ///
    /// Revisions continue from there in a new epoch. All replicas restart. A server that started from a snapshot
    /// cannot be restored to a revision before that snapshot.
    pub fn restore(&self, revision: u64) {
        self.log_for(None, "restore", None);
        // All replicas stop first, so that no connection delivers both histories.
        for replica in 0..self.cluster.replicas.len() {
            self.change_faults(replica, |faults| faults.is_stopped = true);
            self.cluster.reset_links(replica);
        }
        self.cluster.store.write(|state| state.restore(revision));
        for replica in 0..self.cluster.replicas.len() {
            self.change_faults(replica, |faults| faults.is_stopped = false);
        }
    }

    fn replicas(&self) -> std::ops::Range<usize> {
        match self.replica {
            Some(replica) => replica..replica + 1,
            None => 0..self.cluster.replicas.len(),
        }
    }

    fn log_for(&self, replica: Option<usize>, fault: &'static str, on: Option<bool>) {
        self.cluster.fault_log.push(FaultRecord { at: self.cluster.clock.elapsed(), replica, fault, on });
    }

    fn log(&self, fault: &'static str, on: Option<bool>) {
        self.log_for(self.replica, fault, on);
    }

    /// Records the switch and applies it to each replica of this handle.
    fn for_each_replica(&self, fault: &'static str, on: Option<bool>, mut switch: impl FnMut(usize)) {
        for replica in self.replicas() {
            self.log_for(Some(replica), fault, on);
            switch(replica);
        }
        // Blocked streams and requests wake up and check whether they are still blocked.
        self.cluster.changed.raise();
    }

    fn set_fault(&self, fault: &'static str, on: bool, mut change: impl FnMut(&mut ReplicaFaults)) {
        self.for_each_replica(fault, Some(on), |replica| self.change_faults(replica, &mut change));
    }

    fn change_faults(&self, replica: usize, change: impl FnOnce(&mut ReplicaFaults)) {
        self.cluster.replicas[replica].change(change);
        self.cluster.changed.raise();
    }

    fn for_each_stream(&self, replica: usize, mut control: impl FnMut(u64, &StreamControl)) {
        for (request, stream) in self.cluster.replicas[replica].streams.all() {
            control(request, &stream);
        }
    }

    fn for_each_cache(&self, fault: &'static str, on: bool, change: impl Fn(&mut crate::storage::Cache, u64)) {
        self.for_each_replica(fault, Some(on), |replica| {
            self.cluster.store.write(|state| {
                let revision = state.revision();
                change(&mut state.caches[replica], revision);
            });
        });
    }

    fn restart_cache(&self, replica: usize) {
        self.cluster.store.write(|state| {
            let revision = state.revision();
            state.caches[replica].restart(revision);
        });
    }
}
