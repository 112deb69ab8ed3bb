//! Tests with real DNS servers, Knot and BIND. `dig` reads the results.
//!
//! Each scenario runs with both servers. Without a server, `dig` or `nsupdate`, the scenario is skipped.

mod dns_process;
mod dns_server;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::ops::Range;
use std::time::{Duration, Instant};

use dns_server::{DnsKind, MIRROR, OTHER_KEY, READER_KEY, RunningServer, key_text};
use steadfast_targets::dns::{DnsError, DnsRecord, RecordData, Zone, Zones, entries, entry};
use steadfast_targets::{
    ClaimResult, DesiredState, Limits, Mirror, MirrorMemory, MirrorSettings, MirrorStatus, SkipReason, Step, Target,
};
use tokio::time::{sleep, timeout};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(20);

fn record(line: &str) -> Result<DnsRecord> {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().ok_or_else(|| format!("{line:?} is not a record"));
    let (name, ttl, kind) = (word()?, word()?.parse()?, word()?);
    Ok(DnsRecord { name: format!("{name}.example.org"), ttl, data: RecordData::read(kind, word()?)? })
}

fn records(lines: &[&str]) -> Result<BTreeMap<String, DnsRecord>> {
    let records = lines.iter().map(|line| record(line)).collect::<Result<Vec<_>>>()?;
    Ok(entries("example.org", records)?)
}

fn mirror(target: Zone) -> Mirror<DnsRecord> {
    let limits = Limits { share: 1.0, ..Limits::default() };
    let settings =
        MirrorSettings { limits, compare: Duration::from_millis(500), allow_empty: true, ..MirrorSettings::default() };
    Mirror::start("zone", target, settings, MirrorMemory::volatile())
}

/// Waits until the target matches the current desired state, and not an earlier one.
async fn wait_until(
    mirror: &Mirror<DnsRecord>,
    condition: impl Fn(&MirrorStatus<DnsRecord>) -> bool,
) -> Result<MirrorStatus<DnsRecord>> {
    let mut status = mirror.status();
    let waited = timeout(TIMEOUT, status.wait_for(|status| status.settled && condition(status))).await;
    Ok(waited.map_err(|_| format!("not within {TIMEOUT:?}: {:?}", mirror.status().borrow()))??.clone())
}

