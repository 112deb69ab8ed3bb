use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use secrecy::ExposeSecret;

use super::*;

/// Folder of one test, removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("steadfast-kubeconfig-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

const WHOLE: &str = "\
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: 'https://one.example:6443'}}]
users: [{name: u, user: {token: hunter2}}]
contexts: [{name: c, context: {cluster: k, user: u}}, {name: half, context: {user: u}}]
current-context: c
";

fn config(text: &str) -> Result<kube::Config, ConnectError> {
    MergedKubeconfig::parse(text)?.config(None)
}

fn token(config: &kube::Config) -> Option<&str> {
    config.auth_info.token.as_ref().map(ExposeSecret::expose_secret)
}

fn list(paths: &[PathBuf]) -> KubeconfigFiles {
    KubeconfigFiles::from_list(&env::join_paths(paths).expect("paths without separators"))
}

#[test]
fn missing_files_of_a_list_are_skipped() {
    let folder = Folder::new();
    let (whole, missing) = (folder.write("whole", WHOLE), folder.0.join("missing"));
    for paths in [[missing.clone(), whole.clone()], [whole, missing.clone()]] {
        let config = list(&paths).read().expect("a readable kubeconfig").config(None).expect("a usable configuration");
        assert_eq!(config.cluster_url, "https://one.example:6443/");
    }
    let error = list(std::slice::from_ref(&missing)).read().expect_err("no file exists").to_string();
    assert!(error.contains("contains only files that do not exist") && error.contains("missing"), "{error}");
    let error = KubeconfigFiles::from_path(&missing).read().expect_err("a missing file").to_string();
    assert!(error.contains("missing cannot be read: No such file"), "{error}");
}

#[test]
fn first_file_with_a_name_wins() {
    let folder = Folder::new();
    let none = folder.write("none", "clusters: []\nusers:\ncurrent-context: \"\"\n");
    let first = folder.write("first", "users: [{name: u, user: {token: first}}]\n");
    let whole = folder.write("whole", WHOLE);
    let merged = list(&[none, first, whole]).read().expect("readable kubeconfigs");
    assert_eq!(merged.current_context(), Some("c"));
    assert_eq!(token(&merged.config(None).expect("a usable configuration")), Some("first"));
}

#[test]
fn overrides_replace_cluster_and_user() {
    let text = "clusters: [{name: a, cluster: {server: 'https://a.example'}}, {name: b, cluster: {server: 'https://b.example'}}]\n\
                users: [{name: u, user: {token: first}}, {name: v, user: {token: second}}]\n\
                contexts: [{name: c, context: {cluster: a, user: u, namespace: shop}}]\n\
                current-context: c\n";
    let config = |cluster: Option<&str>, user: Option<&str>| {
        let merged = MergedKubeconfig::parse(text).expect("a readable kubeconfig");
        merged.with_overrides(cluster.map(str::to_owned), user.map(str::to_owned)).config(None)
    };
    let chosen = config(Some("b"), Some("v")).expect("a usable configuration");
    assert_eq!((chosen.cluster_url.host(), token(&chosen)), (Some("b.example"), Some("second")));
    assert_eq!(chosen.default_namespace, "shop");
    let kept = config(None, None).expect("a usable configuration");
    assert_eq!((kept.cluster_url.host(), token(&kept)), (Some("a.example"), Some("first")));
    let error = config(None, Some("w")).expect_err("no such user").to_string();
    assert!(error.contains("the user \"w\" does not exist"), "{error}");
}

