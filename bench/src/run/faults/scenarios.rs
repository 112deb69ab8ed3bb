//! The scenarios. The numbers are those of `docs/faults.md`.
//!
//! Omitted faults:
//!
//! - those that do not concern the connection between client and server (F18, F26 to F29, F33, F34);
//! - the size of a list, which is measured elsewhere (F25);
//! - faults that cannot be injected (F31).

use std::future::ready;
use std::pin::Pin;
use std::time::Duration;

use steadfast_apiserver::{Faults, InjectedResponse, RequestRule, Status, TooLargeVersionForm, Verb};
use steadfast_testing::proxy::Direction;
use tokio::time::sleep;

use super::setup::{ServerSetup, Setup, TOKEN};
use crate::BenchError;

/// Function that starts the client and injects the fault. It also ends a temporary fault.
type ScenarioRun = for<'a> fn(&'a mut Setup) -> Pin<Box<dyn Future<Output = Result<(), BenchError>> + Send + 'a>>;

/// One scenario.
pub(super) struct Scenario {
    pub(super) fault: &'static str,
    pub(super) title: &'static str,
    pub(super) server: ServerSetup,
    /// Timeout of the recovery.
    pub(super) recovery_timeout: Duration,
    /// True if the scenario mostly waits, for minutes.
    pub(super) is_long: bool,
    pub(super) run: ScenarioRun,
}

/// Timeout of the recovery in long scenarios. kube-runtime abandons a silent connection after 295 s.
const LONG_RECOVERY_TIMEOUT: Duration = Duration::from_secs(320);
/// Timeout of the recovery in all other scenarios.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);
/// Duration of a temporary fault.
const FAULT_DURATION: Duration = Duration::from_secs(10);

const fn scenario(fault: &'static str, title: &'static str, run: ScenarioRun) -> Scenario {
    Scenario { fault, title, server: ServerSetup::OneReplica, recovery_timeout: RECOVERY_TIMEOUT, is_long: false, run }
}

impl Scenario {
    const fn with_server(mut self, server: ServerSetup) -> Self {
        self.server = server;
        self
    }

    const fn long_running(mut self) -> Self {
        (self.recovery_timeout, self.is_long) = (LONG_RECOVERY_TIMEOUT, true);
        self
    }
}

