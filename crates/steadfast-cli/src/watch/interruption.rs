//! Interruptions of a running watch, in virtual time: the bound of the report, and the changes that it counts.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use serde_json::{Value, json};
use steadfast::Scope;
use steadfast::transport::Settings;
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule, Verb};
use steadfast_testing::{InMemory, TestError, config_map};
use tokio::time::Instant;

use super::printer::CapturedLines;
use super::*;

/// Duration of the interruption.
const INTERRUPTION: Duration = Duration::from_secs(120);

/// Maximum duration until a vanished peer is detected (R1 of the contract).
const DETECTION_BOUND: Duration = Duration::from_secs(15);

/// Maximum duration from the end of a black hole until the cache is fresh: the last connection attempt times out, and
/// the backoff ends.
const RECOVERY_BOUND: Duration = Duration::from_secs(20);

/// Time after which all events of a reachable server are printed.
const DELIVERY_TIME: Duration = Duration::from_secs(1);

/// Reports for people, each with its time.
type Reports = Arc<Mutex<Vec<(Instant, String)>>>;

/// A watch of all config maps of a server in memory.
struct Fixture {
    server: ApiServer,
    lines: CapturedLines,
    reports: Reports,
    board: StatusBoard,
    _session: WatchSession,
}

impl Fixture {
    /// Starts the watch over HTTP/2, or over HTTP/1.1.
    async fn start(format: Format, over_http2: bool) -> Result<Self, TestError> {
        let server = ApiServer::builder().in_memory().start().await?;
        for number in 0..20 {
            server.create(&config_map(&format!("kept-{number}"), "1"))?;
        }
        let settings = Settings { prior_knowledge: over_http2, ..Settings::default() };
        let connection = InMemory { seed: 7, settings, ..InMemory::default() }.connection(&server).await?;
        let (printer, lines) = Printer::captured();
        let reports = Reports::default();
        let recorded_reports = reports.clone();
        let report = move |line| recorded_reports.lock().push((Instant::now(), line));
        let clock = Clock::choose(true);
        let board = StatusBoard::new(clock.clone());
        let output = WatchOutput {
            style: Style { format, content: Content::default() },
            clock,
            printer,
            report: Arc::new(report),
            tallies: Tallies::default(),
            board: board.clone(),
            goals: Vec::new(),
        };
        let mut session = WatchSession::new(WatchedCluster { context: None, connection }, output);
        let resource = ApiResource::erase::<ConfigMap>(&());
        session
            .follow(Subject::new("configmaps".to_owned(), resource, Scope::all()))
            .map_err(|_| "the watch is not started")?;
        sleep(DELIVERY_TIME).await;
        Ok(Self { server, lines, reports, board, _session: session })
    }

    fn status(&self) -> String {
        self.board.render(false, 200)
    }

    fn patch(&self, name: &str, patch: Value) -> Result<(), TestError> {
        self.server.merge_patch("configmaps", "default", name, patch)?;
        Ok(())
    }

    /// Adds three objects, changes twelve and deletes one.
    fn change_objects(&self) -> Result<(), TestError> {
        for number in 0..3 {
            self.server.create(&config_map(&format!("added-{number}"), "1"))?;
        }
        for number in 0..12 {
            self.patch(&format!("kept-{number}"), json!({"data": {"value": "2"}}))?;
        }
        self.server.delete_named("configmaps", "default", "kept-19")?;
        Ok(())
    }

    /// Interrupts all connections for two minutes, changes objects in the middle, and returns the times of the start
    /// and of the end. With `is_relist`, the server then no longer has the versions since the start.
    async fn interrupt(&self, is_relist: bool) -> Result<(Instant, Instant), TestError> {
        let start = Instant::now();
        self.server.faults().black_hole(true);
        sleep(INTERRUPTION / 2).await;
        self.change_objects()?;
        sleep(INTERRUPTION / 2).await;
        if is_relist {
            self.server.compact();
            self.server.faults().expire_events();
        }
        self.server.faults().black_hole(false);
        let end = Instant::now();
        sleep(RECOVERY_BOUND).await;
        Ok((start, end))
    }
}

fn text_format() -> Format {
    let clock = Clock::choose(true);
    Format::Text { color: false, width: Width::Unlimited, clock, extras: Extras::default() }
}

/// Returns the lines without their times.
fn without_times(lines: &[String]) -> Vec<String> {
    let without_time = |line: &String| line.split_once(' ').map_or("", |(_, rest)| rest).to_owned();
    lines.iter().map(without_time).collect()
}

