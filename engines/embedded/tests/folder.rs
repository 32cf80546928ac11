//! Folders that cannot be used, and what must survive whatever happens to a folder.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use common::{exclusive, name, open, take, within};
use palisade_core::{
    Condition, Effect, Engine, Error, ErrorKind, FencingToken, Mode, Raise, Reading, RefusalReason, Version,
    Written,
};
use palisade_embedded::{EmbeddedConfig, EmbeddedEngine, Sync};

const OTHER_BOOT: &str = "11111111-2222-4333-8444-555555555555";

async fn refused(folder: impl Into<PathBuf>) -> Error {
    EmbeddedEngine::open(EmbeddedConfig::new(folder)).await.expect_err("it opened")
}

#[track_caller]
fn assert_error(error: &Error, kind: ErrorKind, says: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    assert_eq!(error.engine(), Some("embedded"));
    assert_eq!(error.effect(), Effect::None);
}

#[tokio::test]
async fn paths_that_are_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "hello").unwrap();
    assert_error(&refused(&file).await, ErrorKind::Invalid, "is a file");
    assert_error(&refused(file.join("below")).await, ErrorKind::Invalid, "a file is in the way");
    assert_error(&refused("").await, ErrorKind::Invalid, "empty");
    assert_error(&refused("/tmp/a\0b").await, ErrorKind::Invalid, "NUL");
    let bytes: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(b"/tmp/\xff".to_vec());
    assert_error(&refused(bytes).await, ErrorKind::Invalid, "UTF-8");
    assert_error(&refused(folder.path().join("x".repeat(300))).await, ErrorKind::Invalid, "choose another");
    assert_eq!(fs::read_to_string(&file).unwrap(), "hello");
    let namespace = EmbeddedConfig::new(folder.path().join("new")).namespace("two\nlines");
    assert_error(
        &EmbeddedEngine::open(namespace).await.unwrap_err(),
        ErrorKind::Invalid,
        "control character",
    );
}

#[tokio::test]
async fn a_folder_is_made_for_its_user_only_and_a_long_path_works() {
    let base = tempfile::tempdir().unwrap();
    let folder = (0..10).fold(base.path().to_owned(), |path, _| path.join("a-rather-long-folder-name"));
    let engine = open(&folder).await;
    take(&engine, "r").await;
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn another_users_folder_is_refused_before_anything_is_made_in_it() {
    let base = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(base.path(), Some(65534), None).expect("the tests run as root");
    let error = EmbeddedEngine::open(EmbeddedConfig::new(base.path())).await.unwrap_err();
    assert_error(&error, ErrorKind::Denied, "run it as user 65534");
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_sqlite_cannot_open_says_why() {
    let base = tempfile::tempdir().unwrap();
    let error = EmbeddedEngine::open(EmbeddedConfig::new(
        base.path().join("x".repeat(200)).join("y".repeat(200)).join("z".repeat(200)),
    ))
    .await
    .unwrap_err();
    assert_error(&error, ErrorKind::Invalid, "at most 480 bytes");
    let folder = base.path().join("f");
    drop(open(&folder).await);
    remove_database(&folder.join("claims.db"));
    fs::create_dir(folder.join("claims.db")).unwrap();
    let error = EmbeddedEngine::open(EmbeddedConfig::new(&folder)).await.unwrap_err();
    assert_error(&error, ErrorKind::Corrupt, "a folder is in the way");
}

#[tokio::test]
async fn another_format_or_another_programs_files_are_left_alone() {
    for (file, content, says) in [
        ("FORMAT", &b"palisade-embedded 2\n"[..], "made by a newer palisade"),
        ("FORMAT", b"something else", "not of Palisade"),
        ("FORMAT", b"\xff\xfe", "not of Palisade"),
        ("tokens", b"not a token file at all", "tokens is damaged"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(file), content).unwrap();
        assert_error(&refused(folder.path()).await, ErrorKind::Corrupt, says);
        assert_eq!(fs::read(folder.path().join(file)).unwrap(), content);
    }
}

fn foreign_database(path: &Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch("CREATE TABLE customer (name TEXT); INSERT INTO customer VALUES ('Ada');").unwrap();
}

#[tokio::test]
async fn another_programs_database_is_refused_and_untouched() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).await.close().await;
    let path = folder.path().join("claims.db");
    remove_database(&path);
    foreign_database(&path);
    let before = fs::read(&path).unwrap();
    assert_error(&refused(folder.path()).await, ErrorKind::Corrupt, "belongs to another program");
    assert_eq!(fs::read(&path).unwrap(), before);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registers.db");
    foreign_database(&path);
    let before = fs::read(&path).unwrap();
    let engine = open(folder.path()).await;
    let error = engine.write(&name("x"), "1".into(), &Condition::always(), None).await.unwrap_err();
    assert_error(&error, ErrorKind::Corrupt, "belongs to another program");
    let error = engine.read(&name("x"), None).await.unwrap_err();
    assert_error(&error, ErrorKind::Corrupt, "belongs to another program");
    assert_eq!(fs::read(&path).unwrap(), before);
}

