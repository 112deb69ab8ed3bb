//! Where the programs are that tests need and Rust does not build.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, io};

use crate::Error;

/// The program that `variable` names, or `name` where `conformance/reference/build` puts it: in `reference/` in the
/// target folder in which this program was built. `None` where it is not there.
///
/// # Errors
///
/// Where the variable names something that is no file.
pub fn program(variable: &str, name: &str) -> Result<Option<PathBuf>, Error> {
    if let Some(named) = env::var_os(variable).filter(|named| !named.is_empty()) {
        let path = PathBuf::from(&named);
        let found = path.is_file().then_some(path).or_else(|| on_path(&named.to_string_lossy()));
        return match found {
            Some(path) => Ok(Some(path)),
            None => Err(format!("{variable} is {}, which is no file", named.display()).into()),
        };
    }
    let own = env::current_exe()?;
    Ok(own.ancestors().map(|folder| folder.join("reference").join(name)).find(|path| path.is_file()))
}

/// The kubectl to use: `$KUBECTL`, the one built beside the reference, or the one on the path.
///
/// # Errors
///
/// Where `$KUBECTL` names something that is no file.
pub fn kubectl() -> Result<Option<PathBuf>, Error> {
    Ok(program("KUBECTL", "kubectl")?.or_else(|| on_path("kubectl")))
}

/// Says why a test ends here; an error with `STEADFAST_REQUIRE_REFERENCE=1`.
///
/// # Errors
///
/// Where nothing may be skipped.
pub fn skip(reason: &str) -> Result<(), Error> {
    if env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1") {
        return Err(io::Error::other(format!("STEADFAST_REQUIRE_REFERENCE=1 allows no skip: {reason}")).into());
    }
    // Past the capture of tests that pass: nobody should take a skip for a success.
    writeln!(io::stderr(), "skipped: {reason}")?;
    Ok(())
}

/// A name without folders, found as a shell would.
fn on_path(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_program(path))
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}