async fn set_and_wait(mirror: &Mirror<DnsRecord>, lines: &[&str], skipped: &[&str]) -> Result {
    mirror.set_desired(DesiredState::new(records(lines)?));
    let reads = mirror.status().borrow().reads;
    // A pass that started before this desired state was set may finish next.
    let status = wait_until(mirror, |status| status.reads > reads + 1).await?;
    let others: Vec<_> = status.skipped.iter().map(|(name, reason)| (&**name, reason)).collect();
    assert_eq!(others, skipped.iter().map(|name| (*name, &SkipReason::Foreign)).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn mirror_manages_only_its_names() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "names").await?;
        let before = running.zone()?;
        let mirror = mirror(running.target("one")?);
        set_and_wait(
            &mirror,
            &[
                "web 30 A 10.0.0.1",
                "web 30 A 10.0.0.2",
                "web 30 AAAA fd00::1",
                "_http._tcp.web 60 SRV 0 5 80 web.example.org",
                "alias 60 CNAME web.example.org",
                "*.wild 60 A 10.0.0.9",
                "taken 30 A 10.0.0.1",
                "mail 30 A 10.0.0.1",
                "foreign 30 A 10.0.0.1",
                "promised 30 A 10.0.0.1",
            ],
            &[
                "foreign.example.org. A 10.0.0.1",
                "mail.example.org. A 10.0.0.1",
                "promised.example.org. A 10.0.0.1",
                "taken.example.org. A 10.0.0.1",
            ],
        )
        .await?;
        assert_eq!(running.dig(&["web.example.org", "A"])?, ["30 A 10.0.0.1", "30 A 10.0.0.2"], "{kind:?}");
        assert_eq!(running.dig(&["web.example.org", "AAAA"])?, ["30 AAAA fd00::1"]);
        assert_eq!(running.dig(&["_http._tcp.web.example.org", "SRV"])?, ["60 SRV 0 5 80 web.example.org."]);
        assert_eq!(running.dig(&["alias.example.org", "CNAME"])?, ["60 CNAME web.example.org."]);
        assert_eq!(running.dig(&["any.wild.example.org", "A"])?, ["60 A 10.0.0.9"]);
        assert_eq!(running.dig(&["_steadfast.alias.example.org", "TXT"])?, ["60 TXT \"steadfast:one\""]);
        assert_eq!(running.dig(&["taken.example.org", "A"])?, ["300 A 192.0.2.1"]);
        assert!(before.is_subset(&running.zone()?), "{kind:?}");

        // Changes TTL, target and weight, and replaces the addresses of a name with an alias.
        set_and_wait(
            &mirror,
            &[
                "web 90 A 10.0.0.2",
                "web 90 A 10.0.0.3",
                "_http._tcp.web 60 SRV 0 7 80 web.example.org",
                "alias 60 CNAME wild.example.org",
                "wild 60 CNAME web.example.org",
            ],
            &[],
        )
        .await?;
        assert_eq!(running.dig(&["web.example.org", "A"])?, ["90 A 10.0.0.2", "90 A 10.0.0.3"], "{kind:?}");
        assert_eq!(running.dig(&["web.example.org", "AAAA"])?, [""; 0]);
        assert_eq!(running.dig(&["_http._tcp.web.example.org", "SRV"])?, ["60 SRV 0 7 80 web.example.org."]);
        assert_eq!(running.dig(&["alias.example.org", "CNAME"])?, ["60 CNAME wild.example.org."]);
        assert_eq!(running.dig(&["any.wild.example.org", "A"])?, [""; 0]);
        set_and_wait(&mirror, &["alias 60 A 10.0.0.4", "web 90 CNAME alias.example.org"], &[]).await?;
        let chain = ["90 CNAME alias.example.org.", "60 A 10.0.0.4"];
        assert_eq!(running.dig(&["web.example.org", "A"])?, chain, "{kind:?}");

        set_and_wait(&mirror, &[], &[]).await?;
        assert_eq!(running.zone()?, before, "{kind:?}: only the records and marks of the mirror are removed");
    }
    Ok(())
}