fn remove_database(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut path = path.as_os_str().to_owned();
        path.push(suffix);
        let _ = fs::remove_file(path);
    }
}

fn overwrite(path: &Path) {
    remove_database(path);
    fs::write(path, vec![0x5A; 8192]).unwrap();
}

#[tokio::test]
async fn damage_of_this_boot_is_an_error_and_of_another_boot_only_registers_matter() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let (_, first) = take(&engine, "r").await;
    engine.write(&name("x"), "kept".into(), &Condition::always(), None).await.unwrap();
    drop(engine);
    overwrite(&folder.path().join("claims.db"));
    assert_error(&refused(folder.path()).await, ErrorKind::Corrupt, "no database");
    let rebooted =
        EmbeddedEngine::open(EmbeddedConfig::new(folder.path()).boot_id(OTHER_BOOT)).await.unwrap();
    let (_, second) = take(&rebooted, "r").await;
    assert!(second.token > first.token);
    let Reading::Fresh(entry) = rebooted.read(&name("x"), None).await.unwrap() else { panic!() };
    assert_eq!(entry.value.as_deref(), Some(&b"kept"[..]));
    drop(rebooted);
    overwrite(&folder.path().join("registers.db"));
    let engine = EmbeddedEngine::open(EmbeddedConfig::new(folder.path()).boot_id(OTHER_BOOT)).await.unwrap();
    assert_error(&engine.read(&name("x"), None).await.unwrap_err(), ErrorKind::Corrupt, "registers.db");
    assert!(folder.path().join("registers.db").exists());
}

#[tokio::test]
async fn tokens_rise_across_reopening_lost_claims_lost_numbers_and_boots() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut last = 0;
    let mut sources = Vec::new();
    for round in 0..6 {
        let config = EmbeddedConfig::new(path);
        let config = if round >= 4 { config.boot_id(OTHER_BOOT) } else { config };
        let engine = EmbeddedEngine::open(config).await.unwrap();
        for _ in 0..3 {
            let (claim, grant) = take(&engine, "r").await;
            assert!(grant.token.get() > last, "round {round}");
            last = grant.token.get();
            engine.withdraw(&[claim]).await.unwrap();
        }
        sources.push(engine.source());
        engine.close().await;
        match round {
            1 => remove_database(&path.join("claims.db")),
            // Its numbers are lost: those who compare must learn that it is another source.
            2 => fs::remove_file(path.join("tokens")).unwrap(),
            _ => {}
        }
    }
    assert_eq!(sources[0], sources[2]);
    assert_ne!(sources[2], sources[3]);
    assert_eq!(sources[3], sources[5]);
}

#[tokio::test]
async fn a_folder_that_is_taken_away_is_an_error_not_a_lock_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let (held, _) = take(&engine, "r").await;
    remove_database(&folder.path().join("claims.db"));
    let error = engine.renew(std::slice::from_ref(&held)).await.unwrap_err();
    assert_error(&error, ErrorKind::Unavailable, "deleted or replaced");
    // A new one in its place is not ours either.
    let other = open(folder.path()).await;
    take(&other, "r").await;
    assert_error(&engine.renew(&[held]).await.unwrap_err(), ErrorKind::Unavailable, "deleted or replaced");
    fs::remove_dir_all(folder.path()).unwrap();
    let error = other.claim(&exclusive("q")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn registers_that_are_taken_away_are_an_error_not_empty() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    engine.write(&name("k"), "v".into(), &Condition::always(), None).await.unwrap();
    remove_database(&folder.path().join("registers.db"));
    let error = engine.read(&name("k"), None).await.unwrap_err();
    assert_error(&error, ErrorKind::Unavailable, "deleted or replaced");
}

#[tokio::test]
async fn no_file_is_readable_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    take(&engine, "r").await;
    engine.write(&name("k"), "secret".into(), &Condition::always(), None).await.unwrap();
    for entry in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", entry.path());
    }
}

#[tokio::test]
async fn one_whose_session_file_was_deleted_claims_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    for entry in fs::read_dir(folder.path().join("sessions")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let error = engine.claim(&exclusive("r")).await.unwrap_err();
    assert_error(&error, ErrorKind::Unavailable, "connect again");
}

#[tokio::test]
async fn a_lock_that_another_holds_too_long_is_a_timeout_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig::new(folder.path()).call_timeout(Duration::from_millis(100));
    let engine = EmbeddedEngine::open(config).await.unwrap();
    let lock = fs::File::open(folder.path().join("write.lock")).unwrap();
    lock.lock().unwrap();
    let claim = exclusive("r");
    let error = engine.claim(&claim).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    // The withdrawal is asked for later and wins, though the claim is still on its way.
    let withdrawal = engine.withdraw(std::slice::from_ref(&claim));
    let (withdrawn, ()) = futures::future::join(withdrawal, async { lock.unlock().unwrap() }).await;
    withdrawn.unwrap();
    take(&engine, "r").await;
}

