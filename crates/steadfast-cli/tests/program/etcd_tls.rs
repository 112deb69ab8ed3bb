//! A real etcd with TLS, client certificates and users, whose certificates are replaced while the program runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::external_systems::{find_program, free_port};
use crate::haproxy::eventually;
use crate::run::{KillOnDrop, finish, signal, start, stderr_text};

/// An etcd that accepts only clients with a certificate, and only users with a password.
struct SecureEtcd {
    url: String,
    folder: PathBuf,
    arguments: Vec<OsString>,
    process: KillOnDrop,
}

impl SecureEtcd {
    fn start(folder: &Path) -> Option<Self> {
        let (program, _) = (find_program("etcd")?, find_program("etcdctl")?);
        issue_certificates(folder);
        let (url, peer) = (format!("https://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
        let mut arguments: Vec<OsString> = vec!["--data-dir".into(), folder.join("data").into()];
        arguments.extend(["--listen-client-urls", &url, "--advertise-client-urls", &url].map(OsString::from));
        arguments.extend(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer].map(OsString::from));
        arguments.extend(["--initial-cluster".into(), format!("default={peer}").into()]);
        for (flag, file) in
            [("--cert-file", "server.pem"), ("--key-file", "server.key"), ("--trusted-ca-file", "ca.pem")]
        {
            arguments.extend([flag.into(), folder.join(file).into()]);
        }
        arguments.push("--client-cert-auth".into());
        let process = KillOnDrop(spawn_etcd(&program, &arguments));
        let etcd = Self { url, folder: folder.to_owned(), arguments, process };
        eventually("etcd", || etcd.etcdctl(&["endpoint", "health"]).is_some());
        for command in [
            &["user", "add", "root:of-root"][..],
            &["user", "grant-role", "root", "root"],
            &["user", "add", "notify:of-notify"],
            &["role", "add", "services"],
            // The ownership record is outside the prefix.
            &["role", "grant-permission", "services", "--prefix=true", "readwrite", "/"],
            &["user", "grant-role", "notify", "services"],
            &["auth", "enable"],
        ] {
            assert!(etcd.etcdctl(command).is_some(), "etcdctl {command:?} failed");
        }
        Some(etcd)
    }

    /// Stops etcd, issues all certificates by another authority, and restarts etcd with its data.
    fn replace_certificates(&mut self) {
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
        issue_certificates(&self.folder);
        self.process =
            KillOnDrop(spawn_etcd(&find_program("etcd").expect("the program is installed"), &self.arguments));
        eventually("etcd with other certificates", || self.keys().is_some());
    }

    fn keys(&self) -> Option<Vec<String>> {
        let text = self.etcdctl(&["--user", "root:of-root", "get", "/services/", "--prefix", "--keys-only"])?;
        Some(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    fn etcdctl(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url]);
        for (flag, file) in [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")] {
            command.arg(flag).arg(self.folder.join(file));
        }
        let output = command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn spawn_etcd(program: &Path, arguments: &[OsString]) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the process starts")
}

/// Creates a new authority and the certificates of server and client.
fn issue_certificates(folder: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name.push(DnType::CommonName, "authority of the test");
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("an authority");
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).expect("the folder is writable");
    write("ca.pem", &authority.pem());
    for name in ["server", "client"] {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
        // etcd treats the common name of a certificate as a user name. Its gateway also presents the server's
        // certificate, so neither certificate has a common name.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        write(&format!("{name}.pem"), &certificate.pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
}

#[test]
fn replaced_etcd_certificates_apply_without_reload() {
    let folder = std::env::temp_dir().join(format!("steadfast-etcd-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder is writable");
    let Some(mut etcd) = SecureEtcd::start(&folder) else { return };
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(ApiServer::start()).expect("the server starts");
    let create = |name: &str| {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}});
        server.create(&object).expect("a config map");
    };
    create("first");
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).expect("the folder is writable");
    write("kubeconfig", &server.kubeconfig());
    write("password", "of-notify\n");
    let text = format!(
        "[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.registry]\ncompare = \"2s\"\n\
         etcd = {{endpoints = [\"{}\"], prefix = \"/services/\", mark = \"m\", user = \"notify\", password = {{file = \"password\"}}, \
         ca_file = \"ca.pem\", certificate_file = \"client.pem\", key_file = \"client.key\"}}\n\
         [[rules]]\nname = \"maps\"\nresources = [\"configmaps\"]\nto = [\"registry\"]\n\
         send = \"{{'key': object.metadata.name, 'value': 'v'}}\"\n",
        etcd.url
    );
    write("notify.toml", &text);
    let configuration = folder.join("notify.toml").display().to_string();
    let program = start(&["notify", "-c", &configuration]);
    eventually("the key", || etcd.keys().is_some_and(|keys| keys == ["/services/first"]));
    etcd.replace_certificates();
    create("second");
    // The files are read every ten seconds.
    eventually("both keys", || etcd.keys().is_some_and(|keys| keys == ["/services/first", "/services/second"]));
    signal(&program, "TERM");
    let output = finish(program);
    let stderr = stderr_text(&output);
    assert!(stderr.contains("sink registry: uses its replaced secret or certificate"), "{stderr}");
    assert!(!stderr.contains("of-notify"), "{stderr}");
    drop(etcd);
    std::fs::remove_dir_all(folder).expect("the folder exists");
}