#[test]
fn server_or_cluster_needs_no_context() {
    let text = WHOLE.replace("current-context: c\n", "");
    let config = |cluster: Option<&str>, user: Option<&str>, server: Option<&str>, context: Option<&str>| {
        let merged = MergedKubeconfig::parse(&text).expect("a readable kubeconfig");
        let merged = merged.with_overrides(cluster.map(str::to_owned), user.map(str::to_owned));
        let found = merged.with_server(server.map(str::to_owned)).config(context);
        found.map(|config| (config.cluster_url.to_string(), token(&config).map(str::to_owned)))
    };
    let secret = || Some("hunter2".to_owned());
    let usable = |url: &str, token: Option<String>| (url.to_owned(), token);
    let flag = Some("https://flag.example/");
    assert_eq!(config(None, None, flag, None).expect("a server"), usable("https://flag.example/", None));
    assert_eq!(config(None, Some("u"), flag, None).expect("a server"), usable("https://flag.example/", secret()));
    assert_eq!(
        config(Some("k"), Some("u"), None, None).expect("a cluster"),
        usable("https://one.example:6443/", secret())
    );
    assert_eq!(config(Some("k"), None, flag, None).expect("a cluster"), usable("https://flag.example/", None));
    assert_eq!(config(None, None, flag, Some("half")).expect("no cluster"), usable("https://flag.example/", secret()));
    for (found, reason) in [
        (config(None, Some("u"), None, None), "no current context is set"),
        (config(Some("other"), None, flag, None), "the cluster \"other\" does not exist"),
        (config(None, None, flag, Some("other")), "the context \"other\" does not exist"),
    ] {
        let error = found.expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn removed_current_context_is_ignored() {
    let config = |server: Option<&str>, context: Option<&str>| {
        let merged = MergedKubeconfig::parse(WHOLE).expect("a readable kubeconfig").without_current_context();
        let found = merged.with_server(server.map(str::to_owned)).config(context);
        found.map(|config| (config.cluster_url.to_string(), token(&config).map(str::to_owned)))
    };
    let of_flag = config(Some("https://flag.example"), None).expect("a server");
    assert_eq!(of_flag, ("https://flag.example/".to_owned(), None), "no user of the context");
    let of_context = config(None, Some("c")).expect("a context");
    assert_eq!(of_context, ("https://one.example:6443/".to_owned(), Some("hunter2".to_owned())));
    let error = config(None, None).expect_err("no context").to_string();
    assert!(error.contains("no current context is set"), "{error}");
}

#[test]
fn empty_fields_are_absent() {
    let text = WHOLE
        .replace("cluster: k, user: u}", "cluster: k, user: u, namespace: \"\"}")
        .replace("{server:", "{tls-server-name: \"\", proxy-url: \"\", certificate-authority: \"\", server:")
        .replace("{token:", "{tokenFile: \"\", username: \"\", as: \"\", client-certificate: \"\", exec: null, token:");
    let config = config(&text).expect("a usable configuration");
    assert_eq!(config.default_namespace, "default");
    assert_eq!((config.tls_server_name, config.root_cert), (None, None));
    assert_eq!(config.auth_info.impersonate, None);
}

#[test]
fn duplicate_keys_and_incomplete_contexts_are_accepted() {
    let text = format!("{WHOLE}current-context: c\n").replace("{token: hunter2}", "{token: old, token: new}");
    assert_eq!(token(&config(&text).expect("a usable configuration")), Some("new"));
    let merged = MergedKubeconfig::parse(WHOLE).expect("a readable kubeconfig");
    let error = merged.config(Some("half")).expect_err("no cluster").to_string();
    assert!(error.contains("the context \"half\" has no cluster"), "{error}");
    let error = merged.config(Some("other")).expect_err("no such context").to_string();
    assert!(error.contains("the context \"other\" does not exist; existing contexts: c, half"), "{error}");
}

#[test]
fn relative_paths_refer_to_the_file() {
    let folder = Folder::new();
    let text = WHOLE.replace("{token: hunter2}", "{tokenFile: token, exec: {command: ./login}}");
    let file = folder.write("config", &text);
    let config =
        KubeconfigFiles::from_path(file).read().and_then(|merged| merged.config(None)).expect("a usable configuration");
    assert_eq!(config.auth_info.token_file.as_deref(), folder.0.join("token").to_str());
    let command = config.auth_info.exec.and_then(|exec| exec.command);
    assert_eq!(command.as_deref(), folder.0.join("./login").to_str());
}

#[test]
fn servers_get_the_scheme_of_kubectl() {
    for (cluster, url) in [
        ("server: 'localhost:8080'", "http://localhost:8080/"),
        ("server: one.example", "http://one.example/"),
        ("server: 'localhost:8080', insecure-skip-tls-verify: true", "http://localhost:8080/"),
        ("server: 'HTTPS://one.example/base'", "https://one.example/base"),
    ] {
        let text = WHOLE.replace("server: 'https://one.example:6443'", cluster);
        let config = config(&text).expect(cluster);
        assert_eq!(config.cluster_url, url, "{cluster}");
        assert_eq!(token(&config).is_some(), cluster.contains("://"), "no credentials without a scheme: {cluster}");
    }
}

#[test]
fn errors_name_field_without_secret() {
    for (from, to, expected) in [
        ("token: hunter2", "token: 1234567", "user \"u\" has a field of another type"),
        ("kind: Config", "kind: Secret", "its kind is \"Secret\""),
        (
            "{token: hunter2}",
            "{client-certificate-data: hunter2-, client-key-data: aGk=}",
            "client-certificate-data is not base64",
        ),
        ("current-context: c", "x: [hunter2", "line"),
        ("current-context: c", "current-context:", "no current context is set; existing contexts: c, half"),
        ("server: 'https://one.example:6443'", "certificate-authority: a", "no server"),
        ("cluster: k, user: u", "cluster: x, user: u", "the cluster \"x\" of the context \"c\" does not exist"),
    ] {
        let error = config(&WHOLE.replace(from, to)).expect_err(to);
        let message = format!("{error} {error:?}");
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("hunter2") && !message.contains("1234567"), "{message}");
    }
}

#[test]
fn text_may_be_utf16_or_json() {
    let folder = Folder::new();
    let mut utf16 = vec![0xff, 0xfe];
    utf16.extend(WHOLE.encode_utf16().flat_map(u16::to_le_bytes));
    let path = folder.0.join("utf16");
    fs::write(&path, utf16).expect("a file");
    assert!(KubeconfigFiles::from_path(path).read().and_then(|merged| merged.config(None)).is_ok());
    let json = r#"{"clusters":[{"name":"k","cluster":{"server":"https://one.example"}}],
        "contexts":[{"name":"c","context":{"cluster":"k","user":"absent"}}],"current-context":"c"}"#;
    assert_eq!(token(&config(json).expect("JSON is YAML")), None);
    assert!(config("").is_err_and(|error| error.to_string().contains("no current context is set; no contexts exist")));
}
