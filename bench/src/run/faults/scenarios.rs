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

use steadfast_apiserver::{InjectedResponse, Faults, RequestRule, Status, TooLargeVersionForm, Verb};
use steadfast_testing::proxy::Direction;
use tokio::time::sleep;

use super::stage::{Kind, Stage, TOKEN};
use crate::BenchError;

/// Function that runs between the client's start and the end of the fault.
type Play = for<'a> fn(&'a mut Stage) -> Pin<Box<dyn Future<Output = Result<(), BenchError>> + Send + 'a>>;

/// One scenario.
pub(super) struct Scenario {
    pub(super) fault: &'static str,
    pub(super) title: &'static str,
    pub(super) server: Kind,
    /// Timeout of the recovery.
    pub(super) patience: Duration,
    /// True if the scenario mostly waits, for minutes.
    pub(super) is_long: bool,
    pub(super) play: Play,
}

/// Duration of a silence. It is longer than kube-runtime needs to abandon a silent connection: 295 s.
const SILENCE: Duration = Duration::from_secs(320);
const PATIENCE: Duration = Duration::from_mins(1);
/// Duration of a temporary fault.
const FAULT_DURATION: Duration = Duration::from_secs(10);

const fn scenario(fault: &'static str, title: &'static str, play: Play) -> Scenario {
    Scenario { fault, title, server: Kind::Plain, patience: PATIENCE, is_long: false, play }
}

impl Scenario {
    const fn on(mut self, server: Kind) -> Self {
        self.server = server;
        self
    }

    const fn long(mut self) -> Self {
        (self.patience, self.is_long) = (SILENCE, true);
        self
    }
}

/// All scenarios, in the order of the catalog.
pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("F1", "no server for 10 s at the start", |stage| Box::pin(absent(stage))),
    scenario("F2", "server restarts, 2 s down, with an empty window", |stage| Box::pin(restarts(stage))),
    scenario("F3", "RST in mid-stream, five times in 5 s", |stage| Box::pin(resets(stage))),
    scenario("F4", "black hole of the open connection, new ones work", |stage| Box::pin(black_hole(stage))).long(),
    scenario("F4", "all packets dropped for 60 s", |stage| Box::pin(dark(stage))).long(),
    scenario("F5", "flows idle for 45 s are dropped silently", |stage| Box::pin(idle(stage))).long(),
    scenario("F6", "pings acknowledged, server frozen for 90 s", |stage| Box::pin(frozen(stage))).long(),
    scenario("F7", "one stream stalled on a healthy connection", |stage| Box::pin(stalled(stage))).long(),
    scenario("F8", "GOAWAY, once a second for 5 s", |stage| Box::pin(each_second(stage, Faults::goaway))),
    scenario("F9", "watches ended cleanly, once a second for 5 s", |stage| {
        Box::pin(each_second(stage, Faults::end_watches))
    }),
    scenario("F10", "connections accepted and closed for 10 s", |stage| Box::pin(turned_away(stage))),
    scenario("F11", "changes during a cut of 2 s, history compacted", |stage| Box::pin(compacted(stage))),
    scenario("F11", "410 in the stream", |stage| Box::pin(gone_in_stream(stage))),
    scenario("F12", "10 recreated during a cut of 2 s, history compacted", |stage| Box::pin(recreated(stage))),
    scenario("F13", "10 deleted during a cut of 2 s, history compacted", |stage| Box::pin(deleted(stage))),
    scenario("F14", "continue tokens expire in the first list of 1,200", |stage| Box::pin(ready(continues(stage)))),
    scenario("F15", "resource version too large, twice", |stage| Box::pin(too_large(stage))),
    scenario("F16", "moved to a replica that lags for 10 s", |stage| Box::pin(lagging(stage))).on(Kind::Two),
    scenario("F16", "410, then a list on a replica that lags for 10 s", |stage| Box::pin(lagging_list(stage)))
        .on(Kind::Two),
    scenario("F17", "streamed lists never end", |stage| Box::pin(ready(endless(stage)))),
    scenario("F19", "a change, a deletion and a creation not sent", |stage| Box::pin(events_lost(stage))),
    scenario("F20", "three old events repeated after a resume", |stage| Box::pin(repeated(stage))),
    scenario("F21", "429 with Retry-After of 5 s, twice", |stage| Box::pin(too_many(stage))),
    scenario("F21", "503 for 10 s", |stage| Box::pin(unavailable(stage))),
    scenario("F22", "401 for 10 s", |stage| Box::pin(unauthorized(stage))).on(Kind::Closed),
    scenario("F23", "403 for 10 s", |stage| Box::pin(forbidden(stage))),
    scenario("F24", "one object cannot be decoded for 10 s", |stage| Box::pin(undecodable(stage))),
    scenario("F30", "restored from a backup 40 writes old", |stage| Box::pin(restored(stage))).long(),
    scenario("F32", "etcd frozen for 90 s behind a live server", |stage| Box::pin(frozen_etcd(stage))).long(),
];