/// All scenarios, in the order of the catalog.
pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("F1", "no server for 10 s at the start", |setup| Box::pin(absent(setup))),
    scenario("F2", "server is down for 2 s, and restarts with an empty watch cache", |setup| Box::pin(restarts(setup))),
    scenario("F3", "RST in mid-stream, five times in 5 s", |setup| Box::pin(resets(setup))),
    scenario("F4", "black hole on the open connection; new connections work", |setup| Box::pin(black_hole(setup)))
        .long_running(),
    scenario("F4", "all packets dropped for 60 s", |setup| Box::pin(all_dropped(setup))).long_running(),
    scenario("F5", "flows idle for 45 s are dropped silently", |setup| Box::pin(idle(setup))).long_running(),
    scenario("F6", "pings acknowledged, server frozen for 90 s", |setup| Box::pin(frozen(setup))).long_running(),
    scenario("F7", "one stream stalled on a healthy connection", |setup| Box::pin(stalled(setup))).long_running(),
    scenario("F8", "GOAWAY, once a second for 5 s", |setup| Box::pin(each_second(setup, Faults::goaway))),
    scenario("F9", "watches ended cleanly, once a second for 5 s", |setup| {
        Box::pin(each_second(setup, Faults::end_watches))
    }),
    scenario("F10", "connections accepted and closed for 10 s", |setup| Box::pin(closed_on_accept(setup))),
    scenario("F11", "changes during a 2 s network outage, history compacted", |setup| Box::pin(compacted(setup))),
    scenario("F11", "410 in the stream", |setup| Box::pin(gone_in_stream(setup))),
    scenario("F12", "10 objects recreated during a 2 s network outage, history compacted", |setup| {
        Box::pin(recreated(setup))
    }),
    scenario("F13", "10 objects deleted during a 2 s network outage, history compacted", |setup| {
        Box::pin(deleted(setup))
    }),
    scenario("F14", "continue tokens expire in the first list of 1,200", |setup| {
        Box::pin(ready(expired_continue_tokens(setup)))
    }),
    scenario("F15", "resource version too large, twice", |setup| Box::pin(too_large(setup))),
    scenario("F16", "moved to a replica that lags for 10 s", |setup| Box::pin(lagging(setup)))
        .with_server(ServerSetup::TwoReplicas),
    scenario("F16", "410, then a list on a replica that lags for 10 s", |setup| Box::pin(lagging_list(setup)))
        .with_server(ServerSetup::TwoReplicas),
    scenario("F17", "streamed lists never end", |setup| Box::pin(ready(endless(setup)))),
    scenario("F19", "a change, a deletion and a creation not sent", |setup| Box::pin(events_lost(setup))),
    scenario("F20", "three old events repeated after a resume", |setup| Box::pin(repeated(setup))),
    scenario("F21", "429 with Retry-After of 5 s, twice", |setup| Box::pin(too_many(setup))),
    scenario("F21", "503 for 10 s", |setup| Box::pin(unavailable(setup))),
    scenario("F22", "401 for 10 s", |setup| Box::pin(unauthorized(setup))).with_server(ServerSetup::WithToken),
    scenario("F23", "403 for 10 s", |setup| Box::pin(forbidden(setup))),
    scenario("F24", "one object cannot be decoded for 10 s", |setup| Box::pin(undecodable(setup))),
    scenario("F30", "restored from a backup 40 writes old", |setup| Box::pin(restored(setup))).long_running(),
    scenario("F32", "etcd frozen for 90 s behind a live server", |setup| Box::pin(frozen_etcd(setup))).long_running(),
];

async fn absent(setup: &mut Setup) -> Result<(), BenchError> {
    setup.network().refuse(true);
    setup.start_client()?;
    setup.mark_fault_start();
    setup.write_for(FAULT_DURATION).await?;
    setup.network().refuse(false);
    setup.mark_fault_end();
    Ok(())
}

async fn restarts(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    // The port closes first, so that no client reconnects to the stopping server.
    setup.network().refuse(true);
    setup.faults().stop();
    setup.write_for(Duration::from_secs(2)).await?;
    setup.faults().start();
    setup.network().refuse(false);
    setup.mark_fault_end();
    Ok(())
}

async fn resets(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    for reset in 0..5 {
        // The position of each reset within an object differs.
        setup.network().reset_after(100 + 97 * reset, Direction::ToClient);
        setup.write_for(Duration::from_secs(1)).await?;
    }
    setup.mark_fault_end();
    Ok(())
}

/// Drops packets of the open connection permanently, so that later events arrive on another connection.
async fn black_hole(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    // The connection fails before the start of the measurement, so that no byte passes after this start.
    setup.black_hole_open_connections();
    setup.mark_fault_start();
    setup.write(20)
}

async fn all_dropped(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.network().black_hole(Direction::Both, true);
    setup.mark_fault_start();
    setup.write_for(Duration::from_mins(1)).await?;
    setup.network().heal();
    setup.mark_fault_end();
    Ok(())
}

async fn idle(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.network().drop_idle_after(Some(Duration::from_secs(45)));
    // The connection is idle for longer than the limit, so that the flow is dropped before the first write.
    sleep(Duration::from_secs(65)).await;
    setup.mark_fault_start();
    setup.write(20)
}

async fn frozen(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.faults().freeze(true);
    setup.mark_fault_start();
    setup.write_for(Duration::from_secs(90)).await?;
    setup.faults().freeze(false);
    setup.mark_fault_end();
    Ok(())
}