#[tokio::test]
async fn manual_change_of_record_is_reverted() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "hand").await?;
        let mirror = mirror(running.target("one")?);
        let desired = ["web 30 A 10.0.0.1", "web 30 A 10.0.0.2", "_x._tcp.web 30 SRV 0 5 80 web.example.org"];
        set_and_wait(&mirror, &desired, &[]).await?;
        running.nsupdate(&[
            "update delete web.example.org A 10.0.0.1",
            "update add web.example.org 600 A 10.6.6.6",
            "update add web.example.org 600 MX 10 mx.example.net.",
            "update add _x._tcp.web.example.org 30 SRV 0 6 80 web.example.org.",
            "send",
        ])?;
        set_and_wait(&mirror, &desired, &[]).await?;
        assert_eq!(running.dig(&["web.example.org", "A"])?, ["30 A 10.0.0.1", "30 A 10.0.0.2"], "{kind:?}");
        assert_eq!(running.dig(&["web.example.org", "MX"])?, ["600 MX 10 mx.example.net."]);
        assert_eq!(running.dig(&["_x._tcp.web.example.org", "SRV"])?, ["30 SRV 0 5 80 web.example.org."]);
        // A name without its mark does not belong to the mirror any more.
        running.nsupdate(&["update delete _steadfast.web.example.org TXT", "send"])?;
        set_and_wait(&mirror, &[desired[2]], &[]).await?;
        assert_eq!(running.dig(&["web.example.org", "A"])?, ["30 A 10.0.0.1", "30 A 10.0.0.2"], "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn restarted_server_gets_records_again() -> Result {
    for kind in DnsKind::available()? {
        let mut running = RunningServer::start(kind, "restarts").await?;
        let mirror = mirror(running.target("one")?);
        set_and_wait(&mirror, &["web 30 A 10.0.0.1"], &[]).await?;
        running.stop()?;
        mirror.set_desired(DesiredState::new(records(&["web 30 A 10.0.0.2", "more 30 A 10.0.0.3"])?));
        let mut status = mirror.status();
        let failing = timeout(TIMEOUT, status.wait_for(|status| status.failing.is_some())).await??.failing.clone();
        assert!(failing.is_some_and(|reason| reason.contains("does not respond over TCP")), "{kind:?}");
        running.restart().await?;
        wait_until(&mirror, |status| status.entries == 2).await?;
        assert_eq!(running.dig(&["web.example.org", "A"])?, ["30 A 10.0.0.2"], "{kind:?}");

        // Simulates a backup from before the first run of the mirror.
        running.stop()?;
        running.reset_data()?;
        running.restart().await?;
        let restored = async {
            while running.dig(&["more.example.org", "A"])? != ["30 A 10.0.0.3"] {
                sleep(Duration::from_millis(50)).await;
            }
            Result::Ok(())
        };
        timeout(TIMEOUT, restored).await??;
        mirror.stop().await;

        // The next mirror adopts the existing entries.
        let mirror = self::mirror(running.target("one")?);
        set_and_wait(&mirror, &["more 30 A 10.0.0.3"], &[]).await?;
        assert_eq!(running.dig(&["web.example.org", "A"])?, [""; 0], "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn name_taken_after_read_stays_foreign() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "race").await?;
        let target = running.target("one")?;
        let add = |line: &str| -> Result<Vec<Step<DnsRecord>>> {
            Ok(records(&[line])?.into_iter().map(|(name, value)| Step::Add { name, value }).collect())
        };
        target.read().await?;
        running.nsupdate(&["update add race.example.org 300 A 192.0.2.7", "send"])?;
        let steps = [add("race 30 A 10.0.0.1")?, add("beside 30 A 10.0.0.1")?].concat();
        let error = target.apply(&steps).await.expect_err("taken");
        assert!(
            matches!(&error, DnsError::Conflict { names, .. } if names == &["race.example.org."]),
            "{kind:?}: {error}"
        );
        assert!(error.to_string().contains("YXDOMAIN"), "{error}");
        assert_eq!(running.dig(&["race.example.org", "A"])?, ["300 A 192.0.2.7"], "{kind:?}");
        assert_eq!(running.dig(&["_steadfast.race.example.org", "TXT"])?, [""; 0]);
        assert_eq!(running.dig(&["beside.example.org", "A"])?, ["30 A 10.0.0.1"], "{kind:?}");

        // The mark of another mirror reserves the name.
        target.read().await?;
        running.nsupdate(&["update add _steadfast.soon.example.org 60 TXT steadfast:two", "send"])?;
        assert!(matches!(target.apply(&add("soon 30 A 10.0.0.1")?).await, Err(DnsError::Conflict { .. })), "{kind:?}");
        assert_eq!(running.dig(&["soon.example.org", "A"])?, [""; 0], "{kind:?}");

        // Tries to remove a record that the mirror no longer owns.
        let found = target.read().await?;
        running.nsupdate(&[
            "update delete _steadfast.beside.example.org TXT",
            "update add _steadfast.beside.example.org 60 TXT steadfast:two",
            "send",
        ])?;
        let all = found.own.into_iter().map(|(name, value)| Step::Remove { name, value });
        let error = target.apply(&all.collect::<Vec<_>>()).await.expect_err("the record has another owner");
        assert!(error.to_string().contains("NXRRSET"), "{kind:?}: {error}");
        assert_eq!(running.dig(&["beside.example.org", "A"])?, ["30 A 10.0.0.1"], "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn contested_name_belongs_to_one_mirror() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "two").await?;
        let (one, other) = (mirror(running.target("one")?), mirror(running.target("other")?));
        let all = |names: Range<u32>, address: &str| -> Result<DesiredState<DnsRecord>> {
            let lines: Vec<_> = names.map(|number| format!("n{number} 30 A {address}")).collect();
            Ok(DesiredState::new(records(&lines.iter().map(|line| &**line).collect::<Vec<_>>())?))
        };
        one.set_desired(all(0..120, "10.0.0.1")?);
        other.set_desired(all(40..160, "10.0.0.2")?);
        let of_one = wait_until(&one, |status| status.entries + status.skipped.len() == 120).await?.entries;
        let of_other = wait_until(&other, |status| status.entries + status.skipped.len() == 120).await?.entries;
        assert_eq!(of_one + of_other, 160, "{kind:?}");
        let zone = running.zone()?;
        let count_ending = |end: &str| zone.iter().filter(|line| line.ends_with(end)).count();
        assert_eq!((count_ending(" A 10.0.0.1"), count_ending(" A 10.0.0.2")), (of_one, of_other), "{kind:?}");
        assert_eq!(
            (count_ending("\"steadfast:one\""), count_ending("\"steadfast:other\"")),
            (of_one, of_other),
            "{kind:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn oversized_name_delays_no_other() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "much").await?;
        let target = running.target("one")?;
        let many = (0..3000).map(|number| format!("many 30 A 10.1.{}.{}", number / 256, number % 256));
        let lines: Vec<_> = many.chain(["beside 30 A 10.0.0.1".to_owned()]).collect();
        let desired = records(&lines.iter().map(|line| &**line).collect::<Vec<_>>())?;
        target.read().await?;
        let steps: Vec<_> = desired.into_iter().map(|(name, value)| Step::Add { name, value }).collect();
        let error = target.apply(&steps).await.expect_err("too many").to_string();
        assert!(error.starts_with("the changes of many.example.org. do not fit into one DNS message"), "{error}");
        assert_eq!(running.dig(&["beside.example.org", "A"])?, ["30 A 10.0.0.1"], "{kind:?}");
        assert_eq!(running.dig(&["many.example.org", "A"])?, [""; 0], "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn described_steps_are_nsupdate_commands() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "described").await?;
        let target = running.target("one")?;
        let desired = records(&["web 30 A 10.0.0.1", "web 30 A 10.0.0.2", "s 30 SRV 1 2 3 web.example.org"])?;
        let found = target.read().await?;
        let steps = desired.iter().map(|(name, value)| Step::Add { name: name.clone(), value: value.clone() });
        let steps: Vec<_> = steps.collect();
        running.run_nsupdate(&target.describe(&found, &steps))?;
        let found = target.read().await?;
        assert_eq!(found.own, desired, "{kind:?}");
        let steps: Vec<_> = found.own.clone().into_iter().map(|(name, value)| Step::Remove { name, value }).collect();
        let described = target.describe(&found, &steps);
        running.run_nsupdate(&described)?;
        assert_eq!(target.read().await?.own, BTreeMap::new(), "{kind:?}: {described:?}");
        assert_eq!(running.zone()?.iter().filter(|line| line.contains("steadfast:one")).count(), 0, "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn server_errors_include_remedy() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "wrong").await?;
        let read_error = async |zone: &str, key: &str| -> Result<String> {
            let target = Zone::new(&running.address.to_string(), zone, key.parse()?, "one")?;
            Ok(target.read().await.expect_err("an error of the server").to_string())
        };
        let error = read_error("example.org", &key_text("nobody", MIRROR.1)).await?;
        assert!(error.contains("the server does not know the key, or not for this zone (BADKEY)"), "{kind:?}: {error}");
        let error = read_error("example.org", &key_text(MIRROR.0, OTHER_KEY.1)).await?;
        assert!(error.contains("the server has another secret for this key (BADSIG)"), "{kind:?}: {error}");
        assert!(!error.contains(OTHER_KEY.1), "{error}");
        let error = read_error("example.com", &key_text(MIRROR.0, MIRROR.1)).await?;
        assert!(error.contains("NOTAUTH; the server is not authoritative for the zone"), "{kind:?}: {error}");
        let error = read_error("example.org", &key_text(OTHER_KEY.0, OTHER_KEY.1)).await?;
        // Knot assigns keys to each zone.
        let expected = if kind == DnsKind::Knot { "(BADKEY)" } else { "REFUSED; let the key transfer the zone" };
        assert!(error.contains(expected), "{kind:?}: {error}");

        let target = Zone::new(
            &running.address.to_string(),
            "example.org",
            key_text(READER_KEY.0, READER_KEY.1).parse()?,
            "one",
        )?;
        target.read().await?;
        let steps: Vec<_> = records(&["web 30 A 10.0.0.1", "more 30 A 10.0.0.1"])?
            .into_iter()
            .map(|(name, value)| Step::Add { name, value })
            .collect();
        let error = target.apply(&steps).await.expect_err("a read-only key").to_string();
        let expected = if kind == DnsKind::Knot { "(BADKEY)" } else { "REFUSED; let the key update the zone" };
        assert!(error.contains(expected), "{kind:?}: {error}");

        let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let target = Zone::new(&nobody, "example.org", key_text(MIRROR.0, MIRROR.1).parse()?, "one")?;
        let error = target.read().await.expect_err("no server listens").to_string();
        assert!(error.contains("does not respond over TCP"), "{error}");
    }
    Ok(())
}

/// Precondition of all scenarios: the test reads the zone as it was written.
#[tokio::test]
async fn dig_reads_zone_as_written() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "judge").await?;
        let expected = [
            "_steadfast.foreign.example.org. 60 TXT \"steadfast:two\"",
            "_steadfast.promised.example.org. 60 TXT \"steadfast:two\"",
            "example.org. 300 NS ns.example.org.",
            "foreign.example.org. 300 A 192.0.2.3",
            "mail.example.org. 300 MX 10 mx.example.net.",
            "ns.example.org. 300 A 127.0.0.1",
            "taken.example.org. 300 A 192.0.2.1",
        ];
        assert_eq!(running.zone()?, BTreeSet::from(expected.map(str::to_owned)), "{kind:?}");
        let found = running.target("two")?.read().await?;
        assert_eq!(found.own.keys().collect::<Vec<_>>(), ["foreign.example.org. A 192.0.2.3"], "{kind:?}");
        let others = ["mail.example.org.", "ns.example.org.", "taken.example.org."];
        assert_eq!(found.others, BTreeSet::from(others.map(str::to_owned)), "{kind:?}");
    }
    Ok(())
}

/// Adds `lines` as entries.
async fn add(target: &Zone, lines: &[&str]) -> Result {
    target.read().await?;
    let mut desired = records(lines)?;
    let rejected = target.validate(&mut desired);
    assert_eq!(rejected, BTreeMap::new());
    let steps: Vec<_> = desired.into_iter().map(|(name, value)| Step::Add { name, value }).collect();
    Ok(target.apply(&steps).await?)
}

fn apex(kind: &str, data: &str) -> Result<(String, DnsRecord)> {
    Ok(entry("example.org", DnsRecord { name: "example.org".into(), ttl: 60, data: RecordData::read(kind, data)? })?)
}

#[tokio::test]
async fn foreign_apex_records_stay_unchanged() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "apex").await?;
        running.nsupdate(&[
            "update add example.org 300 TXT theirs",
            "update add example.org 300 A 192.0.2.9",
            "update add example.org 300 MX 5 mx.example.net.",
            "send",
        ])?;
        let before = running.zone()?;
        let target = running.target("one")?;
        let mirror = mirror(target.clone());
        let entries = [
            apex("A", "10.0.0.1")?,
            apex("A", "10.0.0.2")?,
            apex("AAAA", "fd00::1")?,
            apex("TXT", "v=spf1 -all")?,
            apex("MX", "10 mx2.example.net")?,
        ];
        target.read().await?;
        let mut desired = BTreeMap::from(entries);
        assert_eq!(target.validate(&mut desired), BTreeMap::new());
        mirror.set_desired(DesiredState::new(desired.clone()));
        wait_until(&mirror, |status| status.entries == 5).await?;
        assert_eq!(
            running.dig(&["example.org", "A"])?,
            ["300 A 10.0.0.1", "300 A 10.0.0.2", "300 A 192.0.2.9"],
            "{kind:?}"
        );
        assert_eq!(
            running.dig(&["example.org", "TXT"])?,
            ["300 TXT \"theirs\"", "300 TXT \"v=spf1 -all\""],
            "{kind:?}"
        );
        assert_eq!(running.dig(&["example.org", "MX"])?, ["300 MX 10 mx2.example.net.", "300 MX 5 mx.example.net."]);
        assert_eq!(running.dig(&["example.org", "NS"])?, ["300 NS ns.example.org."]);

        // A record that another client deletes is added again. A second mirror claims no entries of the first.
        running.nsupdate(&["update delete example.org A 10.0.0.1", "send"])?;
        mirror.compare_now();
        let restored = async {
            while running.dig(&["example.org", "A"])?.len() != 3 {
                sleep(Duration::from_millis(50)).await;
            }
            Result::Ok(())
        };
        timeout(TIMEOUT, restored).await??;
        assert_eq!(running.target("other")?.read().await?.own, BTreeMap::new());

        // An identical record of another client stays with its owner.
        let mut theirs = BTreeMap::from([apex("A", "192.0.2.9")?]);
        let rejected = target.validate(&mut theirs);
        assert!(
            rejected["example.org. A 192.0.2.9"].contains("already has A 192.0.2.9 of another client"),
            "{rejected:?}"
        );

        mirror.set_desired(DesiredState::new(BTreeMap::new()));
        wait_until(&mirror, |status| status.entries == 0).await?;
        assert_eq!(running.zone()?, before, "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn foreign_records_at_own_name_stay() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "text").await?;
        let target = running.target("one")?;
        let lines =
            ["web 30 A 10.0.0.1", "web 30 TXT ours", "web 30 MX 10 mx.example.net", "1.rev 30 PTR web.example.org"];
        add(&target, &lines).await?;
        running.nsupdate(&[
            "update add web.example.org 30 TXT theirs",
            "update add web.example.org 30 MX 20 mx.example.net.",
            "send",
        ])?;
        let found = target.read().await?;
        assert_eq!(found.own, records(&lines)?, "{kind:?}");
        // Changes TTL and preference.
        let change = |from: &str, to: &str| -> Result<Step<DnsRecord>> {
            let (from, to) = (records(&[from])?.pop_first().ok_or("one")?, records(&[to])?.pop_first().ok_or("one")?);
            Ok(Step::Change { name: from.0, from: from.1, to: to.1 })
        };
        target.apply(&[change("web 30 MX 10 mx.example.net", "web 30 MX 15 mx.example.net")?]).await?;
        let mx = ["30 MX 15 mx.example.net.", "30 MX 20 mx.example.net."];
        assert_eq!(running.dig(&["web.example.org", "MX"])?, mx, "{kind:?}");
        let found = target.read().await?;
        let remove = found.own.into_iter().map(|(name, value)| Step::Remove { name, value });
        target.apply(&remove.collect::<Vec<_>>()).await?;
        assert_eq!(running.dig(&["web.example.org", "TXT"])?, ["30 TXT \"theirs\""], "{kind:?}");
        assert_eq!(running.dig(&["web.example.org", "MX"])?, ["30 MX 20 mx.example.net."]);
        assert_eq!(running.dig(&["web.example.org", "A"])?, [""; 0]);
        assert!(!running.zone()?.iter().any(|line| line.contains("steadfast:one")), "{kind:?}: {:?}", running.zone()?);
    }
    Ok(())
}