async fn absent(stage: &mut Stage) -> Result<(), BenchError> {
    stage.network().refuse(true);
    stage.start_client()?;
    stage.fault();
    stage.write_for(FAULT_DURATION).await?;
    stage.network().refuse(false);
    stage.healed();
    Ok(())
}

async fn restarts(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    // The port closes first, so that no client reconnects to the stopping server.
    stage.network().refuse(true);
    stage.faults().stop();
    stage.write_for(Duration::from_secs(2)).await?;
    stage.faults().start();
    stage.network().refuse(false);
    stage.healed();
    Ok(())
}

async fn resets(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    for reset in 0..5 {
        // The position of each reset within an object differs.
        stage.network().reset_after(100 + 97 * reset, Direction::ToClient);
        stage.write_for(Duration::from_secs(1)).await?;
    }
    stage.healed();
    Ok(())
}

/// Drops packets of the open connection permanently, so that later events arrive on another connection.
async fn black_hole(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    // The connection fails before the start of the measurement, so that no byte passes after this start.
    stage.darken_open_connections();
    stage.fault();
    stage.write(20)
}

async fn dark(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.network().black_hole(Direction::Both, true);
    stage.fault();
    stage.write_for(Duration::from_mins(1)).await?;
    stage.network().heal();
    stage.healed();
    Ok(())
}

async fn idle(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.network().drop_idle_after(Some(Duration::from_secs(45)));
    // Idle for longer than the limit, so that the flow is dropped before the first write.
    sleep(Duration::from_secs(65)).await;
    stage.fault();
    stage.write(20)
}

async fn frozen(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.faults().freeze(true);
    stage.fault();
    stage.write_for(Duration::from_secs(90)).await?;
    stage.faults().freeze(false);
    stage.healed();
    Ok(())
}

/// Stalls the open stream permanently, so that later events arrive on another stream.
async fn stalled(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.faults().stall_streams(true);
    stage.fault();
    stage.write(20)
}

/// Triggers the fault once a second, five times.
async fn each_second(stage: &mut Stage, happens: fn(&Faults)) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    for _ in 0..5 {
        happens(stage.faults());
        stage.write_for(Duration::from_secs(1)).await?;
    }
    stage.healed();
    Ok(())
}

async fn turned_away(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    stage.network().accept_and_close(true);
    // Open connections would hide the fault, since it affects new ones only.
    stage.network().reset();
    stage.write_for(FAULT_DURATION).await?;
    stage.network().accept_and_close(false);
    stage.healed();
    Ok(())
}

/// Cuts the network for two seconds, and then expires all earlier versions.
async fn cut(stage: &mut Stage, change: fn(&mut Stage) -> Result<(), BenchError>) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    stage.network().cut();
    change(stage)?;
    // The watch cache keeps its events after a compaction, so both must expire.
    stage.server.compact();
    stage.faults().expire_events();
    sleep(Duration::from_secs(2)).await;
    stage.network().heal();
    stage.healed();
    Ok(())
}

async fn compacted(stage: &mut Stage) -> Result<(), BenchError> {
    let changes = |stage: &mut Stage| some(stage).iter().try_for_each(|name| stage.truth.change(&stage.server, name));
    cut(stage, changes).await
}

async fn recreated(stage: &mut Stage) -> Result<(), BenchError> {
    cut(stage, |stage| {
        some(stage).iter().try_for_each(|name| {
            stage.truth.delete(&stage.server, name)?;
            stage.truth.create(&stage.server, name)
        })
    })
    .await
}

async fn deleted(stage: &mut Stage) -> Result<(), BenchError> {
    cut(stage, |stage| some(stage).iter().try_for_each(|name| stage.truth.delete(&stage.server, name))).await
}

async fn gone_in_stream(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    let gone = InjectedResponse::InStream(Status::of_code(410));
    stage.faults().respond(RequestRule::any().verb(Verb::Watch).times(1), gone);
    stage.faults().end_watches();
    stage.write(20)
}

fn continues(stage: &mut Stage) -> Result<(), BenchError> {
    // With the initial objects, the list has 1,200 items and thereby more than one page.
    for _ in 0..1_125 {
        stage.truth.create_another(&stage.server)?;
    }
    // Streamed lists are rejected, because only paged lists have continue tokens.
    stage.faults().refuse_streamed_lists(true);
    stage.faults().expire_continue_tokens(3);
    stage.fault();
    stage.start_client()
}