/// Stalls the open stream permanently, so that later events arrive on another stream.
async fn stalled(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.faults().stall_streams(true);
    setup.mark_fault_start();
    setup.write(20)
}

/// Triggers the fault once a second, five times.
async fn each_second(setup: &mut Setup, inject: fn(&Faults)) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    for _ in 0..5 {
        inject(setup.faults());
        setup.write_for(Duration::from_secs(1)).await?;
    }
    setup.mark_fault_end();
    Ok(())
}

async fn closed_on_accept(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    setup.network().accept_and_close(true);
    // Open connections would hide the fault, since it affects new ones only.
    setup.network().reset();
    setup.write_for(FAULT_DURATION).await?;
    setup.network().accept_and_close(false);
    setup.mark_fault_end();
    Ok(())
}

/// Resets all connections, and rejects new ones for two seconds. During this time, `change` runs and all earlier
/// versions expire.
async fn change_while_disconnected(
    setup: &mut Setup,
    change: fn(&mut Setup) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    setup.network().cut();
    change(setup)?;
    // A compaction affects only the history. The watch cache keeps its events, so these must expire too.
    setup.server.compact();
    setup.faults().expire_events();
    sleep(Duration::from_secs(2)).await;
    setup.network().heal();
    setup.mark_fault_end();
    Ok(())
}

async fn compacted(setup: &mut Setup) -> Result<(), BenchError> {
    let changes =
        |setup: &mut Setup| ten_names(setup).iter().try_for_each(|name| setup.writer.change(&setup.server, name));
    change_while_disconnected(setup, changes).await
}

async fn recreated(setup: &mut Setup) -> Result<(), BenchError> {
    change_while_disconnected(setup, |setup| {
        ten_names(setup).iter().try_for_each(|name| {
            setup.writer.delete(&setup.server, name)?;
            setup.writer.create(&setup.server, name)
        })
    })
    .await
}

async fn deleted(setup: &mut Setup) -> Result<(), BenchError> {
    change_while_disconnected(setup, |setup| {
        ten_names(setup).iter().try_for_each(|name| setup.writer.delete(&setup.server, name))
    })
    .await
}

async fn gone_in_stream(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    let gone = InjectedResponse::InStream(Status::of_code(410));
    setup.faults().respond(RequestRule::any().verb(Verb::Watch).times(1), gone);
    setup.faults().end_watches();
    setup.write(20)
}

fn expired_continue_tokens(setup: &mut Setup) -> Result<(), BenchError> {
    // With the initial objects, the list has 1,200 items, which are more than one page.
    for _ in 0..1_125 {
        setup.writer.create_another(&setup.server)?;
    }
    // Streamed lists are rejected, because only paged lists have continue tokens.
    setup.faults().refuse_streamed_lists(true);
    setup.faults().expire_continue_tokens(3);
    setup.mark_fault_start();
    setup.start_client()
}

async fn too_large(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    let rule = RequestRule::any().verb(Verb::Watch).verb(Verb::List).verb(Verb::StreamedList).times(2);
    setup.faults().respond(rule, InjectedResponse::too_large(TooLargeVersionForm::Cause));
    setup.faults().end_watches();
    setup.write(20)
}

/// Moves all connections to the second replica, which lags behind for a while.
async fn move_to_lagging(setup: &mut Setup) -> Result<(), BenchError> {
    setup.faults().replica(1).lag(true);
    setup.write_for(Duration::from_secs(3)).await?;
    // The client receives these changes from the first replica before the move. The second replica lacks them.
    sleep(Duration::from_millis(500)).await;
    setup.mark_fault_start();
    setup.network().send_to(1);
    // The first replica stops, so that no client can return to it.
    setup.faults().replica(0).stop();
    setup.network().reset();
    setup.write_for(FAULT_DURATION).await?;
    setup.faults().replica(1).lag(false);
    setup.mark_fault_end();
    Ok(())
}

async fn lagging(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    move_to_lagging(setup).await
}