#[tokio::test(start_paused = true)]
async fn black_hole_is_reported_and_counted() -> Result<(), TestError> {
    // HTTP/1.1 has no pings, and no TCP keepalive detects the peer in memory. A probe on a new connection, which hangs
    // while it is opened, must detect it (R2a). The old watch then delivers its events late.
    for (over_http2, is_relist) in [(true, false), (true, true), (false, false)] {
        let fixture = Fixture::start(text_format(), over_http2).await?;
        assert_eq!(fixture.lines.take().len(), 21, "the existing objects and `synced`");
        assert!(fixture.reports.lock().is_empty(), "{:?}", fixture.reports.lock());
        let (start, end) = fixture.interrupt(is_relist).await?;
        let reports = fixture.reports.lock().clone();
        let (reported_at, first) = reports.first().expect("a report");
        assert!(*reported_at - start <= DETECTION_BOUND, "{:?} {first}", *reported_at - start);
        let stale = reports.iter().filter(|(_, report)| report.contains(" ! configmaps: stale for ")).count();
        assert!(stale > 0, "{reports:#?}");
        let (fresh_at, last) = reports.last().expect("a report");
        assert!(*fresh_at >= end && *fresh_at - end <= RECOVERY_BOUND, "{:?} {last}", *fresh_at - end);
        assert!(last.contains(" ! configmaps: fresh again after "), "{last}");
        assert!(last.ends_with(" s; while disconnected: 3 added, 1 deleted, 12 changed"), "{last}");

        let mut lines = without_times(&fixture.lines.take());
        lines.sort();
        let certainty = if is_relist { "inferred" } else { "observed" };
        let mut expected: Vec<String> =
            (0..3).map(|number| format!("+ configmaps default/added-{number} 1 key")).collect();
        let changed = (0..12).map(|number| format!("~ configmaps default/kept-{number} data.value 1→2"));
        expected.extend(changed);
        expected.push(format!("- configmaps default/kept-19 1 key ({certainty}: deleted)"));
        expected.sort();
        assert_eq!(lines, expected, "HTTP/2: {over_http2}, relist: {is_relist}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn json_lines_precede_fresh_line() -> Result<(), TestError> {
    let fixture = Fixture::start(Format::Json { full: false }, true).await?;
    fixture.lines.take();
    fixture.interrupt(true).await?;
    fixture.patch("kept-0", json!({"data": {"value": "3"}}))?;
    sleep(DELIVERY_TIME).await;
    let lines = fixture.lines.take();
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?;
    let position = |state: &str| lines.iter().position(|line| line["type"] == "Freshness" && line["state"] == state);
    let (stale, fresh) = (position("Stale").expect("a stale cache"), position("Fresh").expect("a fresh cache"));
    let counted = |kind: &str| lines[stale..fresh].iter().filter(|line| line["type"] == kind).count();
    assert_eq!((counted("Added"), counted("Deleted"), counted("Updated")), (3, 1, 12), "{lines:#?}");
    assert_eq!(lines[fresh]["whileDisconnected"], json!({"added": 3, "deleted": 1, "changed": 12}));
    let later: Vec<&Value> = lines[fresh + 1..].iter().collect();
    assert_eq!(later.len(), 1, "{later:#?}");
    assert_eq!(later[0]["changes"], json!([{"path": "data.value", "old": "2", "new": "3"}]));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn only_gaps_count_as_repaired() -> Result<(), TestError> {
    let fixture = Fixture::start(text_format(), true).await?;
    assert!(fixture.status().ends_with("│ 0 reconnects │ 0 gaps repaired"), "{}", fixture.status());
    fixture.interrupt(true).await?;
    assert!(fixture.status().ends_with(" │ 1 gap repaired"), "{}", fixture.status());

    // Watches that always fail, with a code other than 403: lists replace them, and do not count as repaired gaps.
    for code in [500, 404] {
        let fixture = Fixture::start(text_format(), true).await?;
        fixture.server.faults().respond(RequestRule::any().verb(Verb::Watch), InjectedResponse::code(code));
        fixture.server.faults().end_watches();
        fixture.server.faults().reset();
        sleep(Duration::from_secs(600)).await;
        let lists = fixture.server.requests().iter().filter(|request| request.verb == Verb::List).count();
        assert!(lists > 3, "{code}: only {lists} lists, so the informer does not poll");
        assert!(fixture.status().contains(" 0 gaps repaired"), "{code}: {}", fixture.status());
    }
    Ok(())
}
