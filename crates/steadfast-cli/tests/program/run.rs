//! Runs the program and reads its output.

use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum run time of the program on a busy machine.
const MAX_RUN_TIME: Duration = Duration::from_secs(60);

/// Runs the program to its end.
pub(crate) fn steadfast(arguments: &[&str]) -> Output {
    finish(start(arguments))
}

/// Starts the program with captured output.
pub(crate) fn start(arguments: &[&str]) -> Child {
    start_with_variables(arguments, &[])
}

/// Starts the program with captured output and additional environment variables.
pub(crate) fn start_with_variables(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    command(arguments, variables).spawn().expect("the program is built")
}

/// Starts the program with captured output and `input` on standard input.
pub(crate) fn start_with_input(arguments: &[&str], input: &str) -> Child {
    let mut child = command(arguments, &[]).stdin(Stdio::piped()).spawn().expect("the program is built");
    let mut stdin = child.stdin.take().expect("a piped stdin");
    // `stdin` is dropped afterwards, which closes standard input.
    std::io::Write::write_all(&mut stdin, input.as_bytes()).expect("the process accepts input");
    child
}

/// Running program, which is killed when dropped, even if the test fails.
#[cfg(unix)]
pub(crate) struct KillOnDrop(pub(crate) Child);

#[cfg(unix)]
impl Drop for KillOnDrop {
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

/// Waits for the end of a program; kills it after 60 s.
pub(crate) fn finish(mut child: Child) -> Output {
    // Both pipes are read concurrently: a full pipe would block the program.
    let stdout = read_in_thread(child.stdout.take().expect("a piped stdout"));
    let stderr = read_in_thread(child.stderr.take().expect("a piped stderr"));
    let start_time = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("an exit status") {
            break status;
        }
        if start_time.elapsed() > MAX_RUN_TIME {
            child.kill().expect("the process is killed");
            panic!("the program did not exit within {MAX_RUN_TIME:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let output_of = |reader: OutputReader| reader.join().expect("the reader does not panic").expect("readable output");
    Output { status, stdout: output_of(stdout), stderr: output_of(stderr) }
}

type OutputReader = JoinHandle<io::Result<Vec<u8>>>;

fn read_in_thread(mut source: impl Read + Send + 'static) -> OutputReader {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        source.read_to_end(&mut text).map(|_| text)
    })
}

/// Sends a signal to the program.
#[cfg(unix)]
pub(crate) fn signal(child: &Child, name: &str) {
    // Uses the shell's builtin `kill`, because not every machine has a `kill` program.
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(status.expect("a shell").success());
}

/// Returns standard error as text.
pub(crate) fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a file with `text` to the temporary folder of the tests; returns its path.
pub(crate) fn temp_file(name: &str, text: &str) -> String {
    let path = temp_path(name);
    std::fs::write(&path, text).expect("the folder is writable");
    path
}

/// Returns the path of a file in the temporary folder of the tests.
pub(crate) fn temp_path(name: &str) -> String {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    directory.join(name).to_str().expect("the target's path is text").to_owned()
}

/// `steadfast serve` in the background; killed when dropped.
pub(crate) struct RunningServer {
    pub(crate) child: Child,
    pub(crate) kubeconfig: String,
    /// Lines of standard output until the server was ready.
    pub(crate) startup_lines: Vec<String>,
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl RunningServer {
    /// Stops the server by SIGINT and returns its standard error.
    #[cfg(unix)]
    pub(crate) fn stop(mut self) -> String {
        signal(&self.child, "INT");
        let status = self.child.wait().expect("an exit status");
        let mut error_output = String::new();
        self.child.stderr.take().expect("a piped stderr").read_to_string(&mut error_output).expect("readable output");
        assert!(status.success(), "{status}: {error_output}");
        error_output
    }

    /// Starts the server with a new kubeconfig `name` and `extra_arguments`, and waits until it is ready.
    pub(crate) fn start(name: &str, extra_arguments: &[&str]) -> Self {
        // Remove the file of an earlier run that was killed.
        let _ = std::fs::remove_file(temp_path(name));
        Self::start_with_kubeconfig(name, extra_arguments)
    }

    /// Starts the server with the existing kubeconfig `name`.
    pub(crate) fn start_with_kubeconfig(name: &str, extra_arguments: &[&str]) -> Self {
        let kubeconfig = temp_path(name);
        let child = start(&[&["serve", "--kubeconfig", &kubeconfig], extra_arguments].concat());
        Self::wait_until_ready(kubeconfig, child)
    }

    /// Waits until the server `child` with `kubeconfig` is ready.
    pub(crate) fn wait_until_ready(kubeconfig: String, mut child: Child) -> Self {
        let stdout = BufReader::new(child.stdout.take().expect("a piped stdout"));
        let mut server = Self { child, kubeconfig, startup_lines: Vec::new(), stdout };
        while !server.startup_lines.last().is_some_and(|line| line.starts_with("try: ")) {
            let mut line = String::new();
            let read = server.stdout.read_line(&mut line).expect("a readable line");
            assert!(read > 0, "the program exited after {:?}", server.startup_lines);
            server.startup_lines.push(line.trim_end().to_owned());
        }
        server
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
