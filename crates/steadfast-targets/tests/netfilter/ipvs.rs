//! Tests with real IPVS in a user-mode Linux kernel. The assertions check the output of `ipvsadm` and the traffic.
//!
//! Requires Debian's packages user-mode-linux, kmod and ipvsadm, and is skipped without them. The guest reads the files
//! of this machine and has its own network. A copy of this program runs the test inside the guest.

mod guest;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use steadfast_targets::ipvs::{ForwardingMethod, Ipvs, IpvsError, RealServer, VirtualService};
use steadfast_targets::{
    DesiredState, Limits, Mirror, MirrorMemory, MirrorSettings, MirrorStatus, SkipReason, Step, Target,
};
use tokio::runtime;
use tokio::time::timeout;

use guest::{Result, as_guest, load, run_in_guest};

/// Timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(20);

const SERVICE: &str = "10.9.0.1:80";
const BACKEND_A: &str = "10.8.0.2:8001";
const BACKEND_B: &str = "10.8.0.3:8002";

#[test]
fn ipvs_reaches_desired_state() -> Result {
    run_in_guest("ipvs::guest_process")
}

/// Entry point of a copy of this program in the guest; not a test.
#[test]
fn guest_process() -> Result {
    as_guest(|modules| {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(check_in_guest(modules))
    })
}

async fn check_in_guest(modules: &OsStr) -> Result {
    check_missing_module_error().await;
    for module in ["ip_vs", "ip_vs_wrr", "ip_vs_rr", "ip_vs_wlc"] {
        load(modules, module)?;
    }
    check_missing_capability_error()?;
    check_missing_scheduler_error().await?;
    check_described_commands().await?;
    check_round_trip().await?;
    check_many_servers().await?;
    run(Command::new("ipvsadm").arg("-C"))?;
    check_traffic().await?;
    check_drain_timeout().await
}

async fn check_missing_module_error() {
    let error = web("wrr").read().await.expect_err("no IPVS yet");
    assert!(matches!(error, IpvsError::Absent) && error.to_string().contains("`modprobe ip_vs`"), "{error}");
}

/// Runs in its own thread, because dropped capabilities cannot be restored.
fn check_missing_capability_error() -> Result {
    let reader = thread::spawn(|| -> Result<_> {
        let mut sets = capabilities(None)?;
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets)?;
        let runtime = runtime::Builder::new_current_thread().build()?;
        Ok(runtime.block_on(web("wrr").read()))
    });
    let error = reader.join().map_err(|_| "the thread panicked")??.expect_err("refused");
    assert!(error.to_string().contains("the program needs CAP_NET_ADMIN"), "{error}");
    Ok(())
}

async fn check_missing_scheduler_error() -> Result {
    let error = web("mh").apply(&[add(BACKEND_A, 1)]).await.expect_err("no such scheduler");
    assert!(error.to_string().contains("`modprobe ip_vs_mh`"), "{error}");
    assert_eq!(ipvsadm_rules()?, [""; 0]);
    Ok(())
}

async fn check_described_commands() -> Result {
    let target = web("wrr");
    let change = Step::Change { name: BACKEND_A.to_owned(), from: masqueraded(1), to: masqueraded(7) };
    let remove = Step::Remove { name: BACKEND_B.to_owned(), value: masqueraded(1) };
    for steps in [vec![add(BACKEND_A, 1), add(BACKEND_B, 2)], vec![change, remove]] {
        let before = ipvsadm_rules()?;
        let lines = target.describe(&target.read().await?, &steps).join("\n");
        run(Command::new("sh").args(["-e", "-c", &lines]))?;
        let described_rules = ipvsadm_rules()?;
        run(Command::new("ipvsadm").arg("-C"))?;
        assert_ne!(described_rules, before);
        restore_rules(&before.join("\n"))?;
        target.apply(&steps).await?;
        assert_eq!(ipvsadm_rules()?, described_rules);
    }
    assert_eq!(ipvsadm_rules()?, ["-A -t 10.9.0.1:80 -s wrr", "-a -t 10.9.0.1:80 -r 10.8.0.2:8001 -m -w 7"]);
    // Another client was faster: removal of a missing server succeeds, and adding an existing server is reported.
    target.apply(&[Step::Remove { name: BACKEND_B.to_owned(), value: masqueraded(0) }]).await?;
    let error = target.apply(&[add(BACKEND_A, 1), add(BACKEND_B, 1)]).await.expect_err("the server exists");
    assert!(error.to_string().contains("another program added the same entry"), "{error}");
    assert!(target.read().await?.own.contains_key(BACKEND_B), "a rejected server delays no other");
    run(Command::new("ipvsadm").arg("-C"))?;
    Ok(())
}

