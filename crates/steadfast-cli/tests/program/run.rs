//! Running the program and reading what it says.

use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than any of it takes on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs the program to its end.
pub(crate) fn steadfast(arguments: &[&str]) -> Output {
    finish(start(arguments))
}

/// Starts the program; what it says is kept.
pub(crate) fn start(arguments: &[&str]) -> Child {
    start_with(arguments, &[])
}

/// Starts the program with more in its environment; what it says is kept.
pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    command(arguments, variables).spawn().expect("the program is built")
}

/// Starts the program and gives it `input`; what it says is kept.
pub(crate) fn start_fed(arguments: &[&str], input: &str) -> Child {
    let mut child = command(arguments, &[]).stdin(Stdio::piped()).spawn().expect("the program is built");
    let mut stdin = child.stdin.take().expect("it is piped");
    // Closed behind it, so that the program finds the end.
    std::io::Write::write_all(&mut stdin, input.as_bytes()).expect("it reads");
    child
}

/// A program that is killed when this is dropped, also by a test that fails.
#[cfg(unix)]
pub(crate) struct Killed(pub(crate) Child);

#[cfg(unix)]
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
    command.args(arguments).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST").env("HOME", "/nonexistent");
    command.envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end of a program, which is killed where it takes too long.
pub(crate) fn finish(mut child: Child) -> Output {
    // Both at once: a pipe that nobody reads is full one day, and the program waits.
    let stdout = reading(child.stdout.take().expect("it is piped"));
    let stderr = reading(child.stderr.take().expect("it is piped"));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if begun.elapsed() > LONGEST {
            child.kill().expect("it can be killed");
            panic!("it was not over after {LONGEST:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = |reading: Reading| reading.join().expect("it does not panic").expect("it can be read");
    Output { status, stdout: text(stdout), stderr: text(stderr) }
}

type Reading = JoinHandle<io::Result<Vec<u8>>>;

fn reading(mut from: impl Read + Send + 'static) -> Reading {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        from.read_to_end(&mut text).map(|_| text)
    })
}

/// Tells the program to stop, as a service manager or, with `INT`, a terminal does.
#[cfg(unix)]
pub(crate) fn signal(child: &Child, name: &str) {
    // The shell's own: not every machine has a program of that name.
    let told = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(told.expect("there is a shell").success());
}

/// What it said on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file with `text` in a place that no other test has.
pub(crate) fn file(name: &str, text: &str) -> String {
    let path = place(name);
    std::fs::write(&path, text).expect("there is room for it");
    path
}

/// Where a file of this name may be written.
pub(crate) fn place(name: &str) -> String {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    directory.join(name).to_str().expect("the target's path is text").to_owned()
}

/// `steadfast serve` in the background, killed when it is dropped.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) kubeconfig: String,
    /// What it said until it was ready.
    pub(crate) said: Vec<String>,
    pub(crate) rest: BufReader<ChildStdout>,
}

impl Serving {
    /// Tells it to stop, as a terminal does, and returns all that it said on standard error.
    #[cfg(unix)]
    pub(crate) fn stop(mut self) -> String {
        signal(&self.child, "INT");
        let status = self.child.wait().expect("it can be waited for");
        let mut said = String::new();
        self.child.stderr.take().expect("it is piped").read_to_string(&mut said).expect("it can be read");
        assert!(status.success(), "{status}: {said}");
        said
    }

    /// Starts it with `more` arguments, its kubeconfig under `name`, and waits until it is ready.
    pub(crate) fn start(name: &str, more: &[&str]) -> Self {
        // What a run of long ago left, which was killed.
        let _ = std::fs::remove_file(place(name));
        Self::start_beside(name, more)
    }

    /// The same, with whatever is in its kubeconfig already.
    pub(crate) fn start_beside(name: &str, more: &[&str]) -> Self {
        let kubeconfig = place(name);
        let child = start(&[&["serve", "--kubeconfig", &kubeconfig], more].concat());
        Self::ready(kubeconfig, child)
    }

    /// Waits until `child`, which serves with `kubeconfig`, is ready.
    pub(crate) fn ready(kubeconfig: String, mut child: Child) -> Self {
        let rest = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut serving = Self { child, kubeconfig, said: Vec::new(), rest };
        while !serving.said.last().is_some_and(|line| line.starts_with("try: ")) {
            let mut line = String::new();
            let read = serving.rest.read_line(&mut line).expect("it can be read");
            assert!(read > 0, "it ended after {:?}", serving.said);
            serving.said.push(line.trim_end().to_owned());
        }
        serving
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
