//! Decoding of objects by the driver and, under load, by helper threads.
//!
//! The driver submits objects as they arrive and continues to read. A helper takes the oldest objects. The driver never
//! depends on a helper: it decodes the remaining objects itself, and waits only for objects that another thread is
//! decoding. Small inputs therefore need no hand-over, and large ones use all threads. Without helpers nothing is
//! submitted.
//!
//! Each object carries its purpose. Results are processed in submission order, so decode errors are reported in that
//! order too.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use steadfast_core::WithSize;
use steadfast_core::decode::{Cacheable, RawObject};
use steadfast_core::record::Identity;

use super::object_decoder::ObjectDecoder;
use crate::environment::{HelperThreads, SharedEnvironment};
use crate::runner::drop_contained;

/// Maximum number of bytes in decoding. Input stays in memory until it is decoded, so reading pauses at this limit
/// (R9).
const MAX_DECODING_BYTES: usize = 1024 * 1024;

/// Minimum number of bytes that a helper takes, so that the hand-over does not dominate for small objects.
const CHUNK_BYTES: usize = 8 * 1024;

/// Decoded object, or the identity of a failed object and its error.
pub(super) type Decoded<K> = Result<WithSize<K>, Box<(Identity, String)>>;

/// Purpose of an object, and the number of diagnostics that precede its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodePurpose {
    /// A place in the list in progress.
    Listed { place: usize, diagnostic_index: usize },
    /// A pending edit.
    Edited { edit: usize, diagnostic_index: usize },
}

/// Objects in decoding.
pub(super) struct Decoding<K> {
    object_decoder: ObjectDecoder<K>,
    environment: SharedEnvironment,
    helpers: HelperThreads,
    /// All objects in submission order; `first_number` is the number of the first.
    in_flight: VecDeque<PendingObject<K>>,
    first_number: u64,
    /// Number of objects not decoded yet.
    undecoded_count: usize,
    /// Number of objects for edits.
    edit_count: usize,
    /// Memory use of the objects in bytes.
    held_bytes: usize,
    /// The most recent objects, not yet visible to helpers.
    unshared: Vec<QueuedObject>,
    unshared_bytes: usize,
    queue: Arc<DecodeQueue<K>>,
}

struct PendingObject<K> {
    /// `None` after the object became obsolete.
    purpose: Option<DecodePurpose>,
    held_bytes: usize,
    decoded: Option<Decoded<K>>,
}

struct QueuedObject {
    number: u64,
    object: RawObject,
}

/// State shared by the driver and the helpers.
struct DecodeQueue<K> {
    state: Mutex<State<K>>,
    /// Wakes the driver, which waits for objects that helpers are decoding.
    result_ready: Condvar,
}

struct State<K> {
    waiting: VecDeque<QueuedObject>,
    /// Number of queued bytes.
    bytes: usize,
    results: Vec<(u64, Decoded<K>)>,
    /// Number of helpers that are decoding.
    busy_helpers: usize,
    /// Number of helpers.
    helper_count: usize,
}

impl<K: Cacheable> Decoding<K> {
    /// Creates an empty queue. `object_decoder` decodes the objects.
    pub(super) fn new(object_decoder: ObjectDecoder<K>, environment: SharedEnvironment) -> Self {
        let helpers = if K::is_costly() { environment.helper_threads() } else { HelperThreads::default() };
        let state = State { waiting: VecDeque::new(), bytes: 0, results: Vec::new(), busy_helpers: 0, helper_count: 0 };
        Self {
            object_decoder,
            environment,
            helpers,
            in_flight: VecDeque::new(),
            first_number: 0,
            undecoded_count: 0,
            edit_count: 0,
            held_bytes: 0,
            unshared: Vec::new(),
            unshared_bytes: 0,
            queue: Arc::new(DecodeQueue { state: Mutex::new(state), result_ready: Condvar::new() }),
        }
    }

    /// Returns true if objects should be [submitted](Self::submit) because helpers exist. Otherwise they are decoded
    /// immediately.
    pub(super) fn is_shared(&self) -> bool {
        self.helpers.threads > 0
    }

    /// Decodes an object immediately.
    pub(super) fn decode(&mut self, object: &RawObject) -> Result<WithSize<K>, String> {
        self.object_decoder.decode(object)
    }

