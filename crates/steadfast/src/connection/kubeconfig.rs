//! Kubeconfigs as kubectl reads them: choice of files, merging, and resolution of contexts.
//!
//! `kube` parses strictly. It returns an error for an invalid context that is not used, for one missing file of
//! several, and for base64 over several lines. kubectl accepts all three. So files are read here, and the result is a
//! [`kube::Config`].

mod entry;
mod file;

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::ConnectError;
use entry::{KubeconfigEntries, KubeconfigEntry};

/// Environment variable with the list of files.
const KUBECONFIG: &str = "KUBECONFIG";

/// The files of a kubeconfig; nothing is read before [`read`](Self::read).
///
/// ```no_run
/// use steadfast::Connection;
/// use steadfast::connection::KubeconfigFiles;
///
/// # async fn example() -> Result<(), steadfast::connection::ConnectError> {
/// let files = KubeconfigFiles::from_path("/etc/fleet/kubeconfig");
/// let connection = Connection::from_loader(move || {
///     let files = files.clone();
///     async move { files.read()?.config(Some("production")) }
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct KubeconfigFiles {
    paths: Vec<PathBuf>,
    origin: PathOrigin,
}

/// Path of a missing file, and the error of its reading.
type MissingFile<'a> = (&'a Path, file::FileError);

/// Origin of the paths, which determines the effect of a missing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathOrigin {
    /// The variable `KUBECONFIG`, or a list in its format. Missing files are skipped.
    List,
    /// The default file `~/.kube/config`.
    Default,
    /// A path that the program chose. The file must exist.
    Path,
}

/// Writes the paths, separated by commas.
impl fmt::Display for KubeconfigFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&paths.join(", "))
    }
}

impl KubeconfigFiles {
    /// Returns the files that kubectl reads without flags: those in the variable `KUBECONFIG`, else `~/.kube/config`.
    ///
    /// # Errors
    ///
    /// Returns an error if `KUBECONFIG` is empty or not set, and no home directory is known.
    pub fn from_env() -> Result<Self, ConnectError> {
        if let Some(list) = env::var_os(KUBECONFIG).filter(|list| !list.is_empty()) {
            return Ok(Self::from_list(&list));
        }
        let home = env::home_dir().filter(|home| !home.as_os_str().is_empty());
        let home = home.ok_or_else(|| ConnectError::Kubeconfig {
            detail: "no home directory is known, so no kubeconfig was found".to_owned(),
        })?;
        Ok(Self { paths: vec![home.join(".kube").join("config")], origin: PathOrigin::Default })
    }

    /// Returns the file at `path`, which must exist, as with kubectl's flag `--kubeconfig`.
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        Self { paths: vec![path.into()], origin: PathOrigin::Path }
    }

    /// Returns the files in `list`, separated as in the variable `KUBECONFIG`: by `:`, or on Windows by `;`.
    ///
    /// Empty names and missing files are skipped. If several files define an entry of one name, or a current context,
    /// the first file wins.
    pub fn from_list(list: &OsStr) -> Self {
        let paths = env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect();
        Self { paths, origin: PathOrigin::List }
    }

    /// Returns the paths of the files, in the order in which they are read. Some may not exist.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Reads and merges the files. Blocks while it reads.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or parsed, if the only file is missing, or if none of several exists.
    pub fn read(&self) -> Result<MergedKubeconfig, ConnectError> {
        let (merged, missing) = self.merge()?;
        // kubectl continues with an empty configuration instead, and requests localhost:8080.
        if missing.len() == self.paths.len() {
            let detail = match missing.as_slice() {
                [] => format!("{KUBECONFIG} contains no file name"),
                [(path, error)] if self.origin == PathOrigin::Default => error.describe(path),
                _ => format!("{KUBECONFIG} contains only files that do not exist: {self}"),
            };
            return Err(ConnectError::Kubeconfig { detail });
        }
        for (path, _) in missing {
            tracing::debug!(path = %path.display(), "a file of KUBECONFIG does not exist; it is skipped");
        }
        Ok(merged)
    }

    /// Reads and merges the files. Returns `None` if no kubeconfig exists: no file, or only files without entries.
    ///
    /// In this case [`Connection::infer`](super::Connection::infer) uses the service account of the pod. Blocks while
    /// it reads.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or parsed, or if the file of [`from_path`](Self::from_path) is
    /// missing.
    pub fn read_if_present(&self) -> Result<Option<MergedKubeconfig>, ConnectError> {
        let (merged, _) = self.merge()?;
        Ok(Some(merged).filter(|merged| !merged.is_empty()))
    }

    /// Reads and merges the files. Returns the missing ones separately.
    fn merge(&self) -> Result<(MergedKubeconfig, Vec<MissingFile<'_>>), ConnectError> {
        let mut merged = MergedKubeconfig::default();
        let mut missing = Vec::new();
        for path in &self.paths {
            match file::read(path) {
                Ok(file) => merged.add(file),
                Err(error @ file::FileError::Missing(_)) if self.origin != PathOrigin::Path => {
                    missing.push((path.as_path(), error));
                }
                Err(error) => return Err(ConnectError::Kubeconfig { detail: error.describe(path) }),
            }
        }
        Ok((merged, missing))
    }
}

/// The merged content of kubeconfig files.
#[derive(Clone, Default)]
pub struct MergedKubeconfig {
    clusters: KubeconfigEntries,
    users: KubeconfigEntries,
    contexts: KubeconfigEntries,
    current: Option<String>,
    /// Cluster and user instead of those of a context.
    cluster_override: Option<String>,
    user_override: Option<String>,
    server_override: Option<String>,
}

