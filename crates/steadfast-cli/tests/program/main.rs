//! End-to-end tests of the built program.

#[cfg(unix)]
mod approvals;
#[cfg(unix)]
mod audit;
mod bad_input;
mod check;
#[cfg(unix)]
mod cookbook;
mod deploy;
#[cfg(unix)]
#[path = "../../../steadfast-targets/tests/mirrors/dns/dns_process.rs"]
mod dns_process;
#[cfg(unix)]
mod dns_server;
mod doctor;
mod endpoint;
#[cfg(unix)]
mod etcd_tls;
#[cfg(unix)]
mod external_systems;
mod generate;
#[cfg(unix)]
mod haproxy;
#[cfg(unix)]
mod hostile_tenant;
#[cfg(unix)]
mod independence;
mod lab;
#[cfg(unix)]
mod mirrors;
#[cfg(unix)]
mod names;
#[cfg(target_os = "linux")]
mod nftables;
#[cfg(unix)]
mod nonsense;
mod notify;
#[cfg(unix)]
mod plugin;
#[cfg(unix)]
mod random_disturbances;
#[cfg(unix)]
mod registry;
#[cfg(unix)]
#[path = "../../../steadfast-targets/tests/mirrors/registry/registry_server.rs"]
mod registry_server;
#[cfg(unix)]
mod removals;
#[cfg(unix)]
mod replicas;
#[cfg(unix)]
mod restarts;
mod run;
mod secrets;
#[cfg(unix)]
mod seeds;
mod serve;
#[cfg(unix)]
mod serve_persist;
#[cfg(unix)]
mod sinks;
#[cfg(unix)]
mod status;
#[cfg(unix)]
mod traffic;
mod watch;
#[cfg(unix)]
mod watch_changes;
mod watch_formats;
#[cfg(unix)]
mod watch_logs;
#[cfg(unix)]
mod watch_related;
mod watch_since;
#[cfg(target_os = "linux")]
mod watch_terminal;