    /// Submits an object for decoding. The object keeps `further_bytes` in memory in
    /// addition to its own.
    pub(super) fn submit(&mut self, purpose: DecodePurpose, object: RawObject, further_bytes: usize) {
        let number = self.first_number + self.in_flight.len() as u64;
        let held_bytes = object.bytes.len() + further_bytes;
        self.held_bytes += held_bytes;
        self.undecoded_count += 1;
        self.edit_count += usize::from(matches!(purpose, DecodePurpose::Edited { .. }));
        self.unshared_bytes += object.bytes.len();
        self.in_flight.push_back(PendingObject { purpose: Some(purpose), held_bytes, decoded: None });
        self.unshared.push(QueuedObject { number, object });
        if self.unshared_bytes >= self.helpers.min_bytes {
            self.share();
        }
        // The limit is enforced here, on the reading side: without further reads, HTTP/2 flow control pauses the server.
        while self.held_bytes > MAX_DECODING_BYTES {
            self.decode_some();
        }
    }

    /// Returns true if an edit waits for its object.
    pub(super) fn has_edits(&self) -> bool {
        self.edit_count > 0
    }

    /// Decodes all remaining objects. The caller then processes the [results](Self::settled).
    pub(super) fn finish(&mut self) {
        self.decode_own();
        while self.undecoded_count > 0 {
            self.decode_some();
        }
    }

    /// Returns the next result in submission order, if it is decoded. Obsolete objects are skipped.
    pub(super) fn settled(&mut self) -> Option<(DecodePurpose, Decoded<K>)> {
        loop {
            let PendingObject { decoded, .. } = self.in_flight.front_mut()?;
            let Some(decoded) = decoded.take() else {
                // Checks for results of helpers once, not for each missing object.
                if !self.collect() {
                    return None;
                }
                continue;
            };
            let PendingObject { purpose, .. } = self.in_flight.pop_front()?;
            self.first_number += 1;
            if let Some(purpose) = purpose {
                self.edit_count -= usize::from(matches!(purpose, DecodePurpose::Edited { .. }));
                return Some((purpose, decoded));
            }
        }
    }

    /// Discards the objects of an obsolete list.
    pub(super) fn forget_listed(&mut self) {
        let is_current =
            |in_flight: &PendingObject<K>| !matches!(in_flight.purpose, Some(DecodePurpose::Listed { .. }));
        if self.in_flight.iter().all(is_current) {
            return;
        }
        let obsolete = {
            // Edits of the watch stay queued: they are valid without the list.
            let (first_number, in_flight) = (self.first_number, &self.in_flight);
            let is_wanted = |waiting: &QueuedObject| is_current(&in_flight[(waiting.number - first_number) as usize]);
            let mut state = self.queue.lock();
            let (kept, mut obsolete): (VecDeque<_>, VecDeque<_>) = state.waiting.drain(..).partition(is_wanted);
            state.waiting = kept;
            state.bytes = state.waiting.iter().map(|waiting| waiting.object.bytes.len()).sum();
            let (kept, unshared): (Vec<_>, Vec<_>) = self.unshared.drain(..).partition(is_wanted);
            self.unshared_bytes = kept.iter().map(|waiting| waiting.object.bytes.len()).sum();
            self.unshared = kept;
            obsolete.extend(unshared);
            obsolete
        };
        for in_flight in self.in_flight.iter_mut().filter(|in_flight| !is_current(in_flight)) {
            in_flight.purpose = None;
        }
        // Every number must get a result, because `settled` stops at the first missing result. Without a purpose,
        // `settled` discards the result.
        for QueuedObject { number, object } in obsolete {
            self.store_result(number, Err(Box::new((object.identity, String::new()))));
        }
    }

    /// Makes the recent objects visible to helpers, and requests another helper if that is worthwhile.
    fn share(&mut self) {
        let needs_helper = {
            let mut state = self.queue.lock();
            state.bytes += std::mem::take(&mut self.unshared_bytes);
            state.waiting.extend(self.unshared.drain(..));
            // One helper at a time, and only if the queue exceeds the work of the current helpers.
            let needs_helper =
                state.helper_count < self.helpers.threads && state.bytes > state.helper_count * self.helpers.min_bytes;
            state.helper_count += usize::from(needs_helper);
            needs_helper
        };
        if needs_helper {
            let mut helper = Helper { object_decoder: self.object_decoder.for_helper(), queue: self.queue.clone() };
            self.environment.offer_work(Box::new(move || helper.decode_some()));
        }
    }

