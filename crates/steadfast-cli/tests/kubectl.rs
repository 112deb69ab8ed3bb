//! A real kubectl on `steadfast serve`: it creates, reads, applies, patches, labels, deletes and watches.
//!
//! Skipped, and said so, where there is no kubectl or none of a version whose words are known; see `docs/testing.md`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
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

/// How the script ends where it was never tried with this kubectl.
const UNTRIED: i32 = 77;

/// What kubectl's script says on the server of `kubeconfig`; `None` where there is no bash to run it.
fn script(kubectl: &Path, kubeconfig: &Path) -> io::Result<Option<Output>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/kubectl/run");
    let run = Command::new("bash").arg(script).arg(kubeconfig).env("KUBECTL", kubectl).stdin(Stdio::null()).output();
    match run {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        run => run.map(Some),
    }
}

#[test]
fn a_real_kubectl_finds_on_serve_what_it_finds_on_a_real_server() -> Result<(), WorldError> {
    let Some(kubectl) = kubectl()? else { return skip("there is no kubectl; $KUBECTL names one") };
    let mut served = Served::start()?;
    let Some(run) = script(&kubectl, &served.kubeconfig)? else { return skip("there is no bash") };
    let told = String::from_utf8_lossy(&run.stdout);
    let complaints = String::from_utf8_lossy(&run.stderr);
    if run.status.code() == Some(UNTRIED) {
        return skip(complaints.trim());
    }
    assert!(run.status.success(), "{told}\n{complaints}");
    assert!(told.lines().filter(|line| line.starts_with("ok ")).count() > 300, "it checked something:\n{told}");
    assert!(served.program.try_wait()?.is_none(), "it serves on");
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_kubectl_of_a_version_that_was_never_tried_is_not_held_to_the_words_of_another() -> Result<(), WorldError> {
    use std::os::unix::fs::PermissionsExt;

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (kubectl, kubeconfig) = (folder.join("kubectl-of-the-future"), folder.join("no-server.yaml"));
    fs::write(&kubeconfig, "")?;
    fs::write(&kubectl, "#!/bin/sh\necho '{\"clientVersion\": {\"gitVersion\": \"v1.99.0\"}}'\n")?;
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755))?;
    let Some(run) = script(&kubectl, &kubeconfig)? else { return skip("there is no bash") };
    let complaints = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(UNTRIED), "{complaints}");
    assert!(complaints.contains("1.99"), "{complaints}");
    Ok(())
}
