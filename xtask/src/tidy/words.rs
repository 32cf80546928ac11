use std::path::Path;

/// Marks of unfinished work. Written in two parts, so that this file is no finding of its own.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("#[", "ignore"),
];

/// Folders of some machine that nobody else has.
const MACHINE: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

/// Checks that a file leaves no work undone and names no folder of its author's machine.
pub(crate) fn check(path: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{}:{}", path.display(), number + 1);
        let unfinished = UNFINISHED.iter().filter(|mark| line.contains(*mark));
        problems.extend(unfinished.map(|mark| format!("{place}: {mark}: finish it, or open an issue")));
        let machine = MACHINE.iter().filter(|folder| names_root_folder(line, folder));
        problems.extend(machine.map(|folder| format!("{place}: {folder} is a folder of one machine")));
    }
    problems
}

/// Whether `folder` is meant from the root, not as the end of a longer path or URL.
fn names_root_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "._-~}*".contains(c)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> usize {
        check(Path::new("x.rs"), line).len()
    }

    #[test]
    fn unfinished_work_is_found() {
        for mark in UNFINISHED {
            assert_eq!(found(&format!("    {mark} later")), 1, "{mark}");
        }
        assert_eq!(found("a method to do it"), 0);
    }

    #[test]
    fn folders_of_one_machine_are_found() {
        for folder in MACHINE {
            assert_eq!(found(&format!("open(\"{folder}x\")")), 1);
            assert_eq!(found(&format!("{folder}x")), 1);
            assert_eq!(found(&format!("file:{folder}x")), 1);
            assert_eq!(found(&format!("https://example.org{folder}x")), 0);
            assert_eq!(found(&format!("a/b{folder}x")), 0);
        }
    }
}
