//! DNS server with one zone on a free port and its own folder. Killed on drop.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use steadfast_targets::Target;
use steadfast_targets::dns::Zone;
use tokio::time::{sleep, timeout};

pub(crate) use super::dns_process::{DnsKind, MIRROR};
use super::dns_process::{DnsSettings, DnsZone};
use super::{Result, TIMEOUT};

/// Known key without permissions.
pub(crate) const OTHER_KEY: (&str, &str) = ("other", "b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgb3Q=");
/// Key that may transfer the zone, but not update it.
pub(crate) const READER_KEY: (&str, &str) = ("reader", "cmVhZGVyIHJlYWRlciByZWFkZXIgcmVhZGVyIHJlYWQ=");

const ZONE_FILE: &str = "\
$ORIGIN example.org.
$TTL 300
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
ns A 127.0.0.1
taken A 192.0.2.1
mail MX 10 mx.example.net.
foreign A 192.0.2.3
_steadfast.foreign 60 TXT \"steadfast:two\"
_steadfast.promised 60 TXT \"steadfast:two\"
";

const OTHER_ZONE_FILE: &str = "\
$ORIGIN example.net.
$TTL 300
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
ns A 127.0.0.1
";

/// Key in the format of `nsupdate -y`.
pub(crate) fn key_text(name: &str, secret: &str) -> String {
    format!("hmac-sha256:{name}:{secret}")
}

/// Zones and keys of the server.
const SERVER_SETTINGS: DnsSettings = DnsSettings {
    keys: &[OTHER_KEY, READER_KEY],
    zones: &[
        DnsZone { domain: "example.org", file: "zone", readers: &[READER_KEY.0] },
        DnsZone { domain: "example.net", file: "other", readers: &[READER_KEY.0] },
    ],
    ignores_file_serials: true,
};

impl DnsKind {
    /// Returns the available servers. A missing server is printed, or fails the test if skips are forbidden.
    pub(crate) fn available() -> Result<Vec<Self>> {
        let tools = ["dig", "nsupdate"].into_iter().find(|tool| find_program(tool).is_none());
        let mut available = Vec::new();
        for kind in [Self::Knot, Self::Bind] {
            match tools.or(Some(kind.program()).filter(|program| find_program(program).is_none())) {
                None => available.push(kind),
                Some(missing) if std::env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1") => {
                    return Err(format!(
                        "STEADFAST_REQUIRE_REFERENCE=1 allows no skip: there is no {missing} on the path"
                    )
                    .into());
                }
                Some(missing) => {
                    // Written to the terminal, because the harness captures the output of passing tests.
                    let message = format!("skipped: {kind:?}: there is no {missing} on the path\n");
                    Write::write_all(&mut std::io::stderr(), message.as_bytes())?;
                }
            }
        }
        Ok(available)
    }
}

fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

pub(crate) struct RunningServer {
    kind: DnsKind,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
    process: Option<Child>,
}

impl RunningServer {
    pub(crate) async fn start(kind: DnsKind, name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("steadfast-{kind:?}-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        std::fs::write(folder.join("conf"), kind.configuration(&folder, address.port(), &SERVER_SETTINGS))?;
        std::fs::write(folder.join("zone"), ZONE_FILE)?;
        std::fs::write(folder.join("other"), OTHER_ZONE_FILE)?;
        let mut running = Self { kind, folder, address, process: None };
        running.restart().await?;
        Ok(running)
    }

    pub(crate) async fn restart(&mut self) -> Result {
        let program = find_program(self.kind.program()).ok_or("the program is missing")?;
        self.process = Some(self.kind.spawn(&program, &self.folder)?);
        let target = self.target("nobody")?;
        let ready = async {
            while target.read().await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = timeout(TIMEOUT, ready).await;
        Ok(waited.map_err(|_| format!("{:?} does not respond within {TIMEOUT:?}", self.kind))?)
    }

    /// Kills the process without warning.
    pub(crate) fn stop(&mut self) -> Result {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Deletes all data of the server except for the initial zone.
    pub(crate) fn reset_data(&self) -> Result {
        for file in std::fs::read_dir(&self.folder)? {
            let path = file?.path();
            if path.is_dir() {
                std::fs::remove_dir_all(path)?;
            } else if path.file_name().is_some_and(|name| name != "conf") {
                std::fs::remove_file(path)?;
            }
        }
        std::fs::write(self.folder.join("other"), OTHER_ZONE_FILE)?;
        Ok(std::fs::write(self.folder.join("zone"), ZONE_FILE)?)
    }

    pub(crate) fn target(&self, mark: &str) -> Result<Zone> {
        self.zone_target("example.org", mark)
    }

    pub(crate) fn zone_target(&self, zone: &str, mark: &str) -> Result<Zone> {
        Ok(Zone::new(&self.address.to_string(), zone, key_text(MIRROR.0, MIRROR.1).parse()?, mark)?)
    }

    /// Returns the response, one line per record, without names and classes; addresses of a name are sorted.
    pub(crate) fn dig(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let records = self.dig_records(arguments)?;
        let mut lines: Vec<_> = records.iter().map(|line| line.split_once(' ').map_or("", |(_, rest)| rest)).collect();
        if lines.iter().all(|line| !line.contains(" CNAME ")) {
            lines.sort_unstable();
        }
        Ok(lines.into_iter().map(str::to_owned).collect())
    }

    /// Returns all records of the zone except for the serial.
    pub(crate) fn zone(&self) -> Result<BTreeSet<String>> {
        let lines = self.dig_records(&["-y", &key_text(MIRROR.0, MIRROR.1), "example.org", "AXFR"])?;
        // The ownership record is not an entry of the mirror.
        let is_content = |line: &String| !line.contains(" SOA ") && !line.contains("._steadfast-owner.");
        Ok(lines.into_iter().filter(is_content).collect())
    }

    /// Returns name, TTL, type and data of each record.
    fn dig_records(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let mut command = Command::new("dig");
        command.args(["@127.0.0.1", "-p", &self.address.port().to_string(), "+tcp", "+noall", "+answer", "+onesoa"]);
        let output = command.args(arguments).output()?;
        let text = String::from_utf8(output.stdout)?;
        if !output.status.success() || text.contains("failed") {
            return Err(format!("dig {arguments:?}: {text}").into());
        }
        let lines =
            text.lines().filter(|line| !line.starts_with(';') && !line.is_empty() && !line.contains("\tTSIG\t"));
        let lines =
            lines.map(|line| line.split_whitespace().filter(|word| *word != "IN").collect::<Vec<_>>().join(" "));
        Ok(lines.filter(|line| !line.contains(" TSIG ")).collect())
    }

    /// Changes the zone as another client.
    pub(crate) fn nsupdate(&self, lines: &[&str]) -> Result {
        let server = format!("server 127.0.0.1 {}", self.address.port());
        let lines: Vec<_> = [&*server, "zone example.org"].iter().chain(lines).map(|line| (*line).to_owned()).collect();
        self.run_nsupdate(&lines)
    }

    /// Passes these lines to nsupdate unchanged.
    pub(crate) fn run_nsupdate(&self, lines: &[String]) -> Result {
        let mut command = Command::new("nsupdate");
        command.args(["-v", "-y", &key_text(MIRROR.0, MIRROR.1)]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("a pipe")?.write_all((lines.join("\n") + "\n").as_bytes())?;
        let output = child.wait_with_output()?;
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("nsupdate of {:?} {lines:?}: {}", self.kind, String::from_utf8_lossy(&output.stderr)).into())
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