async fn lagging_list(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.faults().replica(1).respond(RequestRule::any().verb(Verb::Watch).times(1), InjectedResponse::code(410));
    move_to_lagging(setup).await
}

fn endless(setup: &mut Setup) -> Result<(), BenchError> {
    setup.faults().no_initial_events_end(true);
    setup.mark_fault_start();
    setup.start_client()
}

async fn events_lost(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    // One event of each kind is dropped: a change, a deletion and a creation.
    setup.faults().drop_events(3, |change| change.resource.resource() == "configmaps");
    let names = ten_names(setup);
    setup.writer.change(&setup.server, &names[0])?;
    setup.writer.delete(&setup.server, &names[1])?;
    setup.writer.create_another(&setup.server)?;
    setup.write(2)
}

async fn repeated(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    setup.faults().repeat_events(3);
    setup.faults().end_watches();
    setup.write_for(Duration::from_secs(2)).await?;
    setup.mark_fault_end();
    Ok(())
}

async fn too_many(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    let rule = RequestRule::any().verb(Verb::Watch).verb(Verb::List).verb(Verb::StreamedList).times(2);
    setup.faults().respond(rule, InjectedResponse::retry_after(429, Duration::from_secs(5)));
    setup.faults().end_watches();
    setup.write(20)
}

/// Makes the server respond to every read with `response` for a while.
async fn rejected(setup: &mut Setup, response: InjectedResponse) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    setup.faults().respond(RequestRule::any().resource("configmaps"), response);
    setup.faults().end_watches();
    setup.write_for(FAULT_DURATION).await?;
    setup.faults().clear_rules();
    setup.mark_fault_end();
    Ok(())
}

async fn unavailable(setup: &mut Setup) -> Result<(), BenchError> {
    rejected(setup, InjectedResponse::code(503)).await
}

async fn forbidden(setup: &mut Setup) -> Result<(), BenchError> {
    rejected(setup, InjectedResponse::Forbidden).await
}

async fn unauthorized(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    // The accepted token changes while the client keeps its own, as after a rotation that the client missed.
    setup.faults().replace_tokens(&["the-token-of-others"]);
    setup.faults().end_watches();
    setup.write_for(FAULT_DURATION).await?;
    setup.faults().replace_tokens(&[TOKEN]);
    setup.mark_fault_end();
    Ok(())
}

async fn undecodable(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.mark_fault_start();
    let name = ten_names(setup)[0].clone();
    setup.faults().undecodable("default", &name, true);
    // The change triggers an event with the broken object.
    setup.writer.change(&setup.server, &name)?;
    sleep(FAULT_DURATION).await;
    setup.faults().undecodable("default", &name, false);
    // The next event of the object decodes again. Without a write, only a relist would repair the cache.
    setup.writer.change(&setup.server, &name)?;
    setup.mark_fault_end();
    Ok(())
}

async fn restored(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    // State of the backup. The restore undoes later writes.
    let (objects, revision) = (setup.writer.expected_objects().clone(), setup.server.revision());
    setup.write_for(Duration::from_secs(2)).await?;
    // The client must have seen the writes that the restore undoes.
    sleep(Duration::from_millis(500)).await;
    setup.mark_fault_start();
    setup.faults().restore(revision);
    setup.writer.restore(objects);
    setup.mark_fault_end();
    Ok(())
}

async fn frozen_etcd(setup: &mut Setup) -> Result<(), BenchError> {
    setup.start_synced_client().await?;
    setup.faults().freeze_etcd(true);
    setup.mark_fault_start();
    sleep(Duration::from_secs(90)).await;
    setup.faults().freeze_etcd(false);
    setup.write(20)?;
    setup.mark_fault_end();
    Ok(())
}

/// Returns ten names of existing objects.
fn ten_names(setup: &Setup) -> Vec<String> {
    setup.writer.expected_objects().keys().skip(20).take(10).cloned().collect()
}