/// A small file system of its own, so that it can be full or read-only.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", options, "palisade-test"]).arg(folder.path()));
        Self(folder)
    }

    /// Waits until nothing of it is open any more.
    async fn make_read_only(&self) {
        let remount =
            || Command::new("mount").args(["-o", "remount,ro"]).arg(self.0.path()).output().unwrap();
        let until_done = async {
            while !remount().status.success() {
                tokio::task::yield_now().await;
            }
        };
        within("a read-only mount (this test needs root)", until_done).await;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?} (this test needs root): {output:?}");
}

#[tokio::test]
async fn a_read_only_folder_is_denied() {
    let mount = Mount::new("size=4m");
    open(mount.0.path()).await.close().await;
    mount.make_read_only().await;
    assert_error(&refused(mount.0.path()).await, ErrorKind::Denied, "read-only");
    assert_error(&refused(mount.0.path().join("new")).await, ErrorKind::Denied, "read-only");
}

#[tokio::test]
async fn a_full_disk_is_said_and_nothing_is_lost_by_it() {
    let mount = Mount::new("size=2m");
    let engine = open(mount.0.path()).await;
    let (held, grant) = take(&engine, "r").await;
    let written = engine.write(&name("x"), "kept".into(), &Condition::always(), None).await.unwrap();
    assert_eq!(written, Written::Done(Version::new(1)));
    let ballast = mount.0.path().join("ballast");
    let _ = fs::write(&ballast, vec![0; 4 << 20]);
    let mut error = None;
    for number in 0..10_000 {
        match engine.claim(&exclusive(&format!("r{number}"))).await {
            Ok(_) => {}
            Err(problem) => {
                error = Some(problem);
                break;
            }
        }
    }
    assert_error(&error.expect("the disk never got full"), ErrorKind::Full, "make room");
    let value = Bytes::from(vec![7; 1 << 20]);
    let error = engine.write(&name("x"), value, &Condition::always(), None).await.unwrap_err();
    assert_error(&error, ErrorKind::Full, "make room");
    assert_error(&refused(mount.0.path().join("new")).await, ErrorKind::Full, "make room");
    fs::remove_file(ballast).unwrap();
    assert_eq!(engine.claim(&held).await.unwrap(), palisade_core::Claimed::Granted(grant));
    let Reading::Fresh(entry) = engine.read(&name("x"), None).await.unwrap() else { panic!() };
    assert_eq!(entry.value.as_deref(), Some(&b"kept"[..]));
    assert_eq!(engine.withdraw(&[held]).await.unwrap(), [palisade_core::Withdrawn::Released]);
}

#[tokio::test]
async fn registers_outlive_a_reboot_with_fence_version_and_expiry() {
    let folder = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(EmbeddedConfig::new(folder.path()).sync(Sync::Full)).await.unwrap();
    take(&engine, "another").await;
    let (_, grant) = take(&engine, "r").await;
    let token = FencingToken::of_grant(grant.token, Mode::Exclusive, None, engine.source());
    let always = Condition::always();
    engine.write(&name("long"), "1".into(), &always, Some(Duration::from_hours(1))).await.unwrap();
    engine.write(&name("short"), "1".into(), &always, Some(Duration::from_nanos(1))).await.unwrap();
    engine.read(&name("fenced"), Some(&Raise { token: token.clone(), rebase: false })).await.unwrap();
    drop(engine);
    let engine = EmbeddedEngine::open(EmbeddedConfig::new(folder.path()).boot_id(OTHER_BOOT)).await.unwrap();
    let entry = |reading| match reading {
        Reading::Fresh(entry) => entry,
        Reading::Refused(refusal) => panic!("{refusal:?}"),
    };
    let long = entry(engine.read(&name("long"), None).await.unwrap());
    assert!(
        long.expires_in.is_some_and(|left| left > Duration::from_mins(50) && left <= Duration::from_hours(1))
    );
    let short = entry(engine.read(&name("short"), None).await.unwrap());
    assert_eq!((short.value, short.version), (None, Version::new(2)));
    let (_, later) = take(&engine, "r").await;
    assert!(later.token > grant.token);
    let stale = FencingToken { token: palisade_core::Token::new(1).unwrap(), ..token };
    let refused = engine.write(&name("fenced"), "late".into(), &always.token(stale), None).await.unwrap();
    let Written::Refused(refusal) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.reason, RefusalReason::StaleToken { current: grant.token });
}

#[tokio::test]
async fn namespaces_do_not_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let one = EmbeddedEngine::open(EmbeddedConfig::new(folder.path()).namespace("a")).await.unwrap();
    let two = EmbeddedEngine::open(EmbeddedConfig::new(folder.path()).namespace("b")).await.unwrap();
    take(&one, "r").await;
    take(&two, "r").await;
    one.write(&name("x"), "1".into(), &Condition::always(), None).await.unwrap();
    let Reading::Fresh(entry) = two.read(&name("x"), None).await.unwrap() else { panic!() };
    assert_eq!(entry.value, None);
}
