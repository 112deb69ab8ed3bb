//! Servers with malformed responses. Any bytes cost bounded memory, the cause is reported, other informers are
//! unaffected, and the informer recovers with the server.

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
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Maximum object size of these informers in bytes.
const OBJECT_LIMIT_BYTES: usize = 256 * 1024;

/// Maximum memory of an attack in bytes. Includes the HTTP/1.1 buffer (1 MiB) during and after its growth, and records
/// up to the limit.
const MAX_ATTACK_MEMORY: usize = 6 << 20;

/// Maximum time until an attack is reported; the timeouts of heads and lists are 30 s.
const REPORT_TIMEOUT: Duration = Duration::from_secs(90);

/// Serializes the tests, because they measure the memory of the whole process.
static MEMORY_TEST_LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[derive(Clone, Default)]
struct DiagnosticLog(Arc<Mutex<Vec<String>>>);

impl DiagnosticLog {
    /// Collects an informer's diagnostics from now on.
    fn of<K: Cacheable>(informer: &Informer<K>) -> Self {
        let diagnostics = Self::default();
        let writer = diagnostics.clone();
        informer.on_diagnostic(move |note| writer.0.lock().push(note.to_string()));
        diagnostics
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
async fn assert_survives(what: &str, attack: Attack, cause: &str) {
    assert_survives_with(what, attack, cause, false).await;
}

/// Runs the assertion for an informer that requests protobuf.
async fn assert_survives_in_protobuf(what: &str, attack: Attack, cause: &str) {
    assert_survives_with(what, attack, cause, true).await;
}

async fn assert_survives_with(what: &str, attack: Attack, cause: &str, protobuf: bool) {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    let connection = server.connection(Settings::default());
    let factory = InformerFactory::new(&connection);
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let in_watch = attack.is_watch;
    server.attack(Some(attack));
    let other = factory
        .builder::<Secret>(Scope::namespace("default"))
        .streamed_lists(false)
        .start()
        .expect("the informer starts");
    let builder = factory.builder::<ConfigMap>(Scope::namespace("default")).protobuf(protobuf);
    let victim = builder.streamed_lists(false).object_limit(OBJECT_LIMIT_BYTES).start().expect("the informer starts");
    let diagnostics = DiagnosticLog::of(&victim);

    let is_reported = tokio::time::timeout(REPORT_TIMEOUT, diagnostics.wait_for(cause)).await;
    assert!(is_reported.is_ok(), "{what}: {cause:?} is not reported:\n{}\n{}", diagnostics.text(), victim.freshness());
    let memory_bytes = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(memory_bytes < MAX_ATTACK_MEMORY, "{what}: the attack cost {memory_bytes} bytes");
    assert!(victim.has_synced() == in_watch, "{what}: {}", victim.freshness());
    assert!(other.has_synced() && other.freshness().is_fresh(), "{what}: the other informer is {}", other.freshness());
    let longest = diagnostics.0.lock().iter().map(String::len).max();
    assert!(
        longest < Some(4096) && !diagnostics.text().contains('\u{1b}'),
        "{what}: diagnostics must be short and without control characters"
    );

    server.attack(None);
    assert_recovers(what, &victim, &diagnostics).await;
    println!("{what}: {} KiB", memory_bytes / 1024);
}

async fn assert_recovers(what: &str, victim: &Informer<ConfigMap>, diagnostics: &DiagnosticLog) {
    let recovery = async {
        while !(victim.has_synced() && victim.freshness().is_fresh()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let recovery = tokio::time::timeout(Duration::from_secs(400), recovery).await;
    assert!(recovery.is_ok(), "{what}: the informer did not recover: {}\n{}", victim.freshness(), diagnostics.text());
    assert_eq!(victim.snapshot().len(), 2, "{what}");
}
