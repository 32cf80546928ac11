//! Files that say too little, or what only a later version could read.

use crate::check::ModelKind;
use crate::check::file::{FileError, FileVerdict, check_file};
use crate::check::linear::Budget;

fn check(text: &str, model: ModelKind) -> Result<FileVerdict, FileError> {
    check_file(text, model, Budget::default())
}

#[test]
fn a_history_that_shows_nothing_is_not_called_linearizable() {
    let acquire =
        r#"{"event":"call","op":1,"process":1,"at":1,"key":"x","call":"acquire","mode":"exclusive"}"#;
    let failed = r#"{"event":"return","op":1,"at":2,"answer":"failed","reason":"not to be had"}"#;
    let cases = [
        ("{:process 1, :type :invoke, :f :write, :value 1}".to_owned(), ModelKind::Register),
        ("{:process 1, :type :invoke, :f :read}".to_owned(), ModelKind::Register),
        (
            "{:process 1, :type :invoke, :f :write, :value 1}\n{:process 1, :type :fail, :f :write, :value 1}"
                .to_owned(),
            ModelKind::Register,
        ),
        (
            "{:process 1, :type :invoke, :f :write, :value 1}\n{:process 1, :type :info, :f :write, :value 1}"
                .to_owned(),
            ModelKind::Register,
        ),
        (format!("{acquire}\n"), ModelKind::FencedMutex),
        (format!("{acquire}\n{failed}\n"), ModelKind::FencedMutex),
    ];
    for (text, model) in cases {
        let verdict = check(&text, model).unwrap();
        assert!(!verdict.is_linearizable() && verdict.violated.is_empty(), "{text}: {verdict}");
        assert!(verdict.to_string().starts_with("undecided: the history shows nothing"), "{text}: {verdict}");
    }
}

#[test]
fn a_history_of_a_later_format_is_refused() {
    let begin = |format: &str| {
        format!(
            r#"{{"event":"begin",{format}"engine":"memory:","seed":1,"command":"palisade verify","ttl_ms":1000}}"#
        )
    };
    for (format, line) in [(r#""format":2,"#, 1), ("", 1), (r#""format":2,"#, 2)] {
        // A later format may have events that are unknown here: that is not the problem.
        let after = r#"{"event":"something_new"}"#;
        let text = format!("{}{}\n{after}\n", "\n".repeat(line - 1), begin(format));
        let Err(FileError::NoHistory(why)) = check(&text, ModelKind::Mutex) else { panic!("{text}") };
        assert!(why.starts_with(&format!("line {line}: its format is")), "{why}");
    }
    let nothing = check(&format!("{}\n", begin(r#""format":1,"#)), ModelKind::Mutex);
    assert!(matches!(nothing, Err(FileError::WrongModel(_))), "{nothing:?}");
}
