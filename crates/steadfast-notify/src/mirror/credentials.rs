//! Files with credentials of a mirror, which may be rotated while the mirror runs.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{Context, SHA256};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::config::secret::SecretFrom;
use crate::config::sinks::SinkConfig;

/// Interval between reads of the files. The kubelet updates mounted secrets once per minute.
const READ_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of bytes to read from a file. Certificates and keys are much smaller.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Files of a mirror's credentials, with a hash of the contents at the last read.
#[derive(Clone, Debug, Default)]
pub(super) struct Credentials {
    files: Vec<PathBuf>,
    hash: Vec<u8>,
}

impl Credentials {
    /// Reads the files of `sink`. Relative paths start at `folder`. Blocks while reading.
    pub(super) fn read(sink: &SinkConfig, folder: &Path) -> Self {
        let files: Vec<_> = credential_files(sink).into_iter().map(|file| folder.join(file)).collect();
        let hash = hash_files(&files);
        Self { files, hash }
    }

    /// Waits until the contents differ from the last read, and records the new contents.
    pub(super) async fn wait_for_change(&mut self) {
        if self.files.is_empty() {
            return std::future::pending().await;
        }
        loop {
            sleep(READ_INTERVAL).await;
            let files = self.files.clone();
            match spawn_blocking(move || hash_files(&files)).await {
                // Compared by content: Kubernetes replaces mounted Secrets through symbolic links, so modification
                // times are unreliable.
                Ok(hash) if hash != self.hash => {
                    self.hash = hash;
                    return;
                }
                _ => {}
            }
        }
    }
}

/// Returns the files of `sink` that are only read while opening the mirror.
fn credential_files(sink: &SinkConfig) -> Vec<&Path> {
    let mut files: Vec<&Path> = Vec::new();
    if let Some(dns) = &sink.dns {
        files.extend(file_of(&dns.secret));
    }
    if let Some(etcd) = &sink.etcd {
        // The password is read again for each login.
        files.extend(
            [&etcd.ca_file, &etcd.certificate_file, &etcd.key_file].into_iter().flatten().map(PathBuf::as_path),
        );
    }
    if let Some(registry) = &sink.registry {
        let certificates = [&registry.ca_file, &registry.certificate_file, &registry.key_file];
        files.extend(certificates.into_iter().flatten().map(PathBuf::as_path));
        files.extend(registry.secret_headers.values().filter_map(file_of));
    }
    files
}

fn file_of(secret: &SecretFrom) -> Option<&Path> {
    match secret {
        SecretFrom::File(path) => Some(path),
        // The environment of a process does not change.
        SecretFrom::Env(_) => None,
    }
}

/// Returns a hash of the contents. Unreadable and empty files have different hashes.
fn hash_files(files: &[PathBuf]) -> Vec<u8> {
    let mut context = Context::new(&SHA256);
    for file in files {
        match read_file(file) {
            Ok(bytes) => {
                // The length separates the contents of consecutive files.
                context.update(&bytes.len().to_be_bytes());
                context.update(&bytes);
            }
            Err(_) => context.update(&[0xff]),
        }
    }
    context.finish().as_ref().to_vec()
}

fn read_file(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Test timeout, longer than two read intervals.
    const TIMEOUT: Duration = Duration::from_secs(25);

    fn parse(text: &str) -> SinkConfig {
        toml::from_str(text).expect("a sink")
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("steadfast-credentials-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_zone_secret_is_detected() {
        let folder = folder("secret");
        let write = |text: &str| std::fs::write(folder.join("key"), text).expect("a file");
        write("hmac-sha256:a:c2VjcmV0");
        let sink =
            parse("dns = {server = \"127.0.0.1\", zone = \"example.org\", secret = {file = \"key\"}, mark = \"m\"}");
        let mut credentials = Credentials::read(&sink, &folder);
        assert!(timeout(TIMEOUT, credentials.wait_for_change()).await.is_err(), "no file has changed");
        write("hmac-sha256:a:b3RoZXI=");
        timeout(TIMEOUT, credentials.wait_for_change()).await.expect("the secret has changed");
        assert!(timeout(TIMEOUT, credentials.wait_for_change()).await.is_err(), "a change is detected once");
        std::fs::remove_file(folder.join("key")).expect("a file");
        timeout(TIMEOUT, credentials.wait_for_change()).await.expect("the secret is missing");
        std::fs::remove_dir_all(folder).expect("a folder");
    }

    #[test]
    fn etcd_password_file_is_not_watched() {
        let sink = parse(
            "etcd = {endpoints = [\"https://127.0.0.1\"], prefix = \"/a/\", mark = \"m\", user = \"u\", \
             password = {file = \"password\"}, ca_file = \"ca\", certificate_file = \"crt\", key_file = \"key\"}",
        );
        assert_eq!(credential_files(&sink), ["ca", "crt", "key"].map(Path::new));
        let sink = parse(
            "registry = {url = \"https://127.0.0.1/{key}\", list = \"https://127.0.0.1/\", mark = \"m\", secret_headers = {authorization = {file = \"token\"}, x = {env = \"X\"}}}",
        );
        assert_eq!(credential_files(&sink), [Path::new("token")]);
    }
}
