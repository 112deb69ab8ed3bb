//! A real kubectl on `steadfast serve`: it creates, reads, applies, patches, labels, deletes and watches.
//!
//! Skipped, and said so, where there is no kubectl; see `docs/testing.md`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs, io};

use steadfast_testing::WorldError;
use steadfast_testing::reference::{kubectl, skip};

/// `steadfast serve`, until dropped.
struct Served {
    program: Child,
    kubeconfig: PathBuf,
}

impl Served {
    fn start() -> io::Result<Self> {
        let kubeconfig = env::temp_dir().join(format!("steadfast-served-{}.yaml", std::process::id()));
        let mut program = Command::new(env!("CARGO_BIN_EXE_steadfast"))
            .args(["serve", "--kubeconfig"])
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = program.stdout.take();
        let served = Self { program, kubeconfig };
        for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
            if line?.starts_with("kubeconfig: ") {
                return Ok(served);
            }
        }
        Err(io::Error::other("it ended before it said where its kubeconfig is"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        let _ = fs::remove_file(&self.kubeconfig);
    }
}

#[test]
fn a_real_kubectl_finds_on_serve_what_it_finds_on_a_real_server() -> Result<(), WorldError> {
    let Some(kubectl) = kubectl()? else { return skip("there is no kubectl; $KUBECTL names one") };
    let mut served = Served::start()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/kubectl/run");
    let run = Command::new("bash")
        .arg(script)
        .arg(&served.kubeconfig)
        .env("KUBECTL", kubectl)
        .stdin(Stdio::null())
        .output()?;
    let told = String::from_utf8_lossy(&run.stdout);
    let complaints = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}\n{complaints}");
    assert!(told.lines().filter(|line| line.starts_with("ok ")).count() > 40, "it checked something:\n{told}");
    assert!(served.program.try_wait()?.is_none(), "it serves on");
    Ok(())
}
