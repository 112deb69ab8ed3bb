//! Fuzzes kubeconfigs: any text must yield a connection, or an error of the library without a secret.
#![no_main]

use kube::config::Kubeconfig;
use libfuzzer_sys::fuzz_target;
use steadfast::Connection;
use steadfast::connection::{ConnectError, MergedKubeconfig};
use steadfast::environment::local::LocalEnvironment;

/// Value of every secret in the file. It must not appear in a message.
const SECRET: &str = "zq9-planted-s3cr3t";

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if text.contains(SECRET) {
        return;
    }
    let mut file = match Kubeconfig::from_yaml(text) {
        Ok(file) => file,
        Err(error) => return assert_no_quote(text, ConnectError::from(error)),
    };
    remove_side_effects(&mut file);
    insert_secrets(&mut file, text.len());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let text = serde_json::to_string(&file).expect("JSON");
    runtime.block_on(async {
        let config = match MergedKubeconfig::parse(&text).and_then(|merged| merged.config(None)) {
            Ok(config) => config,
            Err(error) => return assert_no_secret(&error),
        };
        let environment = std::sync::Arc::new(LocalEnvironment::over_tcp(1));
        match Connection::builder(config).environment(environment).build() {
            Ok(connection) => assert!(!format!("{connection:?}").contains(SECRET)),
            Err(error) => assert_no_secret(&error),
        }
    });
});

fn assert_no_secret(error: &ConnectError) {
    assert!(!format!("{error}\n{error:?}").contains(SECRET), "{error}");
}

/// Checks that the error for an unreadable file quotes nothing from it, because the text may be a token.
fn assert_no_quote(text: &str, error: ConnectError) {
    let generic_message =
        ConnectError::from(Kubeconfig::from_yaml("[").expect_err("the text is not a kubeconfig")).to_string();
    let message = format!("{error}\n{error:?}");
    for word in text.split_ascii_whitespace().filter(|word| word.len() >= 12 && !generic_message.contains(word)) {
        assert!(!message.contains(word), "{message}");
    }
}

/// Inserts a secret into each field that can contain one. Some inserted secrets are invalid in a header.
fn insert_secrets(file: &mut Kubeconfig, length: usize) {
    let secret = if length % 2 == 0 { SECRET.to_owned() } else { format!("{SECRET}\n") };
    for entry in &mut file.auth_infos {
        let Some(user) = &mut entry.auth_info else { continue };
        for field in [&mut user.token, &mut user.password] {
            if field.is_some() {
                *field = Some(secret.clone().into());
            }
        }
        if user.client_key_data.is_some() && length % 3 > 0 {
            user.client_key_data = Some(secret.clone().into());
        }
    }
    for entry in &mut file.clusters {
        let Some(proxy) = entry.cluster.as_mut().and_then(|cluster| cluster.proxy_url.as_mut()) else { continue };
        if let Some((scheme, rest)) = proxy.split_once("://") {
            *proxy = format!("{scheme}://user:{secret}@{rest}");
        }
    }
}

/// Removes fields that run programs or read files of this machine.
fn remove_side_effects(file: &mut Kubeconfig) {
    for entry in &mut file.auth_infos {
        let Some(user) = &mut entry.auth_info else { continue };
        user.exec = None;
        user.auth_provider = None;
        user.token_file = None;
        user.client_certificate = None;
        user.client_key = None;
    }
    for entry in &mut file.clusters {
        if let Some(cluster) = &mut entry.cluster {
            cluster.certificate_authority = None;
        }
    }
}
