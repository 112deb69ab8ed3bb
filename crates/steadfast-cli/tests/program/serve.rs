//! `steadfast serve`.

use std::io::Read;

use crate::run::{Serving, file, place, said, steadfast};

#[test]
fn every_replica_is_told_and_has_a_kubeconfig_that_works() {
    let objects = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n---\n\
                   apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let manifest = file("serve.yaml", objects);
    let server = Serving::start("serve.kubeconfig", &["--replicas", "2", "-f", &manifest]);
    assert!(server.said[0].starts_with("replica 0: https://127.0.0.1:"), "{:?}", server.said);
    assert!(server.said[1].starts_with("replica 1: https://127.0.0.1:"), "{:?}", server.said);
    assert_eq!(server.said[2], "created 2 objects");
    for kubeconfig in [server.kubeconfig.clone(), place("serve.kubeconfig.1")] {
        let output = steadfast(&["watch", "cm", "-n", "shop", "--kubeconfig", &kubeconfig, "--until", "2"]);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", said(&output));
        assert!(told.contains("+ configmaps shop/a"), "{told}");
    }
}

#[cfg(unix)]
#[test]
fn it_ends_cleanly_when_told_to() {
    use crate::run::signal;

    for name in ["TERM", "INT"] {
        let mut server = Serving::start(&format!("ends-{name}.kubeconfig"), &["--tls", "false"]);
        signal(&server.child, name);
        let status = server.child.wait().expect("it can be waited for");
        let mut told = String::new();
        server.rest.read_to_string(&mut told).expect("it can be read");
        assert!(status.success(), "{name}: {status}");
        assert!(told.starts_with("stopped at revision "), "{told}");
    }
}

#[test]
fn the_help_names_every_command_and_exit_code() {
    let output = steadfast(&["--help"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["watch", "lab", "serve", "Exit codes:", "  3  "] {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
    for command in ["watch", "lab", "serve"] {
        assert!(steadfast(&[command, "--help"]).status.success());
    }
}
