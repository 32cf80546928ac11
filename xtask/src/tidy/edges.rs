use super::metadata::Package;

/// A room of the repository and the rooms it may depend on; the map is in `ARCHITECTURE.md`.
struct Room {
    /// A folder, or all folders below one.
    folder: &'static str,
    may_use: &'static [&'static str],
}

const ENGINES: &str = "engines/*";
const CORE: &str = "crates/palisade-core";
const PALISADE: &str = "crates/palisade";
const TESTKIT: &str = "crates/palisade-testkit";
const FENCE: &str = "crates/palisade-fence";
const BENCH: &str = "crates/palisade-bench";
const SERVER: &str = "crates/palisade-server";
const CRDT: &str = "crates/palisade-crdt";

const ROOMS: &[Room] = &[
    Room { folder: CORE, may_use: &[] },
    Room { folder: CRDT, may_use: &[] },
    Room { folder: ENGINES, may_use: &[CORE] },
    Room { folder: PALISADE, may_use: &[CORE, ENGINES, CRDT] },
    // `palisade` only in its examples: it checks the tokens of whichever client. Itself, for their features.
    Room { folder: FENCE, may_use: &[CORE, PALISADE, FENCE] },
    Room { folder: "crates/palisade-consumer", may_use: &[PALISADE] },
    Room { folder: TESTKIT, may_use: &[CORE, PALISADE] },
    Room { folder: BENCH, may_use: &[CORE, PALISADE, ENGINES, FENCE, TESTKIT] },
    Room { folder: SERVER, may_use: &[PALISADE] },
    Room { folder: "crates/palisade-cli", may_use: &[PALISADE, SERVER, TESTKIT, BENCH] },
    Room { folder: "tests/*", may_use: &[CORE, PALISADE, ENGINES, FENCE, TESTKIT] },
    Room { folder: "xtask", may_use: &[] },
];

/// Crates that must not come in by any way: one TLS and crypto stack, built without system libraries.
const BANNED: [&str; 4] = ["ring", "openssl", "openssl-sys", "native-tls"];

/// Checks who depends on whom.
pub(crate) fn check(packages: &[Package]) -> Vec<String> {
    let banned = packages.iter().filter(|package| BANNED.contains(&package.name.as_str()));
    let mut problems: Vec<String> =
        banned.map(|package| format!("{} is banned, but something depends on it", package.name)).collect();
    for package in packages {
        let Some(folder) = &package.folder else { continue };
        match room_of(folder) {
            None => problems.push(format!(
                "{folder} has no room: add it to ROOMS in xtask/src/tidy/edges.rs and to ARCHITECTURE.md"
            )),
            Some(room) => problems.extend(forbidden(package, room, packages)),
        }
    }
    problems
}

fn forbidden(package: &Package, room: &Room, all: &[Package]) -> Vec<String> {
    package
        .dependencies
        .iter()
        .filter_map(|dependency| {
            let target = all.iter().find(|other| other.name == dependency.name)?.folder.as_deref()?;
            let allowed = room.may_use.iter().any(|folder| matches(folder, target))
                // Anyone may test with the suite.
                || (dependency.dev && target == TESTKIT);
            (!allowed).then(|| format!("{} must not depend on {}", package.name, dependency.name))
        })
        .collect()
}

fn room_of(folder: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| matches(room.folder, folder))
}

fn matches(pattern: &str, folder: &str) -> bool {
    match pattern.strip_suffix("/*") {
        Some(parent) => folder
            .strip_prefix(parent)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|name| !name.contains('/')),
        None => pattern == folder,
    }
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Dependency;
    use super::*;

    fn package(name: &str, folder: Option<&str>, uses: &[(&str, bool)]) -> Package {
        Package {
            name: name.to_owned(),
            folder: folder.map(str::to_owned),
            dependencies: uses
                .iter()
                .map(|(name, dev)| Dependency { name: (*name).to_owned(), dev: *dev })
                .collect(),
            ..Package::default()
        }
    }

    fn all(extra: Package) -> Vec<Package> {
        let mut packages = vec![
            package("palisade-core", Some(CORE), &[]),
            package("palisade-embedded", Some("engines/embedded"), &[("palisade-core", false)]),
            package("palisade", Some(PALISADE), &[("palisade-core", false), ("palisade-embedded", false)]),
            package("palisade-testkit", Some(TESTKIT), &[("palisade", false), ("serde", false)]),
            package("serde", None, &[]),
        ];
        packages.push(extra);
        packages
    }

    #[test]
    fn the_arrows_point_one_way() {
        let fine = package(
            "palisade-redis",
            Some("engines/redis"),
            &[("palisade-core", false), ("palisade-testkit", true)],
        );
        assert_eq!(check(&all(fine)), Vec::<String>::new());
        for (folder, target) in [
            ("engines/redis", "palisade-embedded"),
            ("engines/redis", "palisade"),
            ("engines/redis", "palisade-testkit"),
            (CORE, "palisade-embedded"),
            ("crates/palisade-server", "palisade-core"),
        ] {
            let wrong = check(&all(package("wrong", Some(folder), &[(target, false)])));
            assert_eq!(wrong, [format!("wrong must not depend on {target}")]);
        }
    }

    #[test]
    fn new_rooms_and_banned_crates_are_told() {
        assert!(check(&all(package("x", Some("crates/x"), &[])))[0].contains("no room"));
        assert!(check(&all(package("x", Some("engines/a/b"), &[])))[0].contains("no room"));
        assert!(check(&all(package("ring", None, &[])))[0].contains("banned"));
    }
}
