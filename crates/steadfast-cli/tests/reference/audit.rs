//! `steadfast audit` of four endpoints of the reference, three of which misbehave.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use steadfast_testing::TestError;
use steadfast_testing::proxy::FaultProxy;
use steadfast_testing::reference::Reference;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::changes::keep_changing;
use crate::misbehaving_proxy::MisbehavingProxy;

/// Maximum time until a finding on a busy machine. The tests of `steadfast-audit` check the exact bounds in virtual
/// time.
const FINDING_TIMEOUT: Duration = Duration::from_secs(180);

/// Changed object whose records one proxy loses.
const LOST: &str = "lost-by-one-proxy";

/// Running audit; killed when dropped.
struct RunningAudit {
    _program: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl RunningAudit {
    fn start(kubeconfig: &str, endpoints: &[String]) -> Result<Self, TestError> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command.args(["audit", "configmaps", "--period", "20s", "-o", "json", "--kubeconfig", kubeconfig]);
        for endpoint in endpoints {
            command.args(["--endpoint", endpoint]);
        }
        let mut program = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let lines = BufReader::new(program.stdout.take().ok_or("no stdout")?).lines();
        Ok(Self { _program: program, lines })
    }

    /// Reads findings until each of `expected`, a finding and its endpoint, has `state`. The start of any other finding
    /// is an error.
    async fn read_until(&mut self, state: &str, expected: &[(&str, &str)]) -> Result<(), TestError> {
        let mut missing = expected.to_vec();
        while !missing.is_empty() {
            let line = timeout(FINDING_TIMEOUT, self.lines.next_line()).await;
            let line = line.map_err(|_| format!("not {state}: {missing:?}"))??.ok_or("the audit ended")?;
            let finding: Value = serde_json::from_str(&line)?;
            let is_key = |key: &(&str, &str)| finding["finding"] == key.0 && finding["endpoint"] == key.1;
            if finding["state"] == "Started" && !expected.iter().any(is_key) {
                return Err(format!("unexpected: {line}").into());
            }
            if finding["state"] == state {
                missing.retain(|key| !is_key(key));
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_finds_endpoints_that_misbehave() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let client = kube::Client::try_from(reference.kube_config().await?)?;
    keep_changing(client.clone(), &["changing", LOST]).await?;
    let healthy = MisbehavingProxy::start(client.clone(), LOST).await?;
    let stalled = MisbehavingProxy::start(client.clone(), LOST).await?;
    let lossy = MisbehavingProxy::start(client, LOST).await?;
    let frozen = FaultProxy::start([healthy.address()])?;
    let addresses = [healthy.address(), stalled.address(), lossy.address(), frozen.address()];
    let endpoints = addresses.map(|address| format!("http://{address}"));
    let kubeconfig = reference.kubeconfig().with_file_name("by-proxies");
    fs::write(&kubeconfig, healthy.kubeconfig())?;

    let mut audit = RunningAudit::start(&kubeconfig.display().to_string(), &endpoints)?;
    // The audit has opened its watches when a change is delivered by all proxies.
    for proxy in [&healthy, &stalled, &lossy] {
        timeout(FINDING_TIMEOUT, proxy.until_watched()).await??;
    }
    lossy.lose_records();
    stalled.stall_open_watches();
    frozen.faults().freeze(true);
    let [_, stalled, lossy, frozen_name] = addresses.map(|address| address.to_string());
    let expected = [("stalled-stream", &*stalled), ("lost-events", &*lossy), ("unresponsive", &*frozen_name)];
    audit.read_until("Started", &expected).await?;

    frozen.faults().heal();
    audit.read_until("Ended", &[("unresponsive", &frozen_name)]).await
}