async fn check_round_trip() -> Result {
    let service = VirtualService::udp("[fd00::1]:53".parse()?)?.scheduler("rr")?.persistent(60);
    let target = Ipvs::new(service);
    let all = [
        ("[fd00::2]:5353", RealServer::new(1, ForwardingMethod::Masquerade)),
        ("[fd00::3]:53", RealServer::new(65_535, ForwardingMethod::Direct)),
        ("[fd00::4]:53", RealServer::new(0, ForwardingMethod::Tunnel)),
    ];
    let own: BTreeMap<_, _> = all.into_iter().map(|(name, server)| (name.to_owned(), server)).collect();
    let steps: Vec<_> = own.iter().map(|(name, value)| Step::Add { name: name.clone(), value: *value }).collect();
    assert_eq!(target.read().await?.own, BTreeMap::new());
    target.apply(&steps).await?;
    assert_eq!(target.read().await?.own, own);
    assert_eq!(
        ipvsadm_rules()?,
        [
            "-A -u [fd00::1]:53 -s rr -p 60",
            "-a -u [fd00::1]:53 -r [fd00::2]:5353 -m -w 1",
            "-a -u [fd00::1]:53 -r [fd00::3]:53 -g -w 65535",
            "-a -u [fd00::1]:53 -r [fd00::4]:53 -i -w 0 --tun-type ipip",
        ]
    );
    run(Command::new("ipvsadm").arg("-C"))?;
    Ok(())
}

/// The service has more entries than the kernel returns in one message.
async fn check_many_servers() -> Result {
    let steps: Vec<_> =
        (0..1000).map(|number| add(&format!("10.8.{}.{}:80", number / 200, number % 200 + 1), 1)).collect();
    let target = web("wrr");
    target.apply(&steps).await?;
    assert_eq!(target.read().await?.own.len(), 1000);
    assert_eq!(ipvsadm_rules()?.len(), 1001);
    Ok(())
}

