//! `steadfast doctor` on the reference, directly and through proxies.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use kube::Client;
use serde_json::Value;
use steadfast_testing::TestError;
use steadfast_testing::proxy::FaultProxy;
use steadfast_testing::reference::Reference;
use tokio::process::Command;

use crate::changes::keep_changing;
use crate::misbehaving_proxy::MisbehavingProxy;

/// Returns the names of the checks that have findings of this severity, each name once.
fn checks<'a>(report: &'a Value, severity: &str) -> Vec<&'a str> {
    let findings = report["findings"].as_array().into_iter().flatten();
    let mut checks: Vec<&str> = findings
        .filter(|finding| finding["severity"] == severity)
        .filter_map(|finding| finding["check"].as_str())
        .collect();
    checks.dedup();
    checks
}

/// Runs the program, and returns its report.
async fn diagnose(kubeconfig: &Path) -> Result<Value, TestError> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
    command.args(["doctor", "configmaps", "-o", "json", "--kubeconfig"]).arg(kubeconfig);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_finds_proxies_that_misbehave() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let client = Client::try_from(reference.kube_config().await?)?;
    keep_changing(client.clone(), &["changing"]).await?;

    let direct = diagnose(&reference.kubeconfig()).await?;
    assert_eq!((checks(&direct, "failure"), checks(&direct, "warning")), (vec![], vec![]), "{direct:#}");

    let old = MisbehavingProxy::start_with_old_protocol(client).await?;
    let by_old = reference.kubeconfig().with_file_name("by-old-proxy");
    fs::write(&by_old, old.kubeconfig())?;
    let report = diagnose(&by_old).await?;
    assert_eq!(checks(&report, "failure"), Vec::<&str>::new(), "{report:#}");
    for check in ["proxies", "streamed lists", "bookmarks"] {
        assert!(checks(&report, "warning").contains(&check), "{check}: {report:#}");
    }

    let frozen = FaultProxy::start([reference.address(0)])?;
    frozen.faults().freeze(true);
    let by_frozen = reference.kubeconfig().with_file_name("by-frozen-proxy");
    let (server, proxy) = (reference.address(0).to_string(), frozen.address().to_string());
    fs::write(&by_frozen, fs::read_to_string(reference.kubeconfig())?.replace(&server, &proxy))?;
    let report = diagnose(&by_frozen).await?;
    assert!(checks(&report, "failure").contains(&"response"), "{report:#}");
    assert!(checks(&report, "not-checked").contains(&"streamed lists"), "{report:#}");
    Ok(())
}
