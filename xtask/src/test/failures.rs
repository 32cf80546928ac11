/// A test that failed, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) test: String,
    pub(crate) said: Vec<String>,
}

/// Finds the failed tests in what a test program printed: in ten thousand lines nobody finds them.
///
/// A test says what became of it under its name; the list of failed names and the result come after all of them.
pub(crate) fn read_failures(output: &str) -> Vec<Failure> {
    let mut failures: Vec<Failure> = Vec::new();
    let mut within = false;
    for line in output.lines() {
        if let Some(test) = heading(line) {
            failures.push(Failure { test: test.to_owned(), said: Vec::new() });
            within = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            within = false;
        } else if within && !line.is_empty() {
            failures.last_mut().into_iter().for_each(|failure| failure.said.push(line.to_owned()));
        }
    }
    failures
}

/// The name in `---- a_name stdout ----` (the harness of Rust) or `---- a_name ----` (libtest-mimic).
fn heading(line: &str) -> Option<&str> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
    Some(name.strip_suffix(" stdout").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_found() {
        let output = "\
running 3 tests
test one ... ok
test two ... FAILED

failures:

---- two stdout ----

thread 'two' panicked at src/lib.rs:1:1:
it is not so

---- three ----
nor this

failures:
    two

test result: FAILED. 1 passed; 2 failed
";
        let failures = read_failures(output);
        let tests: Vec<&str> = failures.iter().map(|failure| failure.test.as_str()).collect();
        assert_eq!(tests, ["two", "three"]);
        assert_eq!(failures[0].said, ["thread 'two' panicked at src/lib.rs:1:1:", "it is not so"]);
        assert_eq!(failures[1].said, ["nor this"]);
    }
}
