//! The handle by which faults are switched.

use std::sync::Arc;
use std::time::Duration;

use super::conditions::Condition;
use super::interception::{Fate, Moment};
use super::log::FaultRecord;
use super::rules::{Answer, Corruption, RequestRule, Ruling, Spoiling};
use crate::cluster::Cluster;
use crate::records::RequestRecord;
use crate::storage::Change;
use crate::streams::StreamControl;

/// Switches faults on and off: of one replica, or of all of them.
///
/// Every switching is recorded with its time. What is switched on stays until it is switched off or healed.
#[derive(Clone, Debug)]
pub struct Faults {
    cluster: Arc<Cluster>,
    replica: Option<usize>,
}

impl Faults {
    pub(crate) fn of_all(cluster: Arc<Cluster>) -> Self {
        Self { cluster, replica: None }
    }

    /// The faults of one replica.
    ///
    /// # Panics
    /// Where there is no such replica.
    #[must_use]
    pub fn replica(&self, replica: usize) -> Self {
        assert!(replica < self.cluster.replicas.len(), "there is no replica {replica}");
        Self { cluster: Arc::clone(&self.cluster), replica: Some(replica) }
    }

    // The life of the process.

    /// The process ends: all connections are reset, new ones refused.
    pub fn stop(&self) {
        self.each("stop", Some(true), |replica| {
            self.condition(replica, |now| now.stopped = true);
            self.cluster.reset_links(replica);
        });
    }

    /// The process starts: its watch window begins now.
    pub fn start(&self) {
        self.each("stop", Some(false), |replica| {
            self.restart_cache(replica);
            self.condition(replica, |now| now.stopped = false);
        });
    }

    /// The process is replaced: all connections are reset, and the watch window begins anew.
    pub fn restart(&self) {
        self.each("restart", None, |replica| {
            self.condition(replica, |now| now.stopped = true);
            self.cluster.reset_links(replica);
            self.restart_cache(replica);
            self.condition(replica, |now| now.stopped = false);
        });
    }

    // The network.

    /// New connections are refused; open ones stay.
    pub fn refuse(&self, on: bool) {
        self.set("refuse", on, |now| now.refuse = on);
    }

    /// Connections are accepted and closed at once.
    pub fn accept_and_close(&self, on: bool) {
        self.set("accept_and_close", on, |now| now.accept_and_close = on);
    }

    /// All open connections are reset.
    pub fn reset(&self) {
        self.each("reset", None, |replica| self.cluster.reset_links(replica));
    }

    /// Every open connection is reset after it was sent so many bytes more, wherever in an object that is.
    pub fn reset_after_bytes(&self, bytes: u64) {
        self.each("reset_after_bytes", None, |replica| {
            for link in self.cluster.open_links(replica) {
                link.reset_after(bytes);
            }
        });
    }

    /// Nothing passes either way, and nobody is notified; what was on its way passes when this is switched off.
    ///
    /// Over TCP the kernel below still acknowledges what arrives, which packets that vanish would not have done.
    pub fn black_hole(&self, on: bool) {
        self.each("black_hole", Some(on), |replica| {
            self.condition(replica, |now| now.black_hole = on);
            for link in self.cluster.open_links(replica) {
                link.set_black_hole(on, self.cluster.clock.elapsed());
            }
        });
    }

    /// The network is cut: open connections are reset, new ones refused, until [`heal`](Self::heal).
    pub fn cut(&self) {
        self.each("cut", Some(true), |replica| {
            self.condition(replica, |now| now.refuse = true);
            self.cluster.reset_links(replica);
        });
    }

    /// The network is whole again: ends [`cut`](Self::cut), [`refuse`](Self::refuse),
    /// [`black_hole`](Self::black_hole) and [`accept_and_close`](Self::accept_and_close).
    pub fn heal(&self) {
        self.each("cut", Some(false), |replica| {
            self.condition(replica, |now| {
                now.refuse = false;
                now.accept_and_close = false;
                now.black_hole = false;
            });
            for link in self.cluster.open_links(replica) {
                link.set_black_hole(false, self.cluster.clock.elapsed());
            }
        });
    }

