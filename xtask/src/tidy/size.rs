use std::path::Path;

use super::source::code_of;

/// A file that is longer holds more than one idea.
const FILE_LINES: usize = 500;
/// A function that is longer does not fit on a screen.
const FUNCTION_LINES: usize = 70;

/// Checks the length of a Rust file without its tests, and of each function.
pub(crate) fn check(path: &Path, text: &str) -> Vec<String> {
    let code = code_of(text);
    let mut problems = Vec::new();
    let lines = text.lines().count() - test_lines(&code);
    if lines > FILE_LINES && !is_test(path) {
        problems.push(format!(
            "{} has {lines} lines without its tests, {FILE_LINES} are allowed",
            path.display()
        ));
    }
    for function in functions(&code).into_iter().filter(|function| function.lines > FUNCTION_LINES) {
        problems.push(format!(
            "{}:{}: fn {} has {} lines, {FUNCTION_LINES} are allowed",
            path.display(),
            function.line,
            function.name,
            function.lines,
        ));
    }
    problems
}

fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// Where it begins, from 1.
    line: usize,
    /// How many it has, from `fn` to its closing brace.
    lines: usize,
}

fn functions(code: &str) -> Vec<Function> {
    keyword(code, "fn")
        .filter_map(|at| {
            let after = code[at + 2..].trim_start();
            let name: String =
                after.chars().take_while(|c| c.is_alphanumeric() || "_$#".contains(*c)).collect();
            // `fn(u8)` is a type.
            if name.is_empty() {
                return None;
            }
            let (open, close) = body(&code[at..])?;
            debug_assert!(open < close);
            let lines = code[at..at + close].lines().count();
            Some(Function { name, line: code[..at].lines().count().max(1), lines })
        })
        .collect()
}

/// How many lines are modules that exist in tests only.
fn test_lines(code: &str) -> usize {
    let mut lines = 0;
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let at = from + found;
        let after = at + "#[cfg(test)]".len();
        let is_module = code[after..].trim_start().trim_start_matches("pub(crate) ").starts_with("mod ");
        from = after;
        if let Some((_, close)) = body(&code[after..]).filter(|_| is_module) {
            lines += code[at..after + close].lines().count();
            from = after + close;
        }
    }
    lines
}

/// Where the first block at the top level opens, and where it ends; `None` if a `;` comes first.
fn body(code: &str) -> Option<(usize, usize)> {
    let (mut inside, mut braces, mut open) = (0_usize, 0_usize, None);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' if open.is_none() => inside += 1,
            ')' | ']' if open.is_none() => inside = inside.saturating_sub(1),
            ';' if open.is_none() && inside == 0 => return None,
            '{' if inside == 0 => {
                open.get_or_insert(at);
                braces += 1;
            }
            '}' if open.is_some() => {
                braces -= 1;
                if braces == 0 {
                    return open.map(|open| (open, at + 1));
                }
            }
            _ => {}
        }
    }
    None
}

/// Where `word` stands alone.
fn keyword<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back();
        let after = code[*at + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(String, usize, usize)> {
        functions(&code_of(source)).into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn functions_are_measured_from_name_to_brace() {
        let source = "\n/// fn no()\npub fn a<const N: usize>(x: [u8; { 3 }]) -> [u8; 2]\nwhere\n    u8: Copy,\n{\n    \"}\";\n}\n";
        assert_eq!(found(source), [("a".to_owned(), 3, 6)]);
        assert_eq!(found("trait T { fn b(&self) -> [u8; 4]; fn c() {} }"), [("c".to_owned(), 1, 1)]);
        assert_eq!(found("type F = fn(u8) -> u8; const FN: F = f; struct S { f: fn() }"), []);
        let nested = "fn a() {\n    fn b() {\n    }\n}";
        assert_eq!(found(nested), [("a".to_owned(), 1, 4), ("b".to_owned(), 2, 2)]);
        assert_eq!(found("fn unclosed() {"), []);
    }

    #[test]
    fn long_functions_and_files_are_told_and_tests_do_not_count() {
        let long = format!("fn long() {{\n{}}}\n", "    a();\n".repeat(69));
        assert!(check(Path::new("a.rs"), &long)[0].contains("fn long has 71 lines"));
        let edge = format!("fn edge() {{\n{}}}\n", "    a();\n".repeat(68));
        assert_eq!(check(Path::new("a.rs"), &edge), Vec::<String>::new());
        let file = "const A: u8 = 1;\n".repeat(501);
        assert!(check(Path::new("src/a.rs"), &file)[0].contains("501 lines"));
        assert_eq!(check(Path::new("x/tests/a.rs"), &file), Vec::<String>::new());
        let tested = format!(
            "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
            "const A: u8 = 1;\n".repeat(500),
            "// x\n".repeat(90)
        );
        assert_eq!(check(Path::new("src/a.rs"), &tested), Vec::<String>::new());
    }
}