async fn check_traffic() -> Result {
    start_backends()?;
    // State before the mirror starts: a desired and an unwanted server, another scheduler, and a foreign service.
    let others = ["-A -u 10.9.0.1:53 -s rr", "-a -u 10.9.0.1:53 -r 10.8.0.2:53 -m -w 1"];
    let [own_service, a_once] = ["-A -t 10.9.0.1:80 -s wrr", "-a -t 10.9.0.1:80 -r 10.8.0.2:8001 -m -w 1"];
    restore_rules(&format!(
        "{}\n{}\n-A -t 10.9.0.1:80 -s rr\n-a -t 10.9.0.1:80 -r 10.8.0.2:8001 -m -w 1\n\
         -a -t 10.9.0.1:80 -r 10.8.0.9:8009 -m -w 1\n",
        others[0], others[1]
    ))?;
    let limits = Limits { share: 1.0, ..Limits::default() };
    let settings = MirrorSettings { limits, allow_empty: true, ..MirrorSettings::default() };
    let mirror = Mirror::start("web", web("wrr"), settings, MirrorMemory::volatile());
    mirror.set_desired(desired(&[(BACKEND_A, 1), (BACKEND_B, 1)]));
    wait_until_settled(&mirror, 2).await?;
    let b = |weight| format!("-a -t 10.9.0.1:80 -r 10.8.0.3:8002 -m -w {weight}");
    let all = |servers: &[&str]| [&[own_service][..], servers, &others].concat().join("\n");
    assert_eq!(ipvsadm_rules()?.join("\n"), all(&[a_once, &b(1)]));
    assert_eq!(count_responses(6), expected_counts(&[('a', 3), ('b', 3)]));

    mirror.set_desired(desired(&[(BACKEND_A, 1), (BACKEND_B, 3)]));
    wait_until_settled(&mirror, 2).await?;
    assert_eq!(ipvsadm_rules()?.join("\n"), all(&[a_once, &b(3)]), "a weight changes without a new server");
    assert_eq!(count_responses(8), expected_counts(&[('a', 2), ('b', 6)]));

    // The server is drained: existing connections stay open.
    let mut held = connect_to('b')?;
    mirror.set_desired(desired(&[(BACKEND_A, 1)]));
    wait_until(&mirror, |status| status.skipped.get(BACKEND_B) == Some(&SkipReason::InUse)).await?;
    assert_eq!(ipvsadm_rules()?.join("\n"), all(&[a_once, &b(0)]));
    assert_eq!(count_responses(4), expected_counts(&[('a', 4)]));
    assert_eq!(read_response(&mut held)?, 'b', "an existing connection stays open");
    drop(held);
    wait_until_settled(&mirror, 1).await?;
    assert_eq!(ipvsadm_rules()?.join("\n"), all(&[a_once]));
    // The server is in service again.
    mirror.set_desired(desired(&[(BACKEND_A, 1), (BACKEND_B, 1)]));
    wait_until_settled(&mirror, 2).await?;
    assert_eq!(count_responses(6), expected_counts(&[('a', 3), ('b', 3)]));

    // Another client removes everything, then changes the scheduler, a weight and a limit, and adds an unwanted server.
    run(Command::new("ipvsadm").arg("-C"))?;
    wait_until_settled(&mirror, 2).await?;
    assert_eq!(
        ipvsadm_rules()?.join("\n"),
        [own_service, a_once, &b(1)].join("\n"),
        "the mirror does not restore foreign services"
    );
    restore_rules(&others.join("\n"))?;
    let expected_state = (ipvsadm_rules()?, thresholds()?);
    for arguments in [
        "-E -t 10.9.0.1:80 -s rr -p 7",
        "-e -t 10.9.0.1:80 -r 10.8.0.3:8002 -m -w 1 -x 3 -y 2",
        "-e -t 10.9.0.1:80 -r 10.8.0.3:8002 -m -w 0",
        "-a -t 10.9.0.1:80 -r 10.8.0.9:8009 -m -w 1",
        "-d -t 10.9.0.1:80 -r 10.8.0.2:8001",
    ] {
        run(Command::new("ipvsadm").args(arguments.split(' ')))?;
        assert_ne!((ipvsadm_rules()?, thresholds()?), expected_state, "{arguments}");
        wait_until_settled(&mirror, 2).await?;
        assert_eq!((ipvsadm_rules()?, thresholds()?), expected_state, "{arguments}");
    }
    assert_eq!(count_responses(6), expected_counts(&[('a', 3), ('b', 3)]));

    // In doubt, no entry is removed. Without doubt, all entries are removed.
    let doubt = Some("the view is stale".into());
    mirror.set_desired(DesiredState { entries: BTreeMap::new(), doubt, ..DesiredState::default() });
    wait_until(&mirror, |status| status.skipped.len() == 2).await?;
    assert_eq!(ipvsadm_rules()?.join("\n"), all(&[a_once, &b(1)]));
    mirror.set_desired(desired(&[]));
    wait_until_settled(&mirror, 0).await?;
    assert_eq!(ipvsadm_rules()?.join("\n"), all(&[]));
    assert_eq!(count_responses(1), expected_counts(&[('-', 1)]));
    mirror.stop().await;
    Ok(())
}

async fn check_drain_timeout() -> Result {
    let limits = Limits { share: 1.0, ..Limits::default() };
    let drain = Duration::from_secs(1);
    let settings = MirrorSettings { limits, allow_empty: true, drain, ..MirrorSettings::default() };
    let mirror = Mirror::start("web", web("wrr"), settings, MirrorMemory::volatile());
    mirror.set_desired(desired(&[(BACKEND_A, 1)]));
    wait_until_settled(&mirror, 1).await?;
    let _held = connect_to('a')?;
    let before = Instant::now();
    mirror.set_desired(desired(&[]));
    wait_until_settled(&mirror, 0).await?;
    assert!(before.elapsed() >= drain, "{:?}", before.elapsed());
    mirror.stop().await;
    Ok(())
}

fn web(scheduler: &str) -> Ipvs {
    let service = VirtualService::tcp(SERVICE.parse().expect("an address")).expect("a service");
    Ipvs::new(service.scheduler(scheduler).expect("a name"))
}

