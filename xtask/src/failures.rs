use std::io::{BufRead, BufReader, Read};

/// Passes on what tests print, line by line, and returns what it says of those that failed: in ten thousand lines
/// nobody finds them.
pub(crate) fn pass_on(output: impl Read, mut show: impl FnMut(&str)) -> Vec<String> {
    let mut failures = Failures::default();
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        show(&line);
        failures.read(&line);
    }
    failures.lines
}

/// What one harness after the other said of its failed tests.
#[derive(Debug, Default)]
struct Failures {
    lines: Vec<String>,
    within: bool,
}

impl Failures {
    /// A test says what became of it under its name; the list of failed names and the result come after all of them.
    fn read(&mut self, line: &str) {
        if line.starts_with("---- ") {
            self.within = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.within = false;
        }
        if self.within && !line.is_empty() {
            self.lines.push(line.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_told_again() {
        let output = "\
running 2 tests
test one ... ok
test two ... FAILED

failures:

---- two stdout ----

thread 'two' panicked at src/lib.rs:1:1:
it is not so


failures:
    two

test result: FAILED. 1 passed; 1 failed
     Running tests/other.rs
test three ... ok
";
        let mut shown = Vec::new();
        let told = pass_on(output.as_bytes(), |line| shown.push(line.to_owned()));
        assert_eq!(shown.join("\n"), output.trim_end());
        let expected = ["---- two stdout ----", "thread 'two' panicked at src/lib.rs:1:1:", "it is not so"];
        assert_eq!(told, expected);
    }
}