#[tokio::test]
async fn mark_of_deleted_record_is_removed() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "unused").await?;
        let target = running.target("one")?;
        add(&target, &["web 30 A 10.0.0.1", "web 30 TXT ours"]).await?;
        running.nsupdate(&["update delete web.example.org TXT", "send"])?;
        add(&target, &["other 30 A 10.0.0.1"]).await?;
        running.nsupdate(&["update add web.example.org 30 TXT ours", "send"])?;
        let found = target.read().await?;
        assert!(!found.own.contains_key("web.example.org. TXT \"ours\""), "{kind:?}: {found:?}");
    }
    Ok(())
}

#[tokio::test]
async fn rejected_name_delays_no_other_name() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "rejected").await?;
        let target = running.target("one")?;
        target.read().await?;
        let day = (0..60).map(|number| format!("n{number:02} 86400 A 10.0.0.{number}"));
        // BIND rejects addresses for names that are not valid host names.
        let lines: Vec<_> = day.chain(["a\\032b 30 A 10.0.0.1".to_owned()]).collect();
        let mut desired = records(&lines.iter().map(|line| &**line).collect::<Vec<_>>())?;
        let steps = desired.clone().into_iter().map(|(name, value)| Step::Add { name, value });
        let result = target.apply(&steps.collect::<Vec<_>>()).await;
        assert_eq!(result.is_err(), kind == DnsKind::Bind, "{result:?}");
        // Afterwards the name is reported, and the other entries are up to date.
        let rejected = target.validate(&mut desired);
        assert_eq!(rejected.len(), usize::from(kind == DnsKind::Bind), "{rejected:?}");
        assert!(
            rejected.values().all(|reason| reason.contains("b.example.org. in example.org.: REFUSED")),
            "{rejected:?}"
        );
        assert_eq!(desired.len() + rejected.len(), 61);
        assert_eq!(running.dig(&["n00.example.org", "A"])?, ["86400 A 10.0.0.0"], "{kind:?}");
        assert_eq!(running.dig(&["n59.example.org", "A"])?, ["86400 A 10.0.0.59"], "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn silent_address_is_skipped() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "rotation").await?;
        // Accepts connections and never responds.
        let silent = TcpListener::bind("127.0.0.1:0")?;
        let server = format!("{},{}", silent.local_addr()?, running.address);
        let target = Zone::new(&server, "example.org", key_text(MIRROR.0, MIRROR.1).parse()?, "one")?;
        let started = Instant::now();
        target.read().await?;
        let elapsed = started.elapsed();
        assert!((2..5).contains(&elapsed.as_secs()), "{kind:?}: {elapsed:?}");
        let started = Instant::now();
        add(&target, &["web 30 A 10.0.0.1"]).await?;
        assert_eq!(target.read().await?.own.len(), 1, "{kind:?}");
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "{kind:?}: a second request was sent to the silent address"
        );
        drop(silent);
    }
    Ok(())
}

