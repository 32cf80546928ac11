use super::metadata::Package;

/// Licences that ask for no more than a notice. The same list is in `deny.toml`.
const ALLOWED: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Packages with another licence that asks for no more, each for a reason. The same are in `deny.toml`.
const EXCEPTIONS: [(&str, &str); 1] = [
    // A list of authorities, brought by mysql_async's TLS. Nothing reads it: whom to trust is for the machine to say.
    ("webpki-roots", "CDLA-Permissive-2.0"),
];

/// Checks the licence of every package, offline, from what its manifest says.
pub(crate) fn check(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .filter_map(|package| match &package.licence {
            None => Some(format!("{} names no licence", package.name)),
            Some(licence) if allows(licence) || is_excepted(&package.name, licence) => None,
            Some(licence) => Some(format!("the licence of {} is not allowed: {licence}", package.name)),
        })
        .collect()
}

fn is_excepted(package: &str, licence: &str) -> bool {
    EXCEPTIONS.contains(&(package, licence))
}

/// Whether an SPDX expression can be met with the allowed licences. What cannot be read cannot.
fn allows(expression: &str) -> bool {
    // Old manifests write `MIT/Apache-2.0` for a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) == Some(true) && rest.is_empty()
}

fn any(words: &mut &[&str]) -> Option<bool> {
    let mut met = all(words)?;
    while let Some(rest) = after(words, "OR") {
        *words = rest;
        met |= all(words)?;
    }
    Some(met)
}

fn all(words: &mut &[&str]) -> Option<bool> {
    let mut met = one(words)?;
    while let Some(rest) = after(words, "AND") {
        *words = rest;
        met &= one(words)?;
    }
    Some(met)
}

fn one(words: &mut &[&str]) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first == "(" {
        let met = any(words)?;
        *words = after(words, ")")?;
        return Some(met);
    }
    let mut licence = (*first).to_owned();
    if let Some(rest) = after(words, "WITH") {
        let (exception, rest) = rest.split_first()?;
        licence = format!("{licence} WITH {exception}");
        *words = rest;
    }
    Some(ALLOWED.contains(&licence.as_str()))
}

fn after<'a, 'b>(words: &&'a [&'b str], word: &str) -> Option<&'a [&'b str]> {
    words.split_first().filter(|(first, _)| **first == word).map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_or_not() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
            "GPL-3.0 OR (MIT AND Zlib)",
        ] {
            assert!(allows(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MPL-2.0",
            "MIT AND GPL-3.0",
            "(MIT OR Apache-2.0) AND LGPL-3.0",
            "GPL-2.0 WITH Classpath-exception-2.0",
            "MIT OR",
            "(MIT",
            "MIT Zlib",
        ] {
            assert!(!allows(bad), "{bad}");
        }
    }

    #[test]
    fn a_package_without_a_licence_is_told() {
        let package = Package { name: "x".to_owned(), ..Package::default() };
        assert_eq!(check(&[package]), ["x names no licence"]);
    }

    #[test]
    fn an_exception_is_for_one_package() {
        let package = |name: &str| Package {
            name: name.to_owned(),
            licence: Some("CDLA-Permissive-2.0".to_owned()),
            ..Package::default()
        };
        assert!(check(&[package("webpki-roots")]).is_empty());
        assert_eq!(check(&[package("other")]).len(), 1);
    }

    #[test]
    fn deny_toml_has_the_same_list() {
        let deny = std::fs::read_to_string(crate::root().join("deny.toml")).unwrap();
        for licence in ALLOWED {
            assert!(deny.contains(&format!("\"{licence}\"")), "{licence} is missing in deny.toml");
        }
        for (package, licence) in EXCEPTIONS {
            let line = format!("{{ crate = \"{package}\", allow = [\"{licence}\"] }}");
            assert!(deny.contains(&line), "{line} is missing in deny.toml");
        }
    }
}
