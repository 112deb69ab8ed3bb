//! Hostile servers. Any bytes cost bounded memory, the cause is reported, other informers are unaffected, and the
//! informer recovers with the server.

#![allow(missing_docs)]

mod bodies;
mod differences;
mod heads;
mod lists;
mod messages;
mod objects;
mod server;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use peak_alloc::PeakAlloc;
use server::{Attack, Server};
use steadfast::transport::Settings;
use steadfast::{Cacheable, Informer, InformerFactory, Scope};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Maximum object size of these informers in bytes.
const LIMIT: usize = 256 * 1024;

/// Maximum memory of an attack in bytes. Includes the HTTP/1.1 buffer (1 MiB) during and after its growth, and records
/// up to the limit.
const MAX_ATTACK_MEMORY: usize = 6 << 20;

/// Maximum time until an attack is reported; the timeouts of heads and lists are 30 s.
const REPORT_TIMEOUT: Duration = Duration::from_secs(90);

/// Serializes the tests, because they measure the memory of the whole process.
static MEMORY_TEST_LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Collects an informer's diagnostics from now on.
    fn of<K: Cacheable>(informer: &Informer<K>) -> Self {
        let notes = Self::default();
        let own = notes.clone();
        informer.on_diagnostic(move |note| own.0.lock().push(note.to_string()));
        notes
    }

    /// Waits for a diagnostic that contains `text`.
    async fn wait_for(&self, text: &str) {
        while !self.text().contains(text) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn text(&self) -> String {
        self.0.lock().join("\n")
    }
}

/// Asserts that `attack` is reported with `cause`, costs bounded memory, and does not affect another informer.
async fn survives(what: &str, attack: Attack, cause: &str) {
    survives_with(what, attack, cause, false).await;
}

/// Runs the assertion for an informer that requests protobuf.
async fn survives_in_protobuf(what: &str, attack: Attack, cause: &str) {
    survives_with(what, attack, cause, true).await;
}

async fn survives_with(what: &str, attack: Attack, cause: &str, protobuf: bool) {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    let connection = server.connection(Settings::default());
    let factory = InformerFactory::new(&connection);
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let in_watch = attack.watch;
    server.attack(Some(attack));
    let other = factory
        .builder::<Secret>(Scope::namespace("default"))
        .streamed_lists(false)
        .start()
        .expect("the informer starts");
    let builder = factory.builder::<ConfigMap>(Scope::namespace("default")).protobuf(protobuf);
    let victim = builder.streamed_lists(false).object_limit(LIMIT).start().expect("the informer starts");
    let notes = Notes::of(&victim);

    let named = tokio::time::timeout(REPORT_TIMEOUT, notes.wait_for(cause)).await;
    assert!(named.is_ok(), "{what}: {cause:?} is not reported:\n{}\n{}", notes.text(), victim.freshness());
    let cost = MEMORY.peak_usage().saturating_sub(before);
    assert!(cost < MAX_ATTACK_MEMORY, "{what}: the attack cost {cost} bytes");
    assert!(victim.has_synced() == in_watch, "{what}: {}", victim.freshness());
    assert!(other.has_synced() && other.freshness().is_fresh(), "{what}: the other informer is {}", other.freshness());
    let longest = notes.0.lock().iter().map(String::len).max();
    assert!(
        longest < Some(4096) && !notes.text().contains('\u{1b}'),
        "{what}: diagnostics must be short and without control characters"
    );

    server.attack(None);
    recovers(what, &victim, &notes).await;
    println!("{what}: {} KiB", cost / 1024);
}

async fn recovers(what: &str, victim: &Informer<ConfigMap>, notes: &Notes) {
    let well = async {
        while !(victim.has_synced() && victim.freshness().is_fresh()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let well = tokio::time::timeout(Duration::from_secs(400), well).await;
    assert!(well.is_ok(), "{what}: the informer did not recover: {}\n{}", victim.freshness(), notes.text());
    assert_eq!(victim.snapshot().len(), 2, "{what}");
}