#[tokio::test]
async fn manual_change_is_reported_within_seconds() -> Result {
    let limit = Duration::from_secs(10);
    for kind in DnsKind::available()? {
        let mut running = RunningServer::start(kind, "serial").await?;
        let target = running.target("one")?;
        add(&target, &["web 30 A 10.0.0.1"]).await?;
        target.read().await?;
        assert_eq!(target.claim("x", 1000).await?, ClaimResult::Ours);
        assert!(timeout(Duration::from_secs(7), target.changed()).await.is_err(), "{kind:?}: nothing was changed");
        running.nsupdate(&["update delete web.example.org A", "send"])?;
        timeout(limit, target.changed()).await.map_err(|_| format!("{kind:?}: a change by hand"))?;
        target.read().await?;
        // The old copy of the zone has a lower serial number.
        running.stop()?;
        running.reset_data()?;
        running.restart().await?;
        timeout(limit, target.changed()).await.map_err(|_| format!("{kind:?}: an old copy"))?;
    }
    Ok(())
}

#[tokio::test]
async fn failing_zone_delays_no_other_zone() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "zones").await?;
        let all = ["example.org", "example.net", "example.com"].map(|zone| running.zone_target(zone, "one"));
        let zones = Zones::new(all.into_iter().collect::<Result<Vec<_>>>()?)?;
        let mirror = {
            let settings = MirrorSettings { compare: Duration::from_millis(500), ..MirrorSettings::default() };
            Mirror::start("zones", zones.clone(), settings, MirrorMemory::volatile())
        };
        let records = ["a.example.org", "b.example.net", "c.example.com"].map(|name| {
            let data = RecordData::A([10, 0, 0, 1].into());
            zones.entry(DnsRecord { name: name.to_owned(), ttl: 30, data })
        });
        let mut desired: BTreeMap<_, _> = records.into_iter().collect::<std::result::Result<_, _>>()?;
        zones.read().await?;
        let rejected = zones.validate(&mut desired);
        assert_eq!(rejected.keys().collect::<Vec<_>>(), ["c.example.com. A 10.0.0.1"], "{kind:?}");
        assert!(rejected["c.example.com. A 10.0.0.1"].contains("the zone example.com. cannot be read"), "{rejected:?}");
        mirror.set_desired(DesiredState::new(desired));
        let mut status = mirror.status();
        timeout(TIMEOUT, status.wait_for(|status| status.entries == 2)).await??;
        assert_eq!(running.dig(&["a.example.org", "A"])?, ["30 A 10.0.0.1"], "{kind:?}");
        assert_eq!(running.dig(&["b.example.net", "A"])?, ["30 A 10.0.0.1"], "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn second_process_with_mark_is_reported() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "owner").await?;
        let (one, other) = (running.target("m")?, running.target("m")?);
        assert_eq!(one.claim("one", 1000).await?, ClaimResult::Ours, "{kind:?}");
        assert_eq!(one.claim("one", 1030).await?, ClaimResult::Ours);
        assert_eq!(other.claim("other", 1200).await?, ClaimResult::Other { instance: "one".into(), renewed: 1000 });
        assert_eq!(one.claim("one", 1240).await?, ClaimResult::Ours);
        assert_eq!(other.claim("other", 1330).await?, ClaimResult::Other { instance: "one".into(), renewed: 1240 });
        assert_eq!(running.target("n")?.claim("other", 1330).await?, ClaimResult::Ours, "another mark");
        // The record was not renewed for five minutes.
        assert_eq!(other.claim("other", 1540).await?, ClaimResult::Ours, "{kind:?}");
        assert_eq!(one.claim("one", 1541).await?, ClaimResult::Other { instance: "other".into(), renewed: 1540 });
        // A time far in the future comes from a wrong clock. The record expires nevertheless.
        assert_eq!(other.claim("other", 9000).await?, ClaimResult::Ours, "{kind:?}");
        assert_eq!(one.claim("one", 1600).await?, ClaimResult::Ours, "{kind:?}");
        assert!(one.read().await?.others.iter().all(|name| !name.contains("steadfast")), "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn server_rejects_updates_of_earlier_term() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "term").await?;
        let (earlier, later) = (running.target("m")?, running.target("m")?);
        assert!(earlier.record_term(5, 1000).await?, "{kind:?}");
        earlier.read().await?;
        add(&earlier, &["a 30 A 10.0.0.1"]).await?;
        assert!(later.record_term(6, 1010).await?);
        // The earlier leader sends this update late, like a process that was suspended between its check and the
        // write.
        assert!(add(&earlier, &["b 30 A 10.0.0.1"]).await.is_err(), "{kind:?}");
        assert!(!earlier.record_term(5, 1020).await?, "an earlier term cannot return");
        assert!(add(&earlier, &["b 30 A 10.0.0.1"]).await.is_err(), "{kind:?}");
        later.read().await?;
        add(&later, &["c 30 A 10.0.0.1"]).await?;
        assert!(later.record_term(6, 1100).await?);
        let found = later.read().await?;
        assert_eq!(found.own.keys().collect::<Vec<_>>(), ["a.example.org. A 10.0.0.1", "c.example.org. A 10.0.0.1"]);
        assert!(found.others.iter().all(|name| !name.contains("steadfast")), "{kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn renewed_term_outlives_its_expiry() -> Result {
    for kind in DnsKind::available()? {
        let running = RunningServer::start(kind, "renewed-term").await?;
        let (earlier, later) = (running.target("m")?, running.target("m")?);
        assert!(earlier.record_term(5, 1000).await?, "{kind:?}");
        assert!(later.record_term(6, 1010).await?);
        for now in [1100, 1300, 1500] {
            assert!(later.record_term(6, now).await?, "{kind:?}");
            // The renewals do not change the condition of the updates.
            add(&later, &[&format!("a{now} 30 A 10.0.0.1")]).await?;
        }
        assert!(!earlier.record_term(5, 1700).await?, "{kind:?}: the later term was renewed at 1500");
        assert!(later.read().await?.others.iter().all(|name| !name.contains("steadfast")), "{kind:?}");
        // The later leader renews nothing any more.
        assert!(earlier.record_term(5, 1800).await?, "{kind:?}");
        assert!(add(&later, &["b 30 A 10.0.0.1"]).await.is_err(), "{kind:?}");
        add(&earlier, &["c 30 A 10.0.0.1"]).await?;
    }
    Ok(())
}
