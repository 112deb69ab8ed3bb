//! Lookup of programs that tests need and Cargo does not build.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, io};

use crate::TestkitError;

/// Returns the program that `variable` specifies, or else `name` in the output folder of `conformance/reference/build`:
/// `reference/` in the target folder of this program. `None` if the program does not exist.
///
/// # Errors
///
/// Returns an error if the variable does not specify a file.
pub fn program(variable: &str, name: &str) -> Result<Option<PathBuf>, TestkitError> {
    if let Some(configured) = env::var_os(variable).filter(|configured| !configured.is_empty()) {
        let path = PathBuf::from(&configured);
        // A name without folders is looked up on the path, as `KUBECTL=kubectl` suggests.
        let path = path.is_file().then_some(path).or_else(|| on_path(&configured.to_string_lossy()));
        return match path {
            Some(path) => Ok(Some(path)),
            None => Err(format!("{variable} is {}, which is not a file", configured.display()).into()),
        };
    }
    let test_program = env::current_exe()?;
    // Test programs lie at different depths of the target folder, so all ancestors are searched.
    Ok(test_program.ancestors().map(|folder| folder.join("reference").join(name)).find(|path| path.is_file()))
}

/// Returns the kubectl to use: `$KUBECTL`, the one built with the reference, or the one on the path.
///
/// # Errors
///
/// Returns an error if `$KUBECTL` does not specify a file.
pub fn kubectl() -> Result<Option<PathBuf>, TestkitError> {
    Ok(program("KUBECTL", "kubectl")?.or_else(|| on_path("kubectl")))
}

/// Prints why a test is skipped. With `STEADFAST_REQUIRE_REFERENCE=1`, returns an error instead.
///
/// # Errors
///
/// Returns an error if tests must not be skipped.
pub fn skip(reason: &str) -> Result<(), TestkitError> {
    if env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1") {
        return Err(io::Error::other(format!("STEADFAST_REQUIRE_REFERENCE=1 allows no skip: {reason}")).into());
    }
    // Written to standard error directly, which is not captured for passing tests, so that a skipped test is visible.
    writeln!(io::stderr(), "skipped: {reason}")?;
    Ok(())
}

/// Looks up a name without folders, as a shell does.
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
