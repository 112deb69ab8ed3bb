//! The DNS servers Knot and BIND: configuration and start. The tests of `steadfast-cli` include this file, too.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// TSIG key that may transfer and update each zone: name and secret.
pub(crate) const MIRROR: (&str, &str) = ("mirror", "bWlycm9yIG1pcnJvciBtaXJyb3IgbWlycm9yIG1pcnI=");

/// Program of a DNS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DnsKind {
    Knot,
    Bind,
}

/// Zones and further keys of a server.
pub(crate) struct DnsSettings {
    /// TSIG keys in addition to [`MIRROR`]: name and secret.
    pub(crate) keys: &'static [(&'static str, &'static str)],
    pub(crate) zones: &'static [DnsZone],
    /// `true` if Knot ignores the serials of the zone files, and sets them itself.
    pub(crate) ignores_file_serials: bool,
}

/// One zone of a server.
pub(crate) struct DnsZone {
    pub(crate) domain: &'static str,
    /// Name of the zone file in the server's folder.
    pub(crate) file: &'static str,
    /// Names of the keys that may only transfer the zone.
    pub(crate) readers: &'static [&'static str],
}

impl DnsKind {
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Knot => "knotd",
            Self::Bind => "named",
        }
    }

    /// Returns the configuration of a server with its files in `folder`, on this port of 127.0.0.1.
    pub(crate) fn configuration(self, folder: &Path, port: u16, settings: &DnsSettings) -> String {
        match self {
            Self::Knot => knot_configuration(folder, port, settings),
            Self::Bind => bind_configuration(folder, port, settings),
        }
    }

    /// Starts `program` with the file `conf` in `folder`.
    pub(crate) fn spawn(self, program: &Path, folder: &Path) -> io::Result<Child> {
        let mut command = Command::new(program);
        command.arg("-c").arg(folder.join("conf"));
        if self == Self::Bind {
            // In the foreground, with one thread.
            command.args(["-f", "-n", "1"]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }
}

fn knot_configuration(folder: &Path, port: u16, settings: &DnsSettings) -> String {
    let folder = folder.display();
    let keys = all_keys(settings)
        .map(|(name, secret)| format!("  - id: {name}\n    algorithm: hmac-sha256\n    secret: {secret}\n"));
    let readers =
        settings.keys.iter().filter(|(name, _)| settings.zones.iter().any(|zone| zone.readers.contains(name)));
    let readers = readers.map(|(name, _)| format!("  - id: {name}\n    key: {name}\n    action: transfer\n"));
    let serials = if settings.ignores_file_serials {
        "    zonefile-load: difference-no-serial\n    journal-content: all\n"
    } else {
        ""
    };
    let zones = settings.zones.iter().map(|DnsZone { domain, file, readers }| {
        let acl = [&["mirror"][..], *readers].concat().join(", ");
        format!("  - domain: {domain}\n    file: {file}\n    acl: [{acl}]\n")
    });
    format!(
        "server:\n    rundir: {folder}\n    listen: 127.0.0.1@{port}\n    tcp-workers: 2\n    udp-workers: 1\n\
         database:\n    storage: {folder}\n    journal-db-max-size: 16M\nkey:\n{}\
         acl:\n  - id: mirror\n    key: mirror\n    action: [transfer, update]\n{}\
         template:\n  - id: default\n    storage: {folder}\n    zonefile-sync: -1\n{serials}zone:\n{}",
        keys.collect::<String>(),
        readers.collect::<String>(),
        zones.collect::<String>()
    )
}

fn bind_configuration(folder: &Path, port: u16, settings: &DnsSettings) -> String {
    let folder = folder.display();
    let keys = all_keys(settings)
        .map(|(name, secret)| format!("key \"{name}\" {{ algorithm hmac-sha256; secret \"{secret}\"; }};\n"));
    let zones = settings.zones.iter().map(|DnsZone { domain, file, readers }| {
        let readers: Vec<String> = readers.iter().map(|name| format!(" key {name};")).collect();
        let readers = readers.concat();
        format!(
            "zone \"{domain}\" {{ type primary; file \"{file}\"; allow-transfer {{ key mirror;{readers} }}; \
             allow-update {{ key mirror; }}; }};\n"
        )
    });
    format!(
        "options {{ directory \"{folder}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; pid-file none; \
         lock-file none; session-keyfile \"{folder}/session\"; recursion no; dnssec-validation no; notify no; \
         empty-zones-enable no; }};\ncontrols {{}};\n{}{}",
        keys.collect::<String>(),
        zones.collect::<String>()
    )
}

fn all_keys(settings: &DnsSettings) -> impl Iterator<Item = (&'static str, &'static str)> {
    [MIRROR].into_iter().chain(settings.keys.iter().copied())
}
