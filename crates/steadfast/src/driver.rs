//! Drives one informer: feeds the reflector what arrives, and does what it says.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use steadfast_core::Instant;
use steadfast_core::decode::{
    self, DecodeError, DecodeOptions, Decoder, Encoding, Kept, PartialIdentity, RawObject, RecordError, WatchRecord,
};
use steadfast_core::event::{Change, Path};
use steadfast_core::frame::{LineFramer, ListFramer, ListPart};
use steadfast_core::record::{Identity, ListMeta, RecordKind};
use steadfast_core::reflector::{
    Failure, Gravity, Input, Note, Output, Record, Reflector, Request, RequestId, Verdict,
};
use steadfast_core::store::{Offer, Staging, Tainted};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use crate::answers::{Answers, Arrival, Asker};
use crate::shared::{Shared, Writer};

/// What an informer's handles can ask of its driver.
pub(crate) enum Command {
    /// Find out whether the cache has reached the present.
    SeekProof,
    /// End the watch, and the handlers with it or after they have been told what waits.
    Stop { handlers: bool },
}

/// What is changed in an object before it is kept.
pub(crate) type Transform<K> = Arc<dyn Fn(K) -> K + Send + Sync>;

/// How objects are kept.
pub(crate) struct Keeping<K> {
    pub(crate) decode: DecodeOptions,
    pub(crate) transform: Option<Transform<K>>,
    /// The longest record that is read, in bytes.
    pub(crate) object_limit: usize,
    /// How often handlers are to look at everything again.
    pub(crate) resync: Option<Duration>,
}

pub(crate) struct Driver<K> {
    shared: Arc<Shared<K>>,
    reflector: Reflector,
    asker: Asker,
    keeping: Keeping<K>,
    decoder: Decoder,
    answers: Answers,
    parsers: BTreeMap<RequestId, Parser>,
    /// Which requests are streams, known before their answers come.
    streams: BTreeMap<RequestId, bool>,
    staging: Option<Staging<K>>,
    transfer: Transfer,
    commands: mpsc::UnboundedReceiver<Command>,
    reachable: watch::Receiver<u64>,
    timer: Option<(Instant, BoxFuture<'static, ()>)>,
    resync_at: Option<Instant>,
    changes: Vec<Change<K>>,
    /// The first list is in the store since the last publication.
    viewed: bool,
    tainted: usize,
}

/// A place among the full transfers that a server is asked for at once.
enum Transfer {
    None,
    Awaited(BoxFuture<'static, OwnedSemaphorePermit>),
    Held { _permit: OwnedSemaphorePermit },
}

enum Parser {
    Stream(Encoding, LineFramer),
    List(Encoding, ListFramer, Option<ListMeta>),
}

enum Wake {
    Command(Option<Command>),
    Arrival(RequestId, Arrival),
    Granted(OwnedSemaphorePermit),
    Reachable,
    Timer,
}

impl<K: Kept> Driver<K> {
    pub(crate) fn new(
        shared: Arc<Shared<K>>,
        reflector: Reflector,
        asker: Asker,
        keeping: Keeping<K>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let reachable = asker.connection.reachability();
        Self {
            shared,
            reflector,
            decoder: Decoder::new(keeping.decode),
            asker,
            keeping,
            answers: Answers::default(),
            parsers: BTreeMap::new(),
            streams: BTreeMap::new(),
            staging: None,
            transfer: Transfer::None,
            commands,
            reachable,
            timer: None,
            resync_at: None,
            changes: Vec::new(),
            viewed: false,
            tainted: 0,
        }
    }

    /// Runs until the informer is stopped or nobody holds it any more.
    pub(crate) async fn run(mut self) {
        self.step(Input::Start);
        let handlers = loop {
            match self.next().await {
                Wake::Command(None) => break true,
                Wake::Command(Some(Command::Stop { handlers })) => break handlers,
                Wake::Command(Some(Command::SeekProof)) => self.step(Input::SeekProof),
                Wake::Granted(permit) => {
                    self.transfer = Transfer::Held { _permit: permit };
                    self.step(Input::TransferGranted);
                }
                Wake::Reachable => self.step(Input::Reachable),
                Wake::Timer => {
                    self.timer = None;
                    self.step(Input::Tick);
                    self.resync();
                }
                Wake::Arrival(id, arrival) => self.arrived(id, arrival),
            }
        };
        self.step(Input::Stop);
        self.shared.stop();
        if handlers {
            self.shared.close_handlers();
        }
    }

