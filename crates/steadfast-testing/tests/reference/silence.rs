//! Connections that are cut or fall silent, a server that stands still, an etcd that stands still behind a live server:
//! when that is noticed is taken from `freshness()` alone.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Informer, InformerFactory, Kept, ReflectorSettings, Scope};
use steadfast_contract::Terms;
use steadfast_testing::proxy::{Direction, FaultProxy};
use steadfast_testing::reference::Reference;
use steadfast_testing::{WorldError, config_map};

use super::{SOON, Said, Writer, assert_fresh, judge, until_told};

/// R1's bound.
const VANISHED: Duration = Duration::from_secs(15);
/// R2's period, shortened: real time is waited for.
const PERIOD: Duration = Duration::from_secs(3);
/// What a busy machine may add to a wait.
const SLACK: Duration = Duration::from_secs(2);

/// How long it takes until `informer` is fresh, or no longer is; an error after `limit`.
async fn until_fresh<K: Kept>(informer: &Informer<K>, fresh: bool, limit: Duration) -> Result<Duration, WorldError> {
    let begun = Instant::now();
    while informer.freshness().is_fresh() != fresh {
        if begun.elapsed() > limit {
            return Err(format!("{}: still {} after {limit:?}", informer.name(), informer.freshness()).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(begun.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_black_holes_and_standstills_are_noticed_in_time_and_cost_no_list() -> Result<(), WorldError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let proxy = FaultProxy::start([reference.address(0)])?;
    let network = proxy.faults();
    let writer = Writer::at(&reference).await?;
    writer.create(&config_map("a", "0")).await?;
    // One has the default period, so that only R1 is left to it; the other a short one, for R2.
    let (recorder, impatient_recorder) = (reference.recorder(), reference.recorder());
    let factory = InformerFactory::new(&reference.connection_by(proxy.address()).await?);
    let settings = ReflectorSettings { period: PERIOD, ..ReflectorSettings::default() };
    let impatient_factory = InformerFactory::with_settings(&reference.connection_by(proxy.address()).await?, settings);
    let patient = factory.informer::<ConfigMap>(Scope::all())?;
    let impatient = impatient_factory.informer::<ConfigMap>(Scope::all())?;
    let said = [Said::by(&patient), Said::by(&impatient)];
    let seen = [recorder.record_as(&patient, "patient"), impatient_recorder.record_as(&impatient, "impatient")];
    for all in [&recorder, &impatient_recorder] {
        all.follow(network);
    }
    for seen in &seen {
        seen.until_synced().await;
    }
    let mut told = Vec::new();

    let begun = Instant::now();
    network.reset();
    writer.set("a", "1").await?;
    for seen in &seen {
        until_told(seen, "default/a", 2).await?;
    }
    told.push(format!("RST: told on after {:?}", begun.elapsed()));

    network.black_hole(Direction::Both, true);
    let noticed = until_fresh(&patient, false, VANISHED).await?;
    writer.set("a", "2").await?;
    let begun = Instant::now();
    network.black_hole(Direction::Both, false);
    for seen in &seen {
        until_told(seen, "default/a", 3).await?;
        until_fresh(seen.informer(), true, SOON).await?;
    }
    told.push(format!("black hole: noticed after {noticed:?}, recovered after {:?}", begun.elapsed()));

    reference.freeze(0, true)?;
    let (by_period, by_ping) = tokio::try_join!(
        until_fresh(&impatient, false, 2 * PERIOD + SLACK),
        until_fresh(&patient, false, VANISHED + SLACK)
    )?;
    let begun = Instant::now();
    reference.freeze(0, false)?;
    writer.set("a", "3").await?;
    for seen in &seen {
        until_told(seen, "default/a", 4).await?;
        until_fresh(seen.informer(), true, SOON).await?;
    }
    told.push(format!(
        "SIGSTOP of the API server: noticed after {by_period:?} (period {PERIOD:?}) and {by_ping:?} (pings), recovered \
         after {:?}",
        begun.elapsed()
    ));

    reference.freeze_etcd(true)?;
    let noticed = until_fresh(&impatient, false, 2 * PERIOD + SLACK).await;
    let begun = Instant::now();
    reference.freeze_etcd(false)?;
    let noticed = noticed?;
    writer.set("a", "4").await?;
    for seen in &seen {
        until_told(seen, "default/a", 5).await?;
        until_fresh(seen.informer(), true, SOON).await?;
    }
    told.push(format!("SIGSTOP of the etcd: noticed after {noticed:?}, recovered after {:?}", begun.elapsed()));

    println!("{}", told.join("\n"));
    reference.settle(&impatient_recorder).await?;
    let verdict = judge(&mut reference, &recorder).await?;
    assert_eq!((verdict.total().lost, verdict.total().repeated), (0, 0), "{verdict:?}");
    let history = reference.history("", "configmaps").await?;
    let report = Terms { period: PERIOD, ..Terms::default() }.judge(&history, &impatient_recorder.trace());
    assert!(report.passed(), "{report:?}");
    for (seen, said) in seen.iter().zip(said) {
        assert_eq!(seen.story("default/a"), ["Added", "Updated", "Updated", "Updated", "Updated"]);
        assert_eq!(said.times("relisted"), 0, "every cut was resumed");
        assert_fresh(seen);
    }
    Ok(())
}
