//! Rejected checkpoints, and their messages.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;
use steadfast::{Checkpoint, CheckpointError, CheckpointUnsupported, InformerError, InformerFactory, Lazy, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{InMemory, TestError};

use crate::files::Folder;

#[tokio::test(start_paused = true)]
async fn secrets_need_explicit_permission() -> Result<(), TestError> {
    let folder = Folder::new("secrets")?;
    let server = ApiServer::builder().in_memory().start().await?;
    let factory = InformerFactory::new(&InMemory::default().connection(&server).await?);
    let checkpoint = Checkpoint::open(folder.file())?;
    let error = factory.builder::<Lazy<Secret>>(Scope::all()).checkpoint(&checkpoint).start().expect_err("a Secret");
    assert_eq!(
        error.to_string(),
        "secrets cannot be kept in a checkpoint: Secrets are written to disk only on request; omit the checkpoint, or \
         request it with `including_secrets`"
    );
    // Metadata of secrets are rejected too, because annotations may contain all data of a secret.
    let metadata = factory.builder::<Lazy<PartialObjectMeta<Secret>>>(Scope::all()).checkpoint(&checkpoint).start();
    assert!(matches!(metadata, Err(InformerError::Checkpoint { reason: CheckpointUnsupported::Secrets, .. })));
    factory.builder::<Lazy<Secret>>(Scope::all()).checkpoint(&checkpoint).including_secrets().start()?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn shared_informer_needs_same_checkpoint() -> Result<(), TestError> {
    let folder = Folder::new("differing")?;
    let server = ApiServer::builder().in_memory().start().await?;
    let factory = InformerFactory::new(&InMemory::default().connection(&server).await?);
    let checkpoint = Checkpoint::open(folder.file())?;
    let build =
        |factory: &InformerFactory| factory.builder::<Lazy<ConfigMap>>(Scope::all()).checkpoint(&checkpoint).start();
    let first = build(&factory)?;
    assert_eq!(build(&factory)?.name(), first.name(), "both requests return the same informer");
    let error = factory.informer::<Lazy<ConfigMap>>(Scope::all()).expect_err("the second request has no checkpoint");
    assert!(error.to_string().contains("checkpoint"), "{error}");
    let other_factory = InformerFactory::new(factory.connection());
    let twice = build(&other_factory).expect_err("two informers must not write one file");
    assert!(matches!(twice, InformerError::Checkpoint { reason: CheckpointUnsupported::InUse, .. }), "{twice}");
    factory.shutdown();
    build(&other_factory)?;
    let changed = other_factory
        .builder::<Lazy<ConfigMap>>(Scope::namespace("shop"))
        .checkpoint(&checkpoint)
        .transform(|object| object);
    assert!(matches!(
        changed.start(),
        Err(InformerError::Checkpoint { reason: CheckpointUnsupported::Transformed, .. })
    ));
    Ok(())
}

#[test]
fn locked_file_names_its_owner() -> Result<(), TestError> {
    let folder = Folder::new("held")?;
    let path = folder.file();
    let open_checkpoint = Checkpoint::open(&path)?;
    let error = Checkpoint::open(&path).expect_err("the file is locked");
    assert!(matches!(&error, CheckpointError::Held { .. }));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(open_checkpoint);
    Checkpoint::open(&path)?;
    Ok(())
}

#[cfg(unix)]
#[test]
fn checkpoint_is_readable_by_owner_only() -> Result<(), TestError> {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mode")?;
    let path = folder.file();
    std::fs::write(&path, "")?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
    let _held = Checkpoint::open(&path)?;
    assert_eq!(std::fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
    Ok(())
}

#[test]
fn invalid_checkpoint_is_renamed_and_kept() -> Result<(), TestError> {
    let folder = Folder::new("diary")?;
    let path = folder.file();
    std::fs::write(&path, "dear diary, ".repeat(2000))?;
    let _held = Checkpoint::open(&path)?;
    let aside = std::path::PathBuf::from(format!("{}.unreadable", path.display()));
    assert!(std::fs::read_to_string(aside)?.starts_with("dear diary"));
    Ok(())
}

#[test]
fn missing_folder_is_reported() {
    let error = Checkpoint::open("/nowhere/at/all/file").expect_err("the folder does not exist");
    assert!(matches!(&error, CheckpointError::Io { .. }));
    assert!(error.to_string().contains("/nowhere/at/all/file"), "{error}");
}
