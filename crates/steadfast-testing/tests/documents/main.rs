//! Checks that the Rust code in the READMEs and on the pages compiles and behaves as documented.
//!
//! Each snippet is in [`snippets`] verbatim, in a function that provides its context, or in an example. The test fails
//! if a snippet of a page is missing from its file.

mod controllers;
mod snippets;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::json;
use steadfast_apiserver::ApiServer;
use steadfast_testing::{TestError, config_map};

/// Pages, their paths, and the compiled code.
const PAGES: [(&str, &str, &str); 8] = [
    ("README.md", include_str!("../../../../README.md"), include_str!("snippets.rs")),
    ("crates/steadfast/README.md", include_str!("../../../steadfast/README.md"), include_str!("snippets.rs")),
    ("docs/guide.md", include_str!("../../../../docs/guide.md"), include_str!("snippets.rs")),
    ("docs/operations.md", include_str!("../../../../docs/operations.md"), include_str!("snippets.rs")),
    ("docs/controllers.md", include_str!("../../../../docs/controllers.md"), include_str!("controllers.rs")),
    ("docs/guide-controllers.md", include_str!("../../../../docs/guide-controllers.md"), POOL_EXAMPLE),
    (
        "docs/mirrors.md",
        include_str!("../../../../docs/mirrors.md"),
        include_str!("../../../steadfast-targets/tests/mirrors/snippets.rs"),
    ),
    (
        "docs/testing.md",
        include_str!("../../../../docs/testing.md"),
        include_str!("../../../../examples/test_with_a_cut.rs"),
    ),
];

/// Example on the page about controllers. The example also has a test of its own.
const POOL_EXAMPLE: &str = concat!(
    include_str!("../../../../examples/pool/pool_spec.rs"),
    include_str!("../../../../examples/pool/with_steadfast.rs"),
    include_str!("../../../../examples/pool/with_kube_runtime.rs"),
);

/// Environment variable for a child process of this test program. The value selects one of the guides' first programs.
const PROGRAM_VARIABLE: &str = "STEADFAST_DOCUMENTS_PROGRAM";
const FIRST_PROGRAMS_TEST: &str = "first_programs_run_and_shut_down";

/// Timeout for a program's expected output.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the lines of each Rust code block, without indentation and empty lines.
fn snippets_of(page: &str) -> Vec<Vec<&str>> {
    let mut snippets = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim().starts_with("```rust") {
            snippets.push(words(lines.by_ref().take_while(|line| line.trim() != "```")));
        }
    }
    snippets
}

fn words<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    lines.map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// Returns the snippets of `page` that are not in `compiled` verbatim, by their first lines.
fn missing_snippets<'a>(page: &'a str, compiled: &str) -> Vec<&'a str> {
    let compiled = words(compiled.lines());
    let is_compiled = |snippet: &Vec<&str>| compiled.windows(snippet.len()).any(|window| window == snippet);
    let missing = snippets_of(page).into_iter().filter(|snippet| !is_compiled(snippet));
    missing.filter_map(|snippet| snippet.first().copied()).collect()
}

#[test]
fn snippets_of_pages_are_compiled_verbatim() {
    let mut snippet_count = 0;
    for (path, page, compiled) in PAGES {
        snippet_count += snippets_of(page).len();
        let missing = missing_snippets(page, compiled);
        assert!(
            missing.is_empty(),
            "{path} has snippets that are not compiled, with these first lines: {missing:#?}; add them verbatim to the \
             file that `PAGES` names for this page"
        );
    }
    assert!(snippet_count >= 30, "only {snippet_count} snippets: check that the pages are read");
}

#[test]
fn changed_snippet_is_reported_as_missing() {
    let page = "A page.\n\n```rust\nlet a = 1;\n\nlet b = 2;\n```\n\n```sh\nls\n```\n";
    assert!(missing_snippets(page, "fn f() {\n    let a = 1;\n    let b = 2;\n}").is_empty());
    assert_eq!(missing_snippets(page, "fn f() {\n    let a = 1;\n    let b = 3;\n}"), ["let a = 1;"]);
    assert_eq!(missing_snippets(page, "let a = 1;"), ["let a = 1;"]);
}

/// Runs one of the first programs until its output contains `expected_text`, and returns the output. The program is a
/// child process with a kubeconfig of a server with the pod `default/web-0`.
async fn program_output(program: &str, expected_text: &str) -> Result<String, TestError> {
    let server = ApiServer::start().await?;
    server.create(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": "web-0", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
    }))?;
    let kubeconfig = env::temp_dir().join(format!("steadfast-documents-{}-{program}", std::process::id()));
    fs::write(&kubeconfig, server.kubeconfig())?;
    let mut process = Command::new(env::current_exe()?)
        .args(["--exact", FIRST_PROGRAMS_TEST, "--nocapture"])
        .env(PROGRAM_VARIABLE, program)
        .env("KUBECONFIG", &kubeconfig)
        .stdout(Stdio::piped())
        .spawn()?;
    let start = Instant::now();
    let status = loop {
        match process.try_wait()? {
            None if start.elapsed() < PROGRAM_TIMEOUT => tokio::time::sleep(Duration::from_millis(20)).await,
            status => break status,
        }
    };
    if status.is_none() {
        process.kill()?;
    }
    let mut output = String::new();
    process.stdout.take().ok_or("no output")?.read_to_string(&mut output)?;
    fs::remove_file(&kubeconfig)?;
    assert!(status.is_some_and(|status| status.success()) && output.contains(expected_text), "{status:?}: {output}");
    Ok(output)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_programs_run_and_shut_down() -> Result<(), TestError> {
    match env::var(PROGRAM_VARIABLE).as_deref() {
        Ok("readme") => {
            return tokio::task::spawn_blocking(snippets::readme::run).await?.map_err(Into::into);
        }
        Ok("guide") => {
            return tokio::task::spawn_blocking(snippets::guide::run).await?.map_err(Into::into);
        }
        Ok(other) => return Err(format!("unknown program {other}").into()),
        Err(_) => {}
    }
    let readme = program_output("readme", "web-0 exists: true; fresh").await?;
    assert!(readme.contains("+ web-0"), "{readme}");
    let guide = program_output("guide", "true: fresh, proven").await?;
    assert!(guide.contains("+ web-0 (initial: true)"), "{guide}");
    Ok(())
}

#[tokio::test]
async fn documented_test_passes() -> Result<(), TestError> {
    snippets::a_test_with_a_bad_network().await.map_err(|error| error.to_string().into())
}

#[tokio::test]
async fn documented_metrics_include_connection() -> Result<(), TestError> {
    let server = ApiServer::start().await?;
    server.create(&config_map("a", "1"))?;
    let connection = steadfast_testing::connection(&server).await?;
    let text = snippets::metrics(connection).map_err(|error| error.to_string())?;
    assert!(text.ends_with("# EOF\n") && text.contains("steadfast_"), "{text}");
    Ok(())
}