    /// Open connections are drained: HTTP/2 ones are sent a GOAWAY, streams under way go on.
    pub fn goaway(&self) {
        self.each("goaway", None, |replica| {
            for link in self.cluster.open_links(replica) {
                link.go_away();
            }
        });
    }

    // Streams and answers.

    /// Connections live and HTTP/2 pings are answered, but no request is handled and no stream gets data.
    pub fn freeze(&self, on: bool) {
        self.set("freeze", on, |now| now.frozen = on);
    }

    /// The watch streams open now stop sending, on healthy connections.
    pub fn stall_streams(&self, on: bool) {
        self.each("stall_streams", Some(on), |replica| self.each_stream(replica, |_, control| control.set_stalled(on)));
    }

    /// One watch stream, by the number of its request, stops sending or goes on.
    pub fn stall_stream(&self, request: u64, on: bool) {
        self.each("stall_stream", Some(on), |replica| {
            self.each_stream(replica, |id, control| {
                if id == request {
                    control.set_stalled(on);
                }
            });
        });
    }

    /// The watch streams open now end cleanly.
    pub fn end_watches(&self) {
        self.each("end_watches", None, |replica| self.each_stream(replica, |_, control| control.end()));
    }

    /// Every answer waits so long.
    pub fn delay(&self, delay: Duration) {
        self.set("delay", delay > Duration::ZERO, |now| now.delay = delay);
    }

    /// Watches get no bookmarks.
    pub fn no_bookmarks(&self, on: bool) {
        self.set("no_bookmarks", on, |now| now.no_bookmarks = on);
    }

    /// The watch cache hears of what is written to other resources only when a consistent read asks for it, as with an
    /// etcd that tells of its progress rarely: bookmarks go on with versions that do not rise.
    pub fn rare_progress(&self, on: bool) {
        self.set("rare_progress", on, |now| now.rare_progress = on);
    }

    /// Streamed lists never say that they are complete.
    pub fn no_initial_events_end(&self, on: bool) {
        self.set("no_initial_events_end", on, |now| now.no_initial_events_end = on);
    }

    /// The bookmark after the initial events comes without the annotation that tells it from others.
    pub fn unannotated_initial_events_end(&self, on: bool) {
        self.set("unannotated_initial_events_end", on, |now| now.unannotated_initial_events_end = on);
    }

    /// Streamed lists are refused, as by a server that has them switched off.
    pub fn refuse_streamed_lists(&self, on: bool) {
        self.set("refuse_streamed_lists", on, |now| now.refuse_streamed_lists = on);
    }

    /// Streamed lists are taken for plain watches, as by a server that does not know them.
    pub fn ignore_streamed_lists(&self, on: bool) {
        self.set("ignore_streamed_lists", on, |now| now.ignore_streamed_lists = on);
    }

    /// The versions of objects come from counters of their own, one for each namespace, as on an aggregated server that puts
    /// several stores together: they rise within a namespace and say nothing across. Lists and bookmarks have versions above
    /// all of them. Whatever version a client sends is understood.
    ///
    /// It holds for requests that come from here on, and only for reads: who writes is answered with the one counter there is.
    pub fn own_counters(&self, on: bool) {
        self.set("own_counters", on, |now| now.own_counters = on);
    }

    /// The next `times` continue tokens that are used have expired: `410`, with a token by which the rest is to be had
    /// as it is then.
    pub fn expire_continue_tokens(&self, times: u32) {
        self.set("expire_continue_tokens", times > 0, |now| now.expired_tokens = times);
    }

    /// Bodies are sent in pieces of so many bytes at most, wherever in an object or a character that cuts; 0 ends it.
    ///
    /// It holds for answers that begin from here on.
    pub fn split_bodies(&self, bytes: usize) {
        self.set("split_bodies", bytes > 0, |now| now.piece_bytes = bytes);
    }

