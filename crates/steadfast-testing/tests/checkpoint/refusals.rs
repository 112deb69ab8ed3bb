//! What is refused, and how it is said.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;
use steadfast::{Checkpoint, CheckpointError, InformerError, InformerFactory, Lazy, Scope, Unkept};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{InMemory, WorldError};

use crate::files::Folder;

#[tokio::test(start_paused = true)]
async fn secrets_are_written_by_who_asks_for_it_alone() -> Result<(), WorldError> {
    let folder = Folder::new("secrets")?;
    let server = ApiServer::builder().in_memory().start().await?;
    let factory = InformerFactory::new(&InMemory::default().connection(&server).await?);
    let checkpoint = Checkpoint::open(folder.file())?;
    let refused = factory.build::<Lazy<Secret>>(Scope::all()).checkpoint(&checkpoint).start().expect_err("a Secret");
    assert_eq!(
        refused.to_string(),
        "secrets cannot be kept in a checkpoint: Secrets are not written to disk unless that is asked for; leave the checkpoint \
         out, or ask with `including_secrets`"
    );
    // Their annotations may have all of them.
    let metadata = factory.build::<Lazy<PartialObjectMeta<Secret>>>(Scope::all()).checkpoint(&checkpoint).start();
    assert!(matches!(metadata, Err(InformerError::Checkpoint { why: Unkept::Secrets, .. })));
    factory.build::<Lazy<Secret>>(Scope::all()).checkpoint(&checkpoint).including_secrets().start()?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn two_requests_for_an_informer_are_to_want_the_same_checkpoint() -> Result<(), WorldError> {
    let folder = Folder::new("differing")?;
    let server = ApiServer::builder().in_memory().start().await?;
    let factory = InformerFactory::new(&InMemory::default().connection(&server).await?);
    let checkpoint = Checkpoint::open(folder.file())?;
    let build =
        |factory: &InformerFactory| factory.build::<Lazy<ConfigMap>>(Scope::all()).checkpoint(&checkpoint).start();
    let first = build(&factory)?;
    assert_eq!(build(&factory)?.name(), first.name(), "the same one");
    let without = factory.informer::<Lazy<ConfigMap>>(Scope::all()).expect_err("it has none");
    assert!(without.to_string().contains("checkpoint"), "{without}");
    let elsewhere = InformerFactory::new(factory.connection());
    let twice = build(&elsewhere).expect_err("there would be two who write");
    assert!(matches!(twice, InformerError::Checkpoint { why: Unkept::InUse, .. }), "{twice}");
    factory.shutdown();
    build(&elsewhere)?;
    let changed =
        elsewhere.build::<Lazy<ConfigMap>>(Scope::namespace("shop")).checkpoint(&checkpoint).transform(|object| object);
    assert!(matches!(changed.start(), Err(InformerError::Checkpoint { why: Unkept::Transformed, .. })));
    Ok(())
}

#[test]
fn who_holds_the_file_is_said() -> Result<(), WorldError> {
    let folder = Folder::new("held")?;
    let path = folder.file();
    let held = Checkpoint::open(&path)?;
    let refused = Checkpoint::open(&path).expect_err("it is held");
    assert!(matches!(&refused, CheckpointError::Held { .. }));
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    drop(held);
    Checkpoint::open(&path)?;
    Ok(())
}

#[cfg(unix)]
#[test]
fn nobody_else_can_read_it() -> Result<(), WorldError> {
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
fn what_is_no_checkpoint_is_put_aside_and_not_lost() -> Result<(), WorldError> {
    let folder = Folder::new("diary")?;
    let path = folder.file();
    std::fs::write(&path, "dear diary, ".repeat(2000))?;
    let _held = Checkpoint::open(&path)?;
    let aside = std::path::PathBuf::from(format!("{}.unreadable", path.display()));
    assert!(std::fs::read_to_string(aside)?.starts_with("dear diary"));
    Ok(())
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let refused = Checkpoint::open("/nowhere/at/all/file").expect_err("there is no such folder");
    assert!(matches!(&refused, CheckpointError::Io { .. }));
    assert!(refused.to_string().contains("/nowhere/at/all/file"), "{refused}");
}