    /// Decodes some queued objects, or waits until another thread has finished some.
    fn decode_some(&mut self) {
        if self.collect() {
            return;
        }
        let mut state = self.queue.lock();
        let taken = state.take();
        if taken.is_empty() {
            // Helper threads that are only scheduled do not count as busy. The driver waits for no thread that may never run.
            if state.busy_helpers > 0 {
                let unfinished = |state: &mut State<K>| state.results.is_empty() && state.busy_helpers > 0;
                self.queue.result_ready.wait_while(&mut state, unfinished);
            } else {
                drop(state);
                self.decode_own();
            }
            return;
        }
        drop(state);
        self.decode_all(taken);
    }

    fn decode_own(&mut self) {
        self.unshared_bytes = 0;
        let mut unshared = std::mem::take(&mut self.unshared);
        self.decode_all(unshared.drain(..));
        self.unshared = unshared;
    }

    fn decode_all(&mut self, waiting: impl IntoIterator<Item = QueuedObject>) {
        for QueuedObject { number, object } in waiting {
            let decoded = decode(&mut self.object_decoder, object);
            self.store_result(number, decoded);
        }
    }

    /// Collects the results of helpers. Returns true if there were any.
    fn collect(&mut self) -> bool {
        let results = std::mem::take(&mut self.queue.lock().results);
        let any = !results.is_empty();
        for (number, decoded) in results {
            self.store_result(number, decoded);
        }
        any
    }

    fn store_result(&mut self, number: u64, decoded: Decoded<K>) {
        if let Some(in_flight) = self.in_flight.get_mut((number - self.first_number) as usize) {
            // The result may stay in memory until earlier objects are done, but its input is freed.
            self.held_bytes -= std::mem::take(&mut in_flight.held_bytes);
            self.undecoded_count -= usize::from(in_flight.decoded.is_none());
            in_flight.decoded = Some(decoded);
        }
    }
}

fn decode<K: Cacheable>(object_decoder: &mut ObjectDecoder<K>, object: RawObject) -> Decoded<K> {
    object_decoder.decode(&object).map_err(|why| Box::new((object.identity, why)))
}

impl<K> Drop for Decoding<K> {
    fn drop(&mut self) {
        // No thread should start to decode an obsolete object.
        let mut state = self.queue.lock();
        let obsolete = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.results));
        drop(state);
        drop_contained(obsolete);
    }
}

impl<K> DecodeQueue<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // No user code runs under this lock.
        self.state.lock()
    }
}

impl<K> State<K> {
    /// Takes the oldest objects for decoding.
    fn take(&mut self) -> Vec<QueuedObject> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK_BYTES
            && let Some(waiting) = self.waiting.pop_front()
        {
            bytes += waiting.object.bytes.len();
            taken.push(waiting);
        }
        self.bytes -= bytes;
        taken
    }
}

/// Helper, which decodes queued objects on another thread.
struct Helper<K> {
    object_decoder: ObjectDecoder<K>,
    queue: Arc<DecodeQueue<K>>,
}

impl<K: Cacheable> Helper<K> {
    /// Decodes some queued objects. Returns true if more may be queued.
    fn decode_some(&mut self) -> bool {
        let taken = {
            let mut state = self.queue.lock();
            let taken = state.take();
            state.busy_helpers += usize::from(!taken.is_empty());
            taken
        };
        if taken.is_empty() {
            return false;
        }
        let decoded: Vec<_> = taken
            .into_iter()
            .map(|QueuedObject { number, object }| (number, decode(&mut self.object_decoder, object)))
            .collect();
        // `busy_helpers` decreases under the lock that delivers the results, so that the driver sees either a busy
        // helper or its results.
        let mut state = self.queue.lock();
        state.busy_helpers -= 1;
        state.results.extend(decoded);
        drop(state);
        self.queue.result_ready.notify_one();
        true
    }
}