    async fn next(&mut self) -> Wake {
        self.arm();
        let Self { commands, answers, transfer, reachable, timer, .. } = self;
        let granted = async {
            match transfer {
                Transfer::Awaited(permit) => permit.await,
                Transfer::None | Transfer::Held { .. } => std::future::pending().await,
            }
        };
        let timed = async {
            match timer {
                Some((_, sleep)) => sleep.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            command = commands.recv() => Wake::Command(command),
            permit = granted => Wake::Granted(permit),
            Ok(()) = reachable.changed() => Wake::Reachable,
            () = timed => Wake::Timer,
            (id, arrival) = poll_fn(|context| answers.poll_next(context)) => Wake::Arrival(id, arrival),
        }
    }

    /// Sets the timer for the next moment that matters; one that fires early only looks again.
    fn arm(&mut self) {
        let due = [self.reflector.wake_at(), self.resync_at].into_iter().flatten().min();
        match (due, &self.timer) {
            (None, _) => self.timer = None,
            (Some(due), Some((armed, _))) if *armed <= due => {}
            (Some(due), _) => self.timer = Some((due, self.shared.environment.sleep_until(due))),
        }
    }

    fn step(&mut self, input: Input) {
        let now = self.shared.environment.now();
        let outputs = self.reflector.step(now, input);
        let shared = self.shared.clone();
        let mut writer = shared.writer();
        self.perform(outputs, &mut writer);
        self.publish(&mut writer);
    }

    fn arrived(&mut self, id: RequestId, arrival: Arrival) {
        match arrival {
            Arrival::Opened(encoding) => {
                let limit = self.keeping.object_limit;
                let parser = if self.streams.get(&id).copied().unwrap_or_default() {
                    Parser::Stream(encoding, LineFramer::new(limit))
                } else {
                    Parser::List(encoding, ListFramer::new(limit), None)
                };
                self.parsers.insert(id, parser);
                self.step(Input::Opened(id));
            }
            Arrival::Chunk(chunk) => {
                if let Some(parser) = self.parsers.remove(&id) {
                    self.chunk(id, chunk, parser);
                }
            }
            Arrival::Ended => {
                self.streams.remove(&id);
                match self.parsers.remove(&id) {
                    Some(Parser::Stream(_, framer)) => match framer.finish() {
                        Ok(()) => self.step(Input::Ended(id)),
                        Err(error) => self.step(Input::Failed(id, Failure::unreachable(error.to_string()))),
                    },
                    Some(Parser::List(_, framer, meta)) => match (framer.finish(), meta) {
                        (Ok(()), Some(meta)) => self.step(Input::ListEnded(id, meta)),
                        (Ok(()), None) => {
                            // Any JSON object could pass for an empty list, and an empty list deletes everything.
                            self.step(Input::Failed(id, Failure::unreadable("the answer is not a list")));
                        }
                        (Err(error), _) => self.step(Input::Failed(id, Failure::unreachable(error.to_string()))),
                    },
                    None => {}
                }
            }
            Arrival::Failed(failure) => {
                self.streams.remove(&id);
                self.parsers.remove(&id);
                self.step(Input::Failed(id, failure));
            }
        }
    }

    /// Takes in a piece of an answer: all its whole records, under one lock and one publication.
    fn chunk(&mut self, id: RequestId, chunk: Bytes, mut parser: Parser) {
        let now = self.shared.environment.now();
        let shared = self.shared.clone();
        let mut writer = shared.writer();
        let read = match &mut parser {
            Parser::Stream(encoding, framer) => {
                framer.feed(chunk);
                self.read_stream(now, id, *encoding, framer, &mut writer)
            }
            Parser::List(encoding, framer, meta) => {
                framer.feed(chunk);
                self.read_list(now, id, *encoding, framer, meta, &mut writer)
            }
        };
        match read {
            // An answer that was cancelled on the way is in `streams` no more.
            Ok(()) if self.streams.contains_key(&id) => {
                self.parsers.insert(id, parser);
            }
            Ok(()) => {}
            Err(failure) => {
                self.drop_request(id);
                let outputs = self.reflector.step(now, Input::Failed(id, failure));
                self.perform(outputs, &mut writer);
            }
        }
        self.publish(&mut writer);
    }

    fn read_stream(
        &mut self,
        now: Instant,
        id: RequestId,
        encoding: Encoding,
        framer: &mut LineFramer,
        writer: &mut Writer<K>,
    ) -> Result<(), Failure> {
        while let Some(record) = framer.next() {
            let record = record.map_err(|error| Failure::unreadable(error.to_string()))?;
            let (verdict, object) = match decode::watch_record(encoding, &record) {
                Ok(WatchRecord::Object { kind, object }) => {
                    let verdict = self.reflector.record(now, id, Record::Object(kind, &object.identity));
                    (verdict, Some((kind, object)))
                }
                Ok(WatchRecord::Bookmark(bookmark)) => {
                    (self.reflector.record(now, id, Record::Bookmark(&bookmark)), None)
                }
                Ok(WatchRecord::Error(status)) => {
                    self.drop_request(id);
                    (self.reflector.record(now, id, Record::Error(&status)), None)
                }
                Err(error) => {
                    match tainted(&error) {
                        Some((kind, identity)) => self.tainted_record(now, id, kind, identity, &error, writer),
                        None => self.unidentified(now, id, &error, writer),
                    }
                    continue;
                }
            };
            match (verdict, object) {
                (Verdict::Apply, Some((kind, object))) => {
                    let kept = if kind == RecordKind::Deleted { Err(Tainted) } else { self.keep(&object) };
                    self.apply(kind, object.identity, kept, writer);
                }
                (Verdict::Stage, Some((RecordKind::Deleted, object))) => self.unstage(&object.identity),
                (Verdict::Stage, Some((_, object))) => self.stage(&object),
                (Verdict::Do(outputs), _) => self.perform(outputs, writer),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_list(
        &mut self,
        now: Instant,
        id: RequestId,
        encoding: Encoding,
        framer: &mut ListFramer,
        meta: &mut Option<ListMeta>,
        writer: &mut Writer<K>,
    ) -> Result<(), Failure> {
        while let Some(part) = framer.next() {
            match part.map_err(|error| Failure::unreadable(error.to_string()))? {
                ListPart::Item(item) => match decode::list_item(encoding, &item) {
                    Ok(object) => {
                        if self.reflector.list_item(now, id) == Verdict::Stage {
                            self.stage(&object);
                        }
                    }
                    Err(error) => match tainted(&error) {
                        Some((_, identity)) => {
                            self.tainted_record(now, id, RecordKind::Added, identity, &error, writer);
                        }
                        None => self.unidentified(now, id, &error, writer),
                    },
                },
                ListPart::Meta(found) => *meta = Some(found),
                ListPart::Status(status) => return Err(Failure::from_status(&status, None)),
                ListPart::End { .. } => {}
            }
        }
        Ok(())
    }

    /// Takes in a record whose object cannot be read, though it is known which one it is (R8).
    fn tainted_record(
        &mut self,
        now: Instant,
        id: RequestId,
        kind: RecordKind,
        identity: Identity,
        error: &RecordError,
        writer: &mut Writer<K>,
    ) {
        tracing::warn!(informer = %self.shared.name, %error, "an object cannot be read; it answers as unknown");
        let verdict = match self.reflector.list_item(now, id) {
            Verdict::Skip => self.reflector.record(now, id, Record::Object(kind, &identity)),
            staged => staged,
        };
        match (verdict, kind) {
            (Verdict::Apply, _) => self.apply(kind, identity, Err(Tainted), writer),
            (Verdict::Stage, RecordKind::Deleted) => self.unstage(&identity),
            (Verdict::Stage, _) => {
                if let Some(staging) = &mut self.staging {
                    staging.put(identity, Err(Tainted));
                }
            }
            (Verdict::Do(outputs), _) => self.perform(outputs, writer),
            (Verdict::Skip, _) => {}
        }
    }

    fn unidentified(&mut self, now: Instant, id: RequestId, error: &RecordError, writer: &mut Writer<K>) {
        let outputs = self.reflector.step(now, Input::Unidentified(id, error.to_string().into()));
        self.perform(outputs, writer);
    }

    /// Applies a record of a watch to the store.
    fn apply(&mut self, kind: RecordKind, identity: Identity, kept: Result<Arc<K>, Tainted>, writer: &mut Writer<K>) {
        let changes = &mut self.changes;
        let tell = |change| changes.push(change);
        let version = identity.version.clone();
        if kind == RecordKind::Deleted {
            let path = Path::Watched { deletion: Some(version.clone()) };
            writer.store.remove(&identity.key, &identity.uid, &path, tell);
        } else {
            writer.store.apply(identity, kept, &Path::Watched { deletion: None }, tell);
        }
        writer.store.advance(version);
    }

    fn stage(&mut self, object: &RawObject) {
        let Some(staging) = &mut self.staging else { return };
        if staging.offer(&object.identity) == Offer::Wanted {
            let kept = keep(&mut self.decoder, &self.keeping, object, &self.shared.name);
            staging.put(object.identity.clone(), kept);
        }
    }

    fn unstage(&mut self, identity: &Identity) {
        if let Some(staging) = &mut self.staging {
            staging.remove(identity);
        }
    }

    fn keep(&mut self, object: &RawObject) -> Result<Arc<K>, Tainted> {
        keep(&mut self.decoder, &self.keeping, object, &self.shared.name)
    }

    fn perform(&mut self, outputs: Vec<Output>, writer: &mut Writer<K>) {
        for output in outputs {
            match output {
                Output::Send(id, request) => self.send(id, &request),
                Output::Cancel(id) => self.drop_request(id),
                Output::AwaitTransfer => {
                    self.transfer = Transfer::Awaited(self.asker.connection.transfer());
                }
                Output::ReleaseTransfer => self.transfer = Transfer::None,
                Output::BeginStaging { anew: false } => self.staging = Some(writer.store.begin_relist()),
                Output::BeginStaging { anew: true } => self.staging = Some(writer.store.begin_anew()),
                Output::DropStaging => self.staging = None,
                Output::Commit { version, initial, new_epoch } => {
                    let Some(staging) = self.staging.take() else { continue };
                    let changes = &mut self.changes;
                    let path = if new_epoch { Path::NewEpoch } else { Path::Listed { initial } };
                    let committed =
                        writer.store.commit(staging, version, &path, new_epoch, |change| changes.push(change));
                    if let Err(error) = committed {
                        tracing::error!(informer = %self.shared.name, %error, "a list was refused by the store");
                    }
                    self.viewed = true;
                }
                Output::Advance(version) => writer.store.advance(version),
                Output::RememberPages => self.asker.connection.remember_pages(&self.asker.path),
                Output::Note(note) => self.tell(&note),
            }
        }
    }

    fn send(&mut self, id: RequestId, request: &Request) {
        self.streams.insert(id, request.is_stream());
        self.answers.send(id, request, &self.asker);
    }

    fn drop_request(&mut self, id: RequestId) {
        self.answers.cancel(id);
        self.parsers.remove(&id);
        self.streams.remove(&id);
    }

    fn tell(&self, note: &Note) {
        let informer = &self.shared.name;
        match note.gravity() {
            Gravity::Routine => tracing::debug!(%informer, "{note}"),
            Gravity::Fault => tracing::warn!(%informer, "{note}"),
        }
        self.shared.tell(note);
    }

    /// Makes visible what was done, and tells the handlers and whoever waits.
    fn publish(&mut self, writer: &mut Writer<K>) {
        let viewed = std::mem::take(&mut self.viewed);
        let changed = viewed || !self.changes.is_empty();
        self.shared.publish(writer, &mut self.changes, viewed);
        if changed {
            self.note_tainted(writer);
        }
        if viewed {
            self.resync_at = self.keeping.resync.map(|period| self.shared.environment.now() + period);
        }
        self.shared.stand(self.reflector.standing());
        self.shared.tell_moved();
    }

    fn note_tainted(&mut self, writer: &Writer<K>) {
        let tainted = writer.store.working().tainted().count();
        if tainted > 0 || self.tainted > 0 {
            self.tainted = tainted;
            self.reflector.set_tainted(writer.store.working().tainted().cloned().collect());
        }
    }

    fn resync(&mut self) {
        let now = self.shared.environment.now();
        if let (Some(due), Some(period)) = (self.resync_at, self.keeping.resync)
            && now >= due
        {
            self.resync_at = Some(now + period);
            self.shared.writer().resync();
        }
    }
}

/// Which object a record is about that cannot be read, where enough of it could be.
fn tainted(error: &RecordError) -> Option<(RecordKind, Identity)> {
    let PartialIdentity { key, uid, version } = error.identity.clone();
    let kind = error.kind.unwrap_or(RecordKind::Added);
    Some((kind, Identity { key: key?, uid: uid?, version: version? }))
}

/// Decodes an object into the form in which it is kept; what cannot be taints its entry (R8).
fn keep<K: Kept>(
    decoder: &mut Decoder,
    keeping: &Keeping<K>,
    object: &RawObject,
    informer: &str,
) -> Result<Arc<K>, Tainted> {
    let Identity { key, version, .. } = &object.identity;
    // The user's own code: what it breaks stays with this object.
    let kept = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let kept = K::decode(object, decoder)?;
        Ok(match &keeping.transform {
            Some(transform) => transform(kept),
            None => kept,
        })
    }));
    match kept {
        Ok(Ok(kept)) => Ok(Arc::new(kept)),
        Ok(Err::<_, DecodeError>(error)) => {
            tracing::warn!(%informer, %key, %version, %error, "an object cannot be decoded; it answers as unknown");
            Err(Tainted)
        }
        Err(_) => {
            tracing::error!(%informer, %key, %version, "decoding or transforming an object panicked; it answers as unknown");
            Err(Tainted)
        }
    }
}
