//! User-mode Linux kernel with IPVS, with read access to the files of this machine, its own network, and a writable
//! /mnt.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process_group};

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Maximum total time of a guest.
const GUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Environment variable of a copy of this program in a guest, with the path of its modules.
const MODULES_VARIABLE: &str = "STEADFAST_IPVS_GUEST";

/// Line that the copy prints at its end.
const PASSED_MESSAGE: &str = "all of it held in the guest";

/// Message of Debian's kernel, which exits at once on a processor with more registers than the kernel supports, such as
/// AMX.
const UNKNOWN_REGISTERS_MESSAGE: &str = "ptrace set fp regs failed";

/// Runs `test` in a copy of this program in a guest, and checks the result; or prints that the test is skipped.
pub(crate) fn run_in_guest(test: &str) -> Result {
    let Some(guest) = Guest::start(test)? else { return Ok(()) };
    let output = guest.output()?;
    if output.contains(UNKNOWN_REGISTERS_MESSAGE) {
        // Skipped even if skips are forbidden, because no other kernel of this kind is available. The reason is
        // printed.
        writeln!(
            io::stderr(),
            "skipped: linux.uml does not run on this processor, which has registers that it does not know"
        )?;
        return Ok(());
    }
    assert!(output.contains(PASSED_MESSAGE), "{output}");
    Ok(())
}

/// Runs `check` with the folder of the modules, if this process is the copy in the guest. Otherwise does nothing.
pub(crate) fn as_guest(check: impl FnOnce(&OsStr) -> Result) -> Result {
    if let Some(modules) = env::var_os(MODULES_VARIABLE) {
        check(&modules)?;
        println!("{PASSED_MESSAGE}");
    }
    Ok(())
}

/// Loads a module of the guest's kernel.
pub(crate) fn load(modules: &OsStr, module: &str) -> Result {
    let loaded = Command::new("modprobe").arg("-d").arg(modules).arg(module).status()?;
    if loaded.success() { Ok(()) } else { Err(format!("modprobe {module}: {loaded}").into()) }
}

/// Folders of programs, including those for root: the search path in the guest, and part of the search path on this
/// machine.
const PROGRAM_FOLDERS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Kernel that runs as a process, and its folder. Both are removed on drop.
struct Guest {
    folder: PathBuf,
    process: Child,
}

impl Guest {
    /// Starts a guest that runs only `test` of this program. Returns `None` if no kernel is available and skips are
    /// allowed.
    fn start(test: &str) -> Result<Option<Self>> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<_> = env::split_paths(&path).chain(env::split_paths(PROGRAM_FOLDERS)).collect();
        let program = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        // Only `PATH` is searched, not `PROGRAM_FOLDERS`, so that changing `PATH` skips the test.
        let kernel = env::split_paths(&path).map(|folder| folder.join("linux.uml")).find(|path| path.is_file());
        let Some(kernel) = kernel else { return Self::skip("there is no linux.uml on the path") };
        if let Some(missing) = ["ipvsadm", "modprobe", "ip"].into_iter().find(|name| program(name).is_none()) {
            return Self::skip(&format!("there is no {missing}"));
        }
        let versions = fs::read_dir("/usr/lib/uml/modules").into_iter().flatten().flatten();
        let with_ipvs = |path: &PathBuf| path.join("kernel/net/netfilter/ipvs").is_dir();
        let Some(modules) = versions.map(|entry| entry.path()).find(with_ipvs) else {
            return Self::skip("linux.uml has no module ip_vs");
        };
        let folder = env::temp_dir().join(format!("steadfast-ipvs-{}", process::id()));
        fs::create_dir_all(folder.join("lib/modules"))?;
        let process = Self::spawn(&kernel, &folder, &modules, test);
        if process.is_err() {
            fs::remove_dir_all(&folder)?;
        }
        Ok(Some(Self { process: process?, folder }))
    }

    fn skip(reason: &str) -> Result<Option<Self>> {
        if env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1") {
            return Err(format!("STEADFAST_REQUIRE_REFERENCE=1 allows no skip: {reason}").into());
        }
        // Written to the terminal, because the harness captures the output of passing tests.
        writeln!(io::stderr(), "skipped: {reason}")?;
        Ok(None)
    }

    fn spawn(kernel: &Path, folder: &Path, modules: &Path, test: &str) -> Result<Child> {
        // In the guest's folder only: the kernel of this machine is a different one.
        symlink(modules, folder.join("lib/modules").join(modules.file_name().unwrap_or_default()))?;
        let init = folder.join("init");
        let script = format!(
            "#!/bin/sh\nexport PATH={PROGRAM_FOLDERS} {MODULES_VARIABLE}='{}'\nmount -t proc proc /proc\nmount -t sysfs sys /sys\nmount -t tmpfs tmp /mnt\n\
             # Nothing is loaded but by hand.\necho /bin/false >/proc/sys/kernel/modprobe\n\
             ip link set lo up\nfor address in 10.9.0.1 10.8.0.2 10.8.0.3 10.8.0.4; do ip addr add $address/32 dev lo; done\n\
             '{}' --exact '{test}' --nocapture 2>&1\necho o >/proc/sysrq-trigger\nsleep 10\n",
            folder.display(),
            env::current_exe()?.display()
        );
        fs::write(&init, script)?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        let mut command = Command::new(kernel);
        // Read-only: the guest sees all files of this machine.
        command.args(["mem=512M", "rootfstype=hostfs", "rootflags=/", "ro", "con=null", "con0=fd:0,fd:1", "quiet"]);
        command.arg(format!("init={}", init.display())).arg(format!("uml_dir={}", folder.display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A process group of its own: programs of the guest are processes of this machine, and end with the group.
        Ok(command.process_group(0).spawn()?)
    }

    /// Returns the output until the process exits.
    fn output(mut self) -> Result<String> {
        let output = self.process.stdout.take().ok_or("a process without pipes")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(io::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let (deadline, mut output) = (Instant::now() + GUEST_TIMEOUT, String::new());
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => _ = writeln!(output, "{}", String::from_utf8_lossy(&line).trim_end()),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(output),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(format!("the guest did not exit within {GUEST_TIMEOUT:?}:\n{output}").into());
                }
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
