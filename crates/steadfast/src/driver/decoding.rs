//! Decoding of objects by the driver and, under load, by helper threads.
//!
//! The driver submits objects as they arrive and continues to read ([`SharedWork`]). It never depends on a helper: it
//! decodes the remaining objects itself, and waits only for objects that another thread is decoding. Without helpers
//! nothing is submitted.
//!
//! Each object carries its purpose. Results are processed in submission order, so decode errors are reported in that
//! order too.

use steadfast_core::WithSize;
use steadfast_core::decode::{Cacheable, RawObject};
use steadfast_core::record::Identity;
use steadfast_executor::{SharedWork, WorkLimits, Worker};

use super::object_decoder::ObjectDecoder;
use crate::environment::{HelperThreads, SharedEnvironment};

/// Maximum number of bytes in decoding. Input stays in memory until it is decoded, so reading pauses at this limit
/// (R9): without further reads, HTTP/2 flow control pauses the server.
const MAX_DECODING_BYTES: usize = 1024 * 1024;

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
    work: SharedWork<ObjectDecoder<K>, RawObject, Decoded<K>, DecodePurpose>,
    /// Number of objects for edits.
    edit_count: usize,
}

impl<K: Cacheable> Worker<RawObject, Decoded<K>> for ObjectDecoder<K> {
    fn another(&self) -> Self {
        self.for_helper()
    }

    fn process(&mut self, object: RawObject) -> Decoded<K> {
        self.decode(&object).map_err(|reason| Box::new((object.identity, reason)))
    }

    fn bytes(object: &RawObject) -> usize {
        object.bytes.len()
    }
}

impl<K: Cacheable> Decoding<K> {
    /// Creates an empty queue. `object_decoder` decodes the objects.
    pub(super) fn new(object_decoder: ObjectDecoder<K>, environment: SharedEnvironment) -> Self {
        let helpers = if K::is_costly() { environment.helper_threads() } else { HelperThreads::default() };
        let limits = WorkLimits { helpers, max_bytes: MAX_DECODING_BYTES };
        Self { work: SharedWork::new(object_decoder, limits, move |work| environment.offer_work(work)), edit_count: 0 }
    }

    /// Returns true if objects should be [submitted](Self::submit) because helpers exist. Otherwise they are decoded
    /// immediately.
    pub(super) fn is_shared(&self) -> bool {
        self.work.is_shared()
    }

    /// Decodes an object immediately.
    pub(super) fn decode(&mut self, object: &RawObject) -> Result<WithSize<K>, String> {
        self.work.worker().decode(object)
    }

    /// Submits an object for decoding. The object keeps `further_bytes` in memory in
    /// addition to its own.
    pub(super) fn submit(&mut self, purpose: DecodePurpose, object: RawObject, further_bytes: usize) {
        self.edit_count += usize::from(matches!(purpose, DecodePurpose::Edited { .. }));
        self.work.submit(purpose, object, further_bytes);
    }

    /// Returns true if an edit waits for its object.
    pub(super) fn has_edits(&self) -> bool {
        self.edit_count > 0
    }

    /// Decodes all remaining objects. The caller then processes the [results](Self::settled).
    pub(super) fn finish(&mut self) {
        self.work.finish();
    }

    /// Returns the next result in submission order, if it is decoded. Obsolete objects are skipped.
    pub(super) fn settled(&mut self) -> Option<(DecodePurpose, Decoded<K>)> {
        let (purpose, decoded) = self.work.next_result()?;
        self.edit_count -= usize::from(matches!(purpose, DecodePurpose::Edited { .. }));
        Some((purpose, decoded))
    }

    /// Discards the objects of an obsolete list. Edits of the watch stay queued: they are valid without the list.
    pub(super) fn forget_listed(&mut self) {
        self.work.retain(|purpose| matches!(purpose, DecodePurpose::Edited { .. }));
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::{BTreeMap, VecDeque};
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread::{self, JoinHandle};

    use futures::future::BoxFuture;
    use k8s_openapi::api::core::v1::ConfigMap;
    use parking_lot::Mutex;
    use serde::Deserialize;
    use steadfast_core::decode::{DecodeError, DecodeOptions, Decoder, Encoding};
    use steadfast_core::{Instant, ObjectKey};
    use steadfast_executor::CHUNK_BYTES;

    use super::*;
    use crate::environment::local::LocalEnvironment;
    use crate::environment::{Environment, HelperWork, Socket, Task};

    /// Environment whose helpers are real threads.
    struct Racing {
        local: LocalEnvironment,
        helpers: HelperThreads,
        threads: Mutex<Vec<JoinHandle<()>>>,
    }

    impl Racing {
        fn new(helpers: HelperThreads) -> Arc<Self> {
            let local = LocalEnvironment::new(1, |_, _| Box::pin(async { Err(io::Error::other("no peer exists")) }));
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
            expected.push_back((purpose, described(&alone.process(object.clone()))));
            decoding.submit(purpose, object, place % 7 * 20_000);
            assert!(
                decoding.work.held_bytes() <= MAX_DECODING_BYTES,
                "seed {seed}: {} bytes are in decoding",
                decoding.work.held_bytes()
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
        assert_eq!((decoding.work.held_bytes(), decoding.edit_count), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn helpers_preserve_results_and_order() {
        for seed in 0..12 {
            let helpers =
                HelperThreads { threads: 1 + seed as usize % 4, min_bytes: [1, 5_000, 64 * 1024][seed as usize % 3] };
            let racing = Racing::new(helpers);
            run_random_decoding(seed, Decoding::new(object_decoder(), racing.clone()));
            racing.join();
            let local = LocalEnvironment::new(seed, |_, _| Box::pin(async { Err(io::Error::other("no peer exists")) }));
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
