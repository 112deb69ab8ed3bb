//! A real DNS server with its own folder, Knot or BIND; read and changed by the tools of BIND.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;

pub(crate) use crate::dns_process::DnsKind;
use crate::dns_process::{DnsSettings, DnsZone};
use crate::external_systems::{find_program, free_port, tool_output};
use crate::haproxy::eventually;

/// TSIG key for updates and reads of the zone, in the syntax of `nsupdate` and `dig`.
pub(crate) const KEY: &str = "hmac-sha256:mirror:bWlycm9yIG1pcnJvciBtaXJyb3IgbWlycm9yIG1pcnI=";

const ZONE: &str = "$ORIGIN example.org.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\n";

/// The zone, without further keys. A restored zone file keeps its serial.
const SETTINGS: DnsSettings = DnsSettings {
    keys: &[],
    zones: &[DnsZone { domain: "example.org", file: "zone", readers: &[] }],
    ignores_file_serials: false,
};

/// Returns BIND for an odd seed, and Knot for an even one.
pub(crate) fn kind_of_seed(seed: u64) -> DnsKind {
    if seed % 2 == 1 { DnsKind::Bind } else { DnsKind::Knot }
}

/// A DNS server with the zone `example.org`; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct DnsServer {
    kind: DnsKind,
    pub(crate) port: u16,
    folder: PathBuf,
    process: Mutex<Child>,
}

impl DnsServer {
    pub(crate) fn start(folder: &Path, kind: DnsKind) -> Option<Self> {
        let (program, _) = (find_program(kind.program())?, find_program("dig")?);
        let folder = folder.join("dns");
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let port = free_port();
        std::fs::write(folder.join("conf"), kind.configuration(&folder, port, &SETTINGS))
            .expect("the folder is writable");
        std::fs::write(folder.join("zone"), ZONE).expect("the folder is writable");
        let process = Mutex::new(kind.spawn(&program, &folder).expect("the process starts"));
        let server = Self { kind, port, folder, process };
        eventually("the zone", || server.names().is_some());
        Some(server)
    }

    /// Kills the server, restores the initial zone with its serial number, and restarts the server.
    pub(crate) fn restore(&self) {
        let mut process = self.process.lock();
        let _ = process.kill();
        let _ = process.wait();
        // Removes the journals with later changes: Knot has two folders, and BIND has one file.
        for state in ["journal", "timers"] {
            let _ = std::fs::remove_dir_all(self.folder.join(state));
        }
        let _ = std::fs::remove_file(self.folder.join("zone.jnl"));
        std::fs::write(self.folder.join("zone"), ZONE).expect("the folder is writable");
        let program = find_program(self.kind.program()).expect("the program is installed");
        *process = self.kind.spawn(&program, &self.folder).expect("the process starts");
        eventually("the zone", || self.names().is_some());
    }

    /// Returns the names with an address; `None` if the server does not respond.
    pub(crate) fn names(&self) -> Option<BTreeSet<String>> {
        let text = self.transfer()?;
        let records = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let addresses = records.filter(|record| record.get(3) == Some(&"A"));
        let names = addresses.filter_map(|record| record[0].strip_suffix(".example.org.").map(str::to_owned));
        Some(names.filter(|name| name != "ns").collect())
    }

    /// Returns all records by name, except the server's own records and ownership marks. Returns `None` if the server
    /// does not respond.
    pub(crate) fn records(&self) -> Option<Vec<(String, String)>> {
        let records = self.transfer()?;
        let records = records.lines().filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (name, ttl, kind, data) = (fields.first()?, fields.get(1)?, fields.get(3)?, fields.get(4..)?.join(" "));
            let is_own =
                ["SOA", "NS", "TSIG"].contains(kind) || *name == "ns.example.org." || name.contains("_steadfast");
            (!is_own).then(|| ((*name).to_owned(), format!("{ttl} {kind} {data}")))
        });
        Some(records.collect())
    }

    fn transfer(&self) -> Option<String> {
        let (port, mut command) = (self.port.to_string(), Command::new("dig"));
        command.args(["@127.0.0.1", "-p", &port, "+tcp", "+noall", "+answer", "-y", KEY, "example.org", "AXFR"]);
        tool_output(&mut command).filter(|text| text.contains("SOA"))
    }

    /// Removes a name and its ownership mark, like a manual change.
    pub(crate) fn remove(&self, name: &str) {
        let lines = format!(
            "server 127.0.0.1 {}\nzone example.org\nupdate delete {name}.example.org A\nupdate delete \
             _steadfast.{name}.example.org TXT\nsend\n",
            self.port
        );
        let mut command = Command::new("nsupdate");
        let mut child = command.args(["-v", "-y", KEY]).stdin(Stdio::piped()).spawn().expect("installed with dig");
        child.stdin.take().expect("a piped stdin").write_all(lines.as_bytes()).expect("the process accepts input");
        assert!(child.wait().expect("an exit status").success());
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        let process = self.process.get_mut();
        let _ = process.kill();
        let _ = process.wait();
    }
}
