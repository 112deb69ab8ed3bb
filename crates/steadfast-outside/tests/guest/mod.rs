//! A kernel that has IPVS and runs as a process of its own (user-mode Linux), with this machine's files to read, a network of its own, and
//! /mnt to write to.

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

/// As long as a guest may take for all of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says to a copy of this program that it is in a guest, and where its modules are.
const GUEST: &str = "STEADFAST_IPVS_GUEST";

/// What the copy says at its end.
const ALL_HELD: &str = "all of it held in the guest";

/// What Debian's kernel says when it ends at once on a processor with more registers than it has room for, as AMX has.
const UNKNOWN_REGISTERS: &str = "ptrace set fp regs failed";

/// Has a copy of this program run its `test` in a guest, and hold there; or says that it is skipped.
pub(crate) fn holds_in_a_guest(test: &str) -> Result {
    let Some(guest) = Guest::start(test)? else { return Ok(()) };
    let said = guest.said()?;
    if said.contains(UNKNOWN_REGISTERS) {
        // Not even where no skip is allowed: no other kernel of this kind is to be had, and it is told.
        writeln!(
            io::stderr(),
            "skipped: linux.uml does not run on this processor, which has registers that it does not know"
        )?;
        return Ok(());
    }
    assert!(said.contains(ALL_HELD), "{said}");
    Ok(())
}

/// What the copy does, which is told where the modules are; elsewhere nothing.
pub(crate) fn in_the_guest(what: impl FnOnce(&OsStr) -> Result) -> Result {
    if let Some(modules) = env::var_os(GUEST) {
        what(&modules)?;
        println!("{ALL_HELD}");
    }
    Ok(())
}

/// Loads a module of the guest's kernel.
pub(crate) fn load(modules: &OsStr, module: &str) -> Result {
    let loaded = Command::new("modprobe").arg("-d").arg(modules).arg(module).status()?;
    if loaded.success() { Ok(()) } else { Err(format!("modprobe {module}: {loaded}").into()) }
}

/// Where programs are that only root needs.
const FOLDERS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A kernel that runs as a process, and its folder. Both are gone when this is dropped.
struct Guest {
    folder: PathBuf,
    process: Child,
}

impl Guest {
    /// One in which the `test` of this program is run again, and nothing else; `None` where it cannot be, and may be missing.
    fn start(test: &str) -> Result<Option<Self>> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<_> = env::split_paths(&path).chain(env::split_paths(FOLDERS)).collect();
        let program = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        // By the path alone, so that whoever takes it from there has it skipped.
        let kernel = env::split_paths(&path).map(|folder| folder.join("linux.uml")).find(|path| path.is_file());
        let Some(kernel) = kernel else { return Self::skipped("there is no linux.uml on the path") };
        if let Some(missing) = ["ipvsadm", "modprobe", "ip"].into_iter().find(|name| program(name).is_none()) {
            return Self::skipped(&format!("there is no {missing}"));
        }
        let versions = fs::read_dir("/usr/lib/uml/modules").into_iter().flatten().flatten();
        let with_ipvs = |path: &PathBuf| path.join("kernel/net/netfilter/ipvs").is_dir();
        let Some(modules) = versions.map(|entry| entry.path()).find(with_ipvs) else {
            return Self::skipped("linux.uml has no module ip_vs");
        };
        let folder = env::temp_dir().join(format!("steadfast-ipvs-{}", process::id()));
        fs::create_dir_all(folder.join("lib/modules"))?;
        let process = Self::spawn(&kernel, &folder, &modules, test);
        if process.is_err() {
            fs::remove_dir_all(&folder)?;
        }
        Ok(Some(Self { process: process?, folder }))
    }

    fn skipped(reason: &str) -> Result<Option<Self>> {
        if env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1") {
            return Err(format!("STEADFAST_REQUIRE_REFERENCE=1 allows no skip: {reason}").into());
        }
        // Past the capture of tests that pass.
        writeln!(io::stderr(), "skipped: {reason}")?;
        Ok(None)
    }

    fn spawn(kernel: &Path, folder: &Path, modules: &Path, test: &str) -> Result<Child> {
        // Here, and not where all programs would find them: this machine's kernel is another one.
        symlink(modules, folder.join("lib/modules").join(modules.file_name().unwrap_or_default()))?;
        let init = folder.join("init");
        let script = format!(
            "#!/bin/sh\nexport PATH={FOLDERS} {GUEST}='{}'\nmount -t proc proc /proc\nmount -t sysfs sys /sys\nmount -t tmpfs tmp /mnt\n\
             # Nothing is loaded but by hand.\necho /bin/false >/proc/sys/kernel/modprobe\n\
             ip link set lo up\nfor address in 10.9.0.1 10.8.0.2 10.8.0.3 10.8.0.4; do ip addr add $address/32 dev lo; done\n\
             '{}' --exact '{test}' --nocapture 2>&1\necho o >/proc/sysrq-trigger\nsleep 10\n",
            folder.display(),
            env::current_exe()?.display()
        );
        fs::write(&init, script)?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        let mut command = Command::new(kernel);
        // Read-only: it has all of this machine's files.
        command.args(["mem=512M", "rootfstype=hostfs", "rootflags=/", "ro", "con=null", "con0=fd:0,fd:1", "quiet"]);
        command.arg(format!("init={}", init.display())).arg(format!("uml_dir={}", folder.display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own: its programs are processes here, which end with it.
        Ok(command.process_group(0).spawn()?)
    }

    /// All that it says until its end.
    fn said(mut self) -> Result<String> {
        let output = self.process.stdout.take().ok_or("a process without pipes")?;
        let (told, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(io::Result::ok) {
                if told.send(line).is_err() {
                    break;
                }
            }
        });
        let (over, mut said) = (Instant::now() + PATIENCE, String::new());
        loop {
            match lines.recv_timeout(over.saturating_duration_since(Instant::now())) {
                Ok(line) => _ = writeln!(said, "{}", String::from_utf8_lossy(&line).trim_end()),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(said),
                Err(mpsc::RecvTimeoutError::Timeout) => return Err(format!("not in {PATIENCE:?}:\n{said}").into()),
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