impl MergedKubeconfig {
    /// Parses the text of one kubeconfig, in YAML or JSON. Relative paths in the text refer to the working directory.
    ///
    /// # Errors
    ///
    /// Returns an error if the text cannot be parsed.
    pub fn parse(text: &str) -> Result<Self, ConnectError> {
        let mut merged = Self::default();
        let file = file::parse(text.as_bytes(), None).map_err(|detail| ConnectError::Kubeconfig { detail })?;
        merged.add(file);
        Ok(merged)
    }

    /// Returns the names of the contexts, in the order of the files.
    pub fn context_names(&self) -> impl Iterator<Item = &str> {
        self.contexts.names()
    }

    /// Returns the name of the current context.
    pub fn current_context(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Removes the current context. Without a named context, [`config`](Self::config) then needs a cluster or a server
    /// that replaces it.
    ///
    /// A program that started without a context reloads its kubeconfig this way: a context that became current later
    /// may belong to another cluster.
    #[must_use]
    pub fn without_current_context(mut self) -> Self {
        self.current = None;
        self
    }

    /// Replaces the cluster and the user of every context by those with these names, as kubectl's flags `--cluster` and
    /// `--user` do. `None` keeps those of the context. A cluster with a name needs no context.
    #[must_use]
    pub fn with_overrides(mut self, cluster: Option<String>, user: Option<String>) -> Self {
        (self.cluster_override, self.user_override) = (cluster, user);
        self
    }

    /// Replaces the server of every cluster by this URL, as kubectl's flag `--server` does. `None` keeps that of the
    /// cluster. A server with a URL needs neither a context nor a cluster.
    #[must_use]
    pub fn with_server(mut self, server: Option<String>) -> Self {
        self.server_override = server;
        self
    }

    /// Returns the configuration of `context`, or else of the current context.
    ///
    /// Reads the certificate authority if it is a file. The proxy is that of the cluster, or else that of the variable
    /// `HTTPS_PROXY`.
    ///
    /// # Errors
    ///
    /// Returns an error if no context is current and neither a cluster nor a server replaces it, if the context or its
    /// cluster does not exist, or if one of their fields cannot be used.
    pub fn config(&self, context: Option<&str>) -> Result<kube::Config, ConnectError> {
        self.resolve(context).map_err(|detail| ConnectError::Kubeconfig { detail })
    }

    fn resolve(&self, context: Option<&str>) -> Result<kube::Config, String> {
        let name = context.filter(|name| !name.is_empty()).or(self.current_context());
        let needs_context = self.cluster_override.is_none() && self.server_override.is_none();
        let context = match name {
            Some(name) => self
                .contexts
                .get(name)
                .ok_or_else(|| format!("the context {name:?} does not exist; {}", self.known()))?,
            None if needs_context => return Err(format!("no current context is set; {}", self.known())),
            None => KubeconfigEntry::empty("context"),
        };
        let cluster = self.cluster(name, &context)?;
        let user = match &self.user_override {
            Some(user) => Some(self.users.get(user).ok_or_else(|| format!("the user {user:?} does not exist"))?),
            // As with kubectl, a missing user is anonymous.
            None => context.text("user")?.and_then(|user| self.users.get(&user)),
        };
        let mut config = entry::config(&cluster, user.as_ref())?;
        if let Some(namespace) = context.text("namespace")? {
            config.default_namespace = namespace;
        }
        Ok(super::normal::normalize(config))
    }

    /// Returns the cluster for `context` of this name, with the replaced server.
    fn cluster(&self, name: Option<&str>, context: &KubeconfigEntry) -> Result<KubeconfigEntry, String> {
        let of_context = || name.map_or_else(String::new, |name| format!(" of the context {name:?}"));
        let cluster_name = match &self.cluster_override {
            Some(cluster) => Some(cluster.clone()),
            None => context.text("cluster")?,
        };
        let cluster = cluster_name.as_ref().and_then(|cluster| self.clusters.get(cluster));
        match (cluster, &self.server_override, cluster_name) {
            (Some(cluster), None, _) => Ok(cluster),
            (Some(cluster), Some(server), _) => Ok(cluster.with_text("server", server)),
            // As with kubectl, only a cluster that a flag names must exist.
            (None, Some(server), _) if self.cluster_override.is_none() => {
                Ok(KubeconfigEntry::empty("cluster").with_text("server", server))
            }
            (None, _, Some(cluster)) => Err(format!("the cluster {cluster:?}{} does not exist", of_context())),
            (None, _, None) => Err(format!("the context {:?} has no cluster", name.unwrap_or_default())),
        }
    }

    fn is_empty(&self) -> bool {
        // A file with entries but without a current context is not empty, unlike in client-go. The entries show that
        // the program is configured for a cluster of its own.
        let entries = [&self.clusters, &self.users, &self.contexts];
        self.current.is_none() && entries.iter().all(|entries| entries.names().next().is_none())
    }

    fn known(&self) -> String {
        let names: Vec<_> = self.context_names().collect();
        if names.is_empty() {
            "no contexts exist".to_owned()
        } else {
            format!("existing contexts: {}", names.join(", "))
        }
    }

    /// Adds the entries of `file`, except those with names from an earlier file.
    fn add(&mut self, file: file::KubeconfigFile) {
        self.clusters.add(file.clusters);
        self.users.add(file.users);
        self.contexts.add(file.contexts);
        if self.current.is_none() {
            self.current = file.current;
        }
    }
}

impl std::fmt::Debug for MergedKubeconfig {
    /// Prints the names alone: users hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let contexts: Vec<_> = self.context_names().collect();
        f.debug_struct("MergedKubeconfig")
            .field("contexts", &contexts)
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