    /// An object is sent with fields of a wrong type, on watches that are open too.
    pub fn undecodable(&self, namespace: &str, name: &str, on: bool) {
        self.spoil(namespace, name, on.then_some(Spoiling::WrongTypes));
    }

    /// An object is sent spoiled in this way, or as it is again; on watches that are open too.
    pub fn spoil(&self, namespace: &str, name: &str, how: Option<Spoiling>) {
        let key = (namespace.to_owned(), name.to_owned());
        self.set("spoil", how.is_some(), |now| {
            let spoiled = Arc::make_mut(&mut now.spoiled);
            match how {
                Some(how) => spoiled.insert(key.clone(), how),
                None => spoiled.remove(&key),
            };
        });
    }

    /// Requests that a rule is for get another answer.
    pub fn answer_with(&self, rule: RequestRule, answer: impl Into<Answer>) {
        self.log("answer_with", Some(true));
        self.cluster.rules.add(self.replica, rule, Ruling::Answer(answer.into()));
    }

    /// The bodies of answers that a rule is for are spoiled.
    pub fn corrupt(&self, rule: RequestRule, corruption: Corruption) {
        self.log("corrupt", Some(true));
        self.cluster.rules.add(self.replica, rule, Ruling::Corrupt(corruption));
    }

    /// Requests that a rule is for are answered so late, and then truly: as where converting objects takes its time.
    pub fn answer_late(&self, rule: RequestRule, wait: Duration) {
        self.log("answer_late", Some(true));
        self.cluster.rules.add(self.replica, rule, Ruling::Late(wait, None));
    }

    /// Requests that a rule is for are not answered for so long, and then by this: as where a conversion webhook is dead,
    /// `500` after its deadline.
    pub fn hang(&self, rule: RequestRule, wait: Duration, answer: impl Into<Answer>) {
        self.log("hang", Some(true));
        self.cluster.rules.add(self.replica, rule, Ruling::Late(wait, Some(answer.into())));
    }

    /// Only these tokens are accepted from now on; without any, everybody is.
    pub fn replace_tokens(&self, tokens: &[&str]) {
        self.log_of(None, "replace_tokens", None);
        self.cluster.set_tokens(tokens);
    }

    /// Takes back [`answer_with`](Self::answer_with), [`corrupt`](Self::corrupt), [`answer_late`](Self::answer_late) and
    /// [`hang`](Self::hang), for requests that come from here on.
    pub fn answer_truly(&self) {
        self.log("answer_with", Some(false));
        self.cluster.rules.clear(self.replica);
    }

    /// Has `interceptor` asked at each request, when it has arrived and when it is done, what is to become of it. It takes the place
    /// of the one before, and is asked for all replicas, whichever this handle is for.
    ///
    /// It is called by whoever serves the request, and is to be quick about it; it may switch faults.
    ///
    /// ```
    /// # use steadfast_apiserver::{ApiServer, Fate, Moment, Verb};
    /// # async fn example(server: &ApiServer) {
    /// // What is created is created, and nobody hears of it.
    /// server.faults().intercept(|request, moment| match (request.verb, moment) {
    ///     (Verb::Create, Moment::After) => Fate::Lost,
    ///     _ => Fate::Goes,
    /// });
    /// # }
    /// ```
    pub fn intercept(&self, interceptor: impl Fn(&RequestRecord, Moment) -> Fate + Send + Sync + 'static) {
        self.log_of(None, "intercept", Some(true));
        self.cluster.interception.set(Some(Arc::new(interceptor)));
    }

    /// Takes back [`intercept`](Self::intercept).
    pub fn intercept_no_more(&self) {
        self.log_of(None, "intercept", Some(false));
        self.cluster.interception.set(None);
    }

    // The watch cache and the history.

    /// The watch cache stops following the history, or catches up.
    pub fn lag(&self, on: bool) {
        self.each_cache("lag", on, |cache, revision| cache.lag_at = on.then_some(cache.applied.min(revision)));
    }