fn masqueraded(weight: u16) -> RealServer {
    RealServer::new(weight, ForwardingMethod::Masquerade)
}

fn add(name: &str, weight: u16) -> Step<RealServer> {
    Step::Add { name: name.to_owned(), value: masqueraded(weight) }
}

fn desired(all: &[(&str, u16)]) -> DesiredState<RealServer> {
    DesiredState::new(all.iter().map(|(name, weight)| ((*name).to_owned(), masqueraded(*weight))).collect())
}

async fn wait_until(mirror: &Mirror<RealServer>, condition: impl FnMut(&MirrorStatus<RealServer>) -> bool) -> Result {
    let mut status = mirror.status();
    let waited = timeout(TIMEOUT, status.wait_for(condition)).await;
    waited.map_err(|_| format!("not within {TIMEOUT:?}: {:?}", mirror.status().borrow()))??;
    Ok(())
}

/// Waits for a later pass that finds the target settled with this number of `entries`.
async fn wait_until_settled(mirror: &Mirror<RealServer>, entries: usize) -> Result {
    let reads = mirror.status().borrow().reads;
    let is_settled = |status: &MirrorStatus<RealServer>| {
        // An earlier pass may still be running.
        let is_new = status.reads > reads + 1;
        is_new && status.settled && status.skipped.is_empty() && status.entries == entries
    };
    let compare_until_settled = async {
        loop {
            mirror.compare_now();
            let mut status = mirror.status();
            if let Ok(waited) = timeout(Duration::from_millis(100), status.wait_for(is_settled)).await {
                return waited.map(drop);
            }
        }
    };
    let waited = timeout(TIMEOUT, compare_until_settled).await;
    waited.map_err(|_| format!("not settled in {TIMEOUT:?}: {:?}", mirror.status().borrow()))??;
    Ok(())
}

/// Returns the IPVS configuration as saved by `ipvsadm`, in the order of its options.
fn ipvsadm_rules() -> Result<Vec<String>> {
    Ok(run(Command::new("ipvsadm").args(["-S", "-n"]))?.lines().map(|line| line.trim().to_owned()).collect())
}

/// Returns the connection limits, which `ipvsadm` does not save.
fn thresholds() -> Result<String> {
    run(Command::new("ipvsadm").args(["-Ln", "--thresholds"]))
}

/// Restores saved entries as another client.
fn restore_rules(saved: &str) -> Result {
    for line in saved.lines() {
        run(Command::new("ipvsadm").args(line.split(' ')))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    Err(format!("{command:?}: {} {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// Runs the backends. Each responds to a received byte with its own name.
fn start_backends() -> Result {
    for (address, name) in [(BACKEND_A, b"a"), (BACKEND_B, b"b")] {
        let listener = TcpListener::bind(address)?;
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                thread::spawn(move || {
                    while stream.read_exact(&mut [0]).is_ok() {
                        if stream.write_all(name).is_err() {
                            break;
                        }
                    }
                });
            }
        });
    }
    Ok(())
}

fn connect() -> io::Result<TcpStream> {
    let address: SocketAddr = SERVICE.parse().expect("an address");
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok(stream)
}

fn read_response(stream: &mut TcpStream) -> io::Result<char> {
    let mut name = [0];
    stream.write_all(b"?")?;
    stream.read_exact(&mut name)?;
    Ok(char::from(name[0]))
}

/// Counts the responses of each server in `times` requests through the service.
fn count_responses(times: usize) -> BTreeMap<char, usize> {
    let mut response_counts = BTreeMap::new();
    for _ in 0..times {
        let name = connect().and_then(|mut stream| read_response(&mut stream)).unwrap_or('-');
        *response_counts.entry(name).or_default() += 1;
    }
    response_counts
}

fn expected_counts(all: &[(char, usize)]) -> BTreeMap<char, usize> {
    all.iter().copied().collect()
}

/// Opens a connection through the service to the server `name`.
fn connect_to(name: char) -> Result<TcpStream> {
    for _ in 0..8 {
        let mut stream = connect()?;
        if read_response(&mut stream)? == name {
            return Ok(stream);
        }
    }
    Err(format!("{name} does not come up").into())
}