async fn too_large(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    let rule = RequestRule::any().verb(Verb::Watch).verb(Verb::List).verb(Verb::StreamedList).times(2);
    stage.faults().respond(rule, InjectedResponse::too_large(TooLargeVersionForm::Cause));
    stage.faults().end_watches();
    stage.write(20)
}

/// Moves all connections to the second replica, which is frozen for a while.
async fn move_to_lagging(stage: &mut Stage) -> Result<(), BenchError> {
    stage.faults().replica(1).lag(true);
    stage.write_for(Duration::from_secs(3)).await?;
    // The second replica does not have the changes that the first replica sends from here on.
    sleep(Duration::from_millis(500)).await;
    stage.fault();
    stage.network().send_to(1);
    // The first replica stops, so that no client can return to it.
    stage.faults().replica(0).stop();
    stage.network().reset();
    stage.write_for(FAULT_DURATION).await?;
    stage.faults().replica(1).lag(false);
    stage.healed();
    Ok(())
}

async fn lagging(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    move_to_lagging(stage).await
}

async fn lagging_list(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.faults().replica(1).respond(RequestRule::any().verb(Verb::Watch).times(1), InjectedResponse::code(410));
    move_to_lagging(stage).await
}

fn endless(stage: &mut Stage) -> Result<(), BenchError> {
    stage.faults().no_initial_events_end(true);
    stage.fault();
    stage.start_client()
}

async fn events_lost(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    // One event of each kind is dropped: a change, a deletion and a creation.
    stage.faults().drop_events(3, |change| change.resource.resource() == "configmaps");
    let names = some(stage);
    stage.truth.change(&stage.server, &names[0])?;
    stage.truth.delete(&stage.server, &names[1])?;
    stage.truth.create_another(&stage.server)?;
    stage.write(2)
}

async fn repeated(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    stage.faults().repeat_events(3);
    stage.faults().end_watches();
    stage.write_for(Duration::from_secs(2)).await?;
    stage.healed();
    Ok(())
}

async fn too_many(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    let rule = RequestRule::any().verb(Verb::Watch).verb(Verb::List).verb(Verb::StreamedList).times(2);
    stage.faults().respond(rule, InjectedResponse::retry_after(429, Duration::from_secs(5)));
    stage.faults().end_watches();
    stage.write(20)
}

/// Makes the server respond to every read with `answer` for a while.
async fn refused(stage: &mut Stage, answer: InjectedResponse) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    stage.faults().respond(RequestRule::any().resource("configmaps"), answer);
    stage.faults().end_watches();
    stage.write_for(FAULT_DURATION).await?;
    stage.faults().clear_rules();
    stage.healed();
    Ok(())
}

async fn unavailable(stage: &mut Stage) -> Result<(), BenchError> {
    refused(stage, InjectedResponse::code(503)).await
}

async fn forbidden(stage: &mut Stage) -> Result<(), BenchError> {
    refused(stage, InjectedResponse::Forbidden).await
}

async fn unauthorized(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    // The accepted token changes while the client keeps its own, as after a rotation that the client missed.
    stage.faults().replace_tokens(&["the-token-of-others"]);
    stage.faults().end_watches();
    stage.write_for(FAULT_DURATION).await?;
    stage.faults().replace_tokens(&[TOKEN]);
    stage.healed();
    Ok(())
}

async fn undecodable(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.fault();
    let name = some(stage)[0].clone();
    stage.faults().undecodable("default", &name, true);
    // The change triggers an event with the broken object.
    stage.truth.change(&stage.server, &name)?;
    sleep(FAULT_DURATION).await;
    stage.faults().undecodable("default", &name, false);
    // The next event of the object decodes again. Without a write, only a relist would repair the cache.
    stage.truth.change(&stage.server, &name)?;
    stage.healed();
    Ok(())
}

async fn restored(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    // State of the backup. The restore undoes later writes.
    let (objects, revision) = (stage.truth.objects().clone(), stage.server.revision());
    stage.write_for(Duration::from_secs(2)).await?;
    // The client must have seen the writes that the restore undoes.
    sleep(Duration::from_millis(500)).await;
    stage.fault();
    stage.faults().restore(revision);
    stage.truth.restore(objects);
    stage.healed();
    Ok(())
}

async fn frozen_etcd(stage: &mut Stage) -> Result<(), BenchError> {
    stage.ready().await?;
    stage.faults().freeze_etcd(true);
    stage.fault();
    sleep(Duration::from_secs(90)).await;
    stage.faults().freeze_etcd(false);
    stage.write(20)?;
    stage.healed();
    Ok(())
}

/// Returns ten names of existing objects.
fn some(stage: &Stage) -> Vec<String> {
    stage.truth.objects().keys().skip(20).take(10).cloned().collect()
}
