use std::env::VarError;

use palisade_core::Result;

use crate::url::{EngineUrl, invalid};

/// A secret that the URL does not hold, but says where to find: by option `NAME-env` or `NAME-file`. An error if the URL
/// holds one too, which is `in_url`: whichever were taken, it may be the wrong one.
pub(super) fn secret(url: &mut EngineUrl, name: &str, in_url: Option<&str>) -> Result<Option<String>> {
    let (by_env, by_file) = (format!("{name}-env"), format!("{name}-file"));
    let (option, found) = match (url.take(&by_env), url.take(&by_file)) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(invalid(format!("only one of the options {by_env} and {by_file} may be given")));
        }
        (Some(variable), None) => {
            let found = in_variable(&by_env, &variable)?;
            (by_env, found)
        }
        (None, Some(path)) => {
            let found = in_file(&by_file, &path)?;
            (by_file, found)
        }
    };
    if in_url.is_some_and(|secret| !secret.is_empty()) {
        let message =
            format!("a password is in the URL, and option {option} names another one; leave one of them out");
        return Err(invalid(message));
    }
    Ok(Some(found))
}

fn in_variable(option: &str, variable: &str) -> Result<String> {
    if variable.is_empty() {
        return Err(invalid(format!(
            "option {option} lacks a name: write {option}=VARIABLE, without the $ of a shell"
        )));
    }
    let problem = match std::env::var(variable) {
        Ok(value) if value.is_empty() => "which is empty",
        Ok(value) => return Ok(value),
        Err(VarError::NotPresent) => "which is not set",
        // Its text says the value.
        Err(VarError::NotUnicode(_)) => "which is not UTF-8 text",
    };
    Err(invalid(format!("option {option} names the variable {variable}, {problem}")))
}

fn in_file(option: &str, path: &str) -> Result<String> {
    if path.is_empty() {
        return Err(invalid(format!("option {option} lacks a name: write {option}=/path/of/a/file")));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| invalid(format!("option {option} names {path:?}, which cannot be read: {error}")))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(invalid(format!("option {option} names {path:?}, which is empty")));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &str, in_url: Option<&str>) -> Result<Option<String>> {
        let mut url = EngineUrl::parse(&format!("redis://h?{options}")).unwrap();
        let secret = secret(&mut url, "password", in_url);
        url.finish("").unwrap();
        secret
    }

    #[test]
    fn a_secret_is_in_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            format!("password-file={}", path.display())
        };
        let (full, empty) = (file("full", b"hunter2\r\n"), file("empty", b"\n"));
        assert_eq!(read(&full, None).unwrap().as_deref(), Some("hunter2"));
        assert_eq!(read(&full, Some("")).unwrap().as_deref(), Some("hunter2"));
        assert_eq!(read("", Some("hunter2")).unwrap(), None);
        for (options, in_url, said) in [
            (&*full, Some("hunter3"), "a password is in the URL, and option password-file"),
            (&empty, None, "which is empty"),
            (&file("bytes", b"hunter2\xff"), None, "cannot be read"),
            (
                &format!("{full}&password-env=PW"),
                None,
                "only one of the options password-env and password-file",
            ),
            ("password-file=", None, "lacks a name"),
            ("password-env=", None, "lacks a name"),
            ("password-env=NO_SUCH_VARIABLE_HERE", None, "NO_SUCH_VARIABLE_HERE, which is not set"),
        ] {
            let message = read(options, in_url).unwrap_err().to_string();
            assert!(message.contains(said) && !message.contains("hunter"), "{options}: {message}");
        }
    }
}
