use palisade_core::Name;
use sha2::{Digest, Sha256};

/// The number that a session lock goes by. Two names that share one exclude each other: with a million names in use,
/// that any two do has a chance of 1 in 37 million.
pub(crate) fn key_of(namespace: &str, name: &Name) -> i64 {
    let mut hash = Sha256::new();
    // The length keeps a namespace from running into a name.
    hash.update(b"palisade session lock\0");
    hash.update((namespace.len() as u64).to_be_bytes());
    hash.update(namespace.as_bytes());
    hash.update(name.as_str().as_bytes());
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

/// The number that sqlx has for a name.
#[cfg(feature = "postgres")]
pub(crate) fn key_of_sqlx(name: &Name) -> i64 {
    let mut first = [0; 8];
    // Fails for far longer outputs only.
    let _ = hkdf::Hkdf::<Sha256>::new(None, name.as_str().as_bytes())
        .expand(b"SQLx (Rust) Postgres advisory lock", &mut first);
    i64::from_le_bytes(first)
}

/// What tells a namespace, or a database, from others, in sixteen characters.
pub(crate) fn mark_of(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    format!("{:016x}", u64::from_be_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn keys_are_those_that_are_documented() {
        // From the documentation of sqlx.
        #[cfg(feature = "postgres")]
        assert_eq!(key_of_sqlx(&name("my first Postgres advisory lock!")), -5_560_419_505_042_474_287);
        // printf 'palisade session lock\0\0\0\0\0\0\0\0\4shoporders' | sha256sum
        let ours = key_of("shop", &name("orders"));
        assert_eq!(format!("{ours:016x}"), "f00c70918a755d75");
        assert_ne!(ours, key_of("shopo", &name("rders")));
        assert_ne!(ours, key_of("shop", &name("Orders")));
        assert_eq!(mark_of("shop").len(), 16);
    }
}
