//! A real kubectl on `steadfast serve`: it creates, reads, applies, patches, labels, deletes and watches.
//!
//! If no kubectl of a tested version is installed, the tests report this and are skipped; see
//! `docs/development/testing.md`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{env, fs, io};

use steadfast_testing::TestError;
use steadfast_testing::reference::{kubectl, skip};

/// `steadfast serve`, until dropped.
struct RunningServer {
    program: Child,
    kubeconfig: PathBuf,
}

impl RunningServer {
    fn start(name: &str, extra_arguments: &[&str]) -> io::Result<Self> {
        let kubeconfig = env::temp_dir().join(format!("steadfast-{name}-{}.yaml", std::process::id()));
        let mut program = Command::new(env!("CARGO_BIN_EXE_steadfast"))
            .args(["serve", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(extra_arguments)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = program.stdout.take();
        let server = Self { program, kubeconfig };
        for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
            if line?.starts_with("kubeconfig: ") {
                return Ok(server);
            }
        }
        Err(io::Error::other("the program ended before it printed the path of its kubeconfig"))
    }
}

impl RunningServer {
    /// Runs kubectl on this server. Returns its success, standard output and standard error.
    fn kubectl(&self, kubectl: &Path, arguments: &[&str]) -> io::Result<(bool, String, String)> {
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments).stdin(Stdio::null());
        let output = command.output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        let _ = fs::remove_file(&self.kubeconfig);
    }
}

/// Exit code of the script for an untested version of kubectl.
const UNTESTED_EXIT_CODE: i32 = 77;

/// Runs the kubectl script on the server of `kubeconfig`; returns `None` without bash.
fn run_script(kubectl: &Path, kubeconfig: &Path) -> io::Result<Option<Output>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/kubectl/run");
    let output = Command::new("bash").arg(script).arg(kubeconfig).env("KUBECTL", kubectl).stdin(Stdio::null()).output();
    match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        output => output.map(Some),
    }
}

#[test]
fn kubectl_script_passes_on_serve() -> Result<(), TestError> {
    let Some(kubectl) = kubectl()? else { return Ok(skip("there is no kubectl; $KUBECTL names one")?) };
    let mut server = RunningServer::start("served", &[])?;
    let Some(output) = run_script(&kubectl, &server.kubeconfig)? else { return Ok(skip("there is no bash")?) };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(UNTESTED_EXIT_CODE) {
        return Ok(skip(stderr.trim())?);
    }
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(
        stdout.lines().filter(|line| line.starts_with("ok ")).count() > 300,
        "more than 300 checks passed:\n{stdout}"
    );
    assert!(server.program.try_wait()?.is_none(), "the server still runs");
    Ok(())
}

/// Creates a kustomization of a namespace and its objects.
fn kustomization() -> io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kustomization");
    fs::create_dir_all(&folder)?;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: b}\n";
    let kustomization = "namespace: shop\nnamePrefix: dev-\nresources: [map.yaml, namespace.yaml]\n\
               configMapGenerator: [{name: settings, literals: [a=b]}]\n";
    for (name, text) in [("namespace.yaml", namespace), ("map.yaml", map), ("kustomization.yaml", kustomization)] {
        fs::write(folder.join(name), text)?;
    }
    Ok(folder)
}

#[test]
fn kubectl_deletes_kustomization_and_namespace() -> Result<(), TestError> {
    let Some(kubectl) = kubectl()? else { return Ok(skip("there is no kubectl; $KUBECTL names one")?) };
    let folder = kustomization()?;
    let folder = folder.to_str().ok_or("the target's path is text")?;
    let server = RunningServer::start("kustomized", &[])?;
    let (applied, _, reason) = server.kubectl(&kubectl, &["apply", "-k", folder])?;
    assert!(applied, "{reason}");
    // kubectl deletes the namespace first, then each object separately.
    let (deleted, stdout, reason) = server.kubectl(&kubectl, &["delete", "-k", folder])?;
    assert!(deleted, "{stdout}\n{reason}");
    assert_eq!(stdout.lines().filter(|line| line.contains("deleted")).count(), 3, "{stdout}");
    let (found, _, reason) = server.kubectl(&kubectl, &["get", "namespace", "shop"])?;
    assert!(!found && reason.contains("NotFound"), "{reason}");
    Ok(())
}

#[test]
fn kubectl_waits_for_namespace_deletion() -> Result<(), TestError> {
    let Some(kubectl) = kubectl()? else { return Ok(skip("there is no kubectl; $KUBECTL names one")?) };
    let server = RunningServer::start("ending", &[])?;
    for arguments in [&["create", "namespace", "team"][..], &["create", "configmap", "a", "-n", "team"]] {
        let (is_created, _, reason) = server.kubectl(&kubectl, arguments)?;
        assert!(is_created, "{reason}");
    }
    let (started, _, reason) = server.kubectl(&kubectl, &["delete", "namespace", "team", "--wait=false"])?;
    assert!(started, "{reason}");
    let (_, phase, _) = server.kubectl(&kubectl, &["get", "namespace", "team", "-o", "jsonpath={.status.phase}"])?;
    assert_eq!(phase, "Terminating");
    let (created, _, reason) = server.kubectl(&kubectl, &["create", "configmap", "late", "-n", "team"])?;
    assert!(!created && reason.contains("because it is being terminated"), "{reason}");
    let (is_deleted, _, reason) = server.kubectl(&kubectl, &["delete", "namespace", "team"])?;
    assert!(is_deleted, "{reason}");
    let (found, _, reason) = server.kubectl(&kubectl, &["get", "namespace", "team"])?;
    assert!(!found && reason.contains("NotFound"), "{reason}");
    Ok(())
}

#[test]
fn kubectl_prints_webhook_warning() -> Result<(), TestError> {
    let Some(kubectl) = kubectl()? else { return Ok(skip("there is no kubectl; $KUBECTL names one")?) };
    let webhook = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n\
                   metadata: {name: checks}\nwebhooks: []\n";
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl-webhook.yaml");
    fs::write(&file, webhook)?;
    let server = RunningServer::start("warning", &[])?;
    let (applied, _, error_output) =
        server.kubectl(&kubectl, &["apply", "-f", file.to_str().ok_or("the path is not valid UTF-8")?])?;
    assert!(
        applied && error_output.contains("Warning: ") && error_output.contains("this server calls no webhooks"),
        "{error_output}"
    );
    Ok(())
}

#[cfg(unix)]
#[test]
fn untested_kubectl_version_is_skipped() -> Result<(), TestError> {
    use std::os::unix::fs::PermissionsExt;

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (kubectl, kubeconfig) = (folder.join("kubectl-of-the-future"), folder.join("no-server.yaml"));
    fs::write(&kubeconfig, "")?;
    fs::write(&kubectl, "#!/bin/sh\necho '{\"clientVersion\": {\"gitVersion\": \"v1.99.0\"}}'\n")?;
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755))?;
    let Some(output) = run_script(&kubectl, &kubeconfig)? else { return Ok(skip("there is no bash")?) };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(UNTESTED_EXIT_CODE), "{stderr}");
    assert!(stderr.contains("1.99"), "{stderr}");
    Ok(())
}
