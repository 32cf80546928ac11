//! Histories that others recorded and judged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::check::ModelKind;
use crate::check::file::{FileVerdict, check_file};
use crate::check::linear::Budget;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/histories")
}

fn verdict(path: &Path, model: ModelKind) -> FileVerdict {
    let text = fs::read_to_string(path).unwrap();
    let budget = Budget { time: Duration::from_secs(30), ..Budget::default() };
    check_file(&text, model, budget).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()))
}

fn agrees(path: &Path, model: ModelKind, linearizable: bool) {
    let verdict = verdict(path, model);
    assert!(verdict.undecided.is_empty(), "{}: {verdict}", path.display());
    assert_eq!(verdict.is_linearizable(), linearizable, "{}: {verdict}", path.display());
    for (_, part) in &verdict.violated {
        assert!(!part.rows.is_empty() && !part.states.is_empty(), "{}: {part}", path.display());
        assert!(part.rows.len() <= 40, "{}: a part that nobody can read:\n{part}", path.display());
    }
}

#[test]
fn the_52_registers_of_jepsens_etcd_test() {
    let folder = testdata().join("jepsen-etcd");
    let labels = fs::read_to_string(folder.join("LABELS.tsv")).unwrap();
    let mut count = 0;
    for line in labels.lines() {
        let (file, label) = line.split_once('\t').unwrap();
        assert!(["linearizable", "violates"].contains(&label), "{line}");
        agrees(&folder.join(file), ModelKind::Register, label == "linearizable");
        count += 1;
    }
    assert_eq!(count, 52);
}

#[test]
fn the_stores_of_porcupine() {
    for (file, linearizable) in
        [("c01-ok.txt", true), ("c01-bad.txt", false), ("c10-ok.txt", true), ("c10-bad.txt", false)]
    {
        agrees(&testdata().join("kv").join(file), ModelKind::Kv, linearizable);
    }
}

#[test]
fn the_lock_of_knossos() {
    agrees(&testdata().join("knossos/mutex-bad-etcd.edn"), ModelKind::Mutex, false);
    agrees(&testdata().join("knossos/mutex-bad-etcd.edn"), ModelKind::OwnerMutex, false);
}