impl<K> Drop for Helper<K> {
    fn drop(&mut self) {
        self.queue.lock().helper_count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeMap;
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread::{self, JoinHandle};

    use futures::future::BoxFuture;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde::Deserialize;
    use steadfast_core::decode::{DecodeError, DecodeOptions, Decoder, Encoding};
    use steadfast_core::{Instant, ObjectKey};

    use super::*;
    use crate::environment::local::Local;
    use crate::environment::{Environment, HelperWork, Socket, Task};

    /// Environment whose helpers are real threads.
    struct Racing {
        local: Local,
        helpers: HelperThreads,
        threads: Mutex<Vec<JoinHandle<()>>>,
    }

    impl Racing {
        fn new(helpers: HelperThreads) -> Arc<Self> {
            let local = Local::new(1, |_, _| Box::pin(async { Err(io::Error::other("no peer exists")) }));
            Arc::new(Self { local, helpers, threads: Mutex::default() })
        }

        /// Waits until no helper is running.
        fn join(&self) {
            for thread in std::mem::take(&mut *self.threads.lock()) {
                thread.join().expect("a helper's panic stays in the helper");
            }
        }
    }

    impl Environment for Racing {
        fn now(&self) -> Instant {
            self.local.now()
        }

        fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
            self.local.sleep_until(at)
        }

        fn spawn(&self, task: BoxFuture<'static, ()>) -> Task {
            self.local.spawn(task)
        }

        fn spawn_user_task(&self, task: BoxFuture<'static, ()>) -> Task {
            self.local.spawn_user_task(task)
        }

        fn enter(&self, action: &mut dyn FnMut()) {
            self.local.enter(action);
        }

        fn run_blocking(&self, job: Box<dyn FnOnce() + Send>) {
            self.local.run_blocking(job);
        }

        fn helper_threads(&self) -> HelperThreads {
            self.helpers
        }

        fn offer_work(&self, mut work: HelperWork) {
            let thread = thread::spawn(move || while work() {});
            self.threads.lock().push(thread);
        }

        fn random(&self) -> u64 {
            self.local.random()
        }

        fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            self.local.resolve(host, port)
        }

        fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> {
            self.local.dial(address)
        }
    }

    /// Object whose text selects a slow, failing or panicking decode.
    #[derive(Deserialize)]
    struct Slow {
        number: u64,
        yields: u32,
        panics: bool,
    }

    static DECODED: AtomicUsize = AtomicUsize::new(0);

    impl Cacheable for Slow {
        type Resource = ConfigMap;

        fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError> {
            DECODED.fetch_add(1, Ordering::Relaxed);
            let slow: Self = decoder.decode(raw)?;
            (0..slow.yields).for_each(|_| thread::yield_now());
            assert!(!slow.panics, "a decoder that panics");
            Ok(slow)
        }

        fn read_whole<T>(&self, _: impl FnOnce(&ConfigMap) -> T) -> Result<T, DecodeError> {
            unreachable!("the test does not read the value")
        }

        fn metadata_only() -> bool {
            false
        }

        fn is_costly() -> bool {
            true
        }

        fn labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>> {
            None
        }
    }

    fn object_decoder() -> ObjectDecoder<Slow> {
        ObjectDecoder::new(Decoder::new(DecodeOptions::default()), None)
    }

    fn object(number: u64, text: &str) -> RawObject {
        let key = ObjectKey::namespaced("n", format!("o-{number}").as_str());
        RawObject {
            identity: Identity { key, uid: "u".into(), version: "1".into() },
            bytes: text.as_bytes().to_vec().into(),
            managed_fields: None,
            encoding: Encoding::Json,
            message: None,
        }
    }

    /// Returns object `number` in the history of `seed`. Sizes vary, and one in twelve fails or panics.
    fn random_object(seed: u64, number: u64) -> RawObject {
        let random = |salt: u64, below: u64| {
            let mixed = (seed ^ number.rotate_left(20) ^ salt.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % below
        };
        let padding = " ".repeat(if random(1, 4) == 0 { 9_000 } else { 300 });
        let (yields, panics) = (if random(2, 16) == 0 { 3 } else { 0 }, random(3, 16) == 0);
        let name = if random(4, 16) == 0 { "none" } else { "number" };
        object(number, &format!(r#"{{{padding}"{name}": {number}, "yields": {yields}, "panics": {panics}}}"#))
    }

    fn described(decoded: &Decoded<Slow>) -> Result<u64, String> {
        decoded.as_ref().map(|slow| slow.object.number).map_err(|error| format!("{}: {}", error.0.key, error.1))
    }

    /// Submits random objects for edits and lists, discards lists, and finishes at random. The results must equal those
    /// of a single thread, in the same order.
    fn run_random_decoding(seed: u64, mut decoding: Decoding<Slow>) {
        let mut alone = object_decoder();
        let mut expected = VecDeque::new();
        let check = |decoding: &mut Decoding<Slow>, expected: &mut VecDeque<(DecodePurpose, Result<u64, String>)>| {
            while let Some((purpose, decoded)) = decoding.settled() {
                assert_eq!(expected.pop_front(), Some((purpose, described(&decoded))), "seed {seed}");
            }
        };
        for number in 0..200 {
            let object = random_object(seed, number);
            let place = number as usize;
            let purpose = if number % 3 == 0 {
                DecodePurpose::Edited { edit: place, diagnostic_index: 0 }
            } else {
                DecodePurpose::Listed { place, diagnostic_index: 0 }
            };
            expected.push_back((purpose, described(&decode(&mut alone, object.clone()))));
            decoding.submit(purpose, object, place % 7 * 20_000);
            assert!(
                decoding.held_bytes <= MAX_DECODING_BYTES,
                "seed {seed}: {} bytes are in decoding",
                decoding.held_bytes
            );
            match (seed + number) % 61 {
                0..30 => check(&mut decoding, &mut expected),
                30..32 => {
                    decoding.finish();
                    check(&mut decoding, &mut expected);
                    assert!(expected.is_empty() && !decoding.has_edits(), "seed {seed}: all is done");
                }
                32 => {
                    decoding.forget_listed();
                    expected.retain(|(purpose, _)| matches!(purpose, DecodePurpose::Edited { .. }));
                }
                _ => {}
            }
        }
        decoding.finish();
        check(&mut decoding, &mut expected);
        assert!(expected.is_empty(), "seed {seed}");
        assert_eq!(
            (decoding.held_bytes, decoding.undecoded_count, decoding.edit_count, decoding.unshared_bytes),
            (0, 0, 0, 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn helpers_preserve_results_and_order() {
        for seed in 0..12 {
            let helpers =
                HelperThreads { threads: 1 + seed as usize % 4, min_bytes: [1, 5_000, 64 * 1024][seed as usize % 3] };
            let racing = Racing::new(helpers);
            run_random_decoding(seed, Decoding::new(object_decoder(), racing.clone()));
            racing.join();
            let local = Local::new(seed, |_, _| Box::pin(async { Err(io::Error::other("no peer exists")) }));
            run_random_decoding(seed, Decoding::new(object_decoder(), Arc::new(local.with_helpers(helpers))));
        }
    }

    /// Object that blocks in its decode until it is released.
    struct Gated;

    static GATE: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);
    static ENTERED: AtomicUsize = AtomicUsize::new(0);

    impl Cacheable for Gated {
        type Resource = ConfigMap;

        fn decode(_: &RawObject, _: &mut Decoder) -> Result<Self, DecodeError> {
            ENTERED.fetch_add(1, Ordering::SeqCst);
            if let Some(gate) = &*GATE.lock() {
                let _ = gate.recv();
            }
            Ok(Self)
        }

        fn read_whole<T>(&self, _: impl FnOnce(&ConfigMap) -> T) -> Result<T, DecodeError> {
            unreachable!("the test does not read the value")
        }

        fn metadata_only() -> bool {
            false
        }

        fn is_costly() -> bool {
            true
        }

        fn labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>> {
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn obsolete_objects_are_not_decoded() {
        let (open, gate) = mpsc::channel();
        *GATE.lock() = Some(gate);
        let racing = Racing::new(HelperThreads { threads: 1, min_bytes: 1 });
        let object_decoder = ObjectDecoder::<Gated>::new(Decoder::new(DecodeOptions::default()), None);
        let mut decoding = Decoding::new(object_decoder, racing.clone());
        for number in 0..20 {
            decoding.submit(
                DecodePurpose::Listed { place: 0, diagnostic_index: 0 },
                object(number, &" ".repeat(CHUNK_BYTES)),
                0,
            );
        }
        while ENTERED.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        drop(decoding);
        drop(open);
        racing.join();
        assert_eq!(ENTERED.load(Ordering::SeqCst), 1, "the helper finishes its current object and starts no other");
    }
}