    /// The watch cache follows the history up to a revision and stops there.
    pub fn lag_at(&self, revision: u64) {
        self.each_cache("lag", true, |cache, _| cache.lag_at = Some(revision));
    }

    /// The store behind the replica is frozen: no writes, no consistent reads, no events; bookmarks go on.
    pub fn freeze_etcd(&self, on: bool) {
        self.each_cache("freeze_etcd", on, |cache, revision| cache.frozen_at = on.then_some(revision));
    }

    /// The window of events begins now: watches from older versions have expired. Open ones go on.
    pub fn expire_events(&self) {
        self.each("expire_events", None, |replica| {
            self.cluster.store.write(|state| state.caches[replica].window = state.caches[replica].applied);
        });
    }

    /// The next `count` changes that the predicate is true of are sent to nobody; lists do show them.
    pub fn drop_events(&self, count: usize, predicate: impl Fn(&Change) -> bool + Send + Sync + 'static) {
        let predicate = Arc::new(predicate);
        self.each("drop_events", None, |replica| {
            let predicate = Arc::clone(&predicate);
            self.cluster.store.write(|state| state.caches[replica].drop_next(count, predicate));
        });
    }

    /// The next change of a resource, by its plural name, is sent to nobody.
    pub fn drop_next_event(&self, resource: &str) {
        let resource = resource.to_owned();
        self.drop_events(1, move |change| change.resource.resource() == resource);
    }

    /// The next change of the object with this UID is sent to nobody.
    pub fn drop_event(&self, uid: &str) {
        let uid = uid.to_owned();
        self.drop_events(1, move |change| change.uid == uid);
    }

    /// Watches that resume are sent the last `count` events before their version again.
    pub fn repeat_events(&self, count: usize) {
        self.set("repeat_events", count > 0, |now| now.repeat_events = count);
    }

    /// The history goes back to an older revision, as when etcd is restored from a backup.
    ///
    /// Revisions go on from there, in a new epoch; all replicas restart.
    pub fn restore(&self, revision: u64) {
        self.log_of(None, "restore", None);
        for replica in 0..self.cluster.replicas.len() {
            self.condition(replica, |now| now.stopped = true);
            self.cluster.reset_links(replica);
        }
        self.cluster.store.write(|state| state.restore(revision));
        for replica in 0..self.cluster.replicas.len() {
            self.condition(replica, |now| now.stopped = false);
        }
    }

    fn replicas(&self) -> std::ops::Range<usize> {
        match self.replica {
            Some(replica) => replica..replica + 1,
            None => 0..self.cluster.replicas.len(),
        }
    }

    fn log_of(&self, replica: Option<usize>, fault: &'static str, on: Option<bool>) {
        self.cluster.fault_log.push(FaultRecord { at: self.cluster.clock.elapsed(), replica, fault, on });
    }

    fn log(&self, fault: &'static str, on: Option<bool>) {
        self.log_of(self.replica, fault, on);
    }

    /// Records the switching and does it to every replica this handle is for.
    fn each(&self, fault: &'static str, on: Option<bool>, mut switch: impl FnMut(usize)) {
        for replica in self.replicas() {
            self.log_of(Some(replica), fault, on);
            switch(replica);
        }
        self.cluster.changed.raise();
    }

    fn set(&self, fault: &'static str, on: bool, mut change: impl FnMut(&mut Condition)) {
        self.each(fault, Some(on), |replica| self.condition(replica, &mut change));
    }

    fn condition(&self, replica: usize, change: impl FnOnce(&mut Condition)) {
        self.cluster.replicas[replica].change(change);
        self.cluster.changed.raise();
    }

    fn each_stream(&self, replica: usize, mut control: impl FnMut(u64, &StreamControl)) {
        for (request, stream) in self.cluster.replicas[replica].streams.all() {
            control(request, &stream);
        }
    }

    fn each_cache(&self, fault: &'static str, on: bool, change: impl Fn(&mut crate::storage::Cache, u64)) {
        self.each(fault, Some(on), |replica| {
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
