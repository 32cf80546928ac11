//! Holds the cases to the contract's own words, both ways.

use std::collections::BTreeSet;

use crate::Case;

const CONTRACT: &str = include_str!("../../../palisade-core/src/engine.rs");

/// What the recipes promise is written where their users read it.
const RECIPES: &[&str] = &[
    include_str!("../../../palisade/src/guard.rs"),
    include_str!("../../../palisade/src/recipes/barrier.rs"),
    include_str!("../../../palisade/src/recipes/election.rs"),
    include_str!("../../../palisade/src/recipes/latch.rs"),
    include_str!("../../../palisade/src/recipes/many.rs"),
    include_str!("../../../palisade/src/recipes/mod.rs"),
    include_str!("../../../palisade/src/recipes/mutex.rs"),
    include_str!("../../../palisade/src/recipes/once.rs"),
    include_str!("../../../palisade/src/recipes/run.rs"),
    include_str!("../../../palisade/src/recipes/rw_lock.rs"),
    include_str!("../../../palisade/src/recipes/semaphore.rs"),
    include_str!("../../../palisade/src/register/fenced.rs"),
    include_str!("../../../palisade/src/register/mod.rs"),
    include_str!("../../../palisade/src/register/update.rs"),
];

/// Clauses without a case of their own, each with the reason.
const WITHOUT_A_CASE: &[(&str, &str)] = &[];

/// The text of all doc comments in one line.
fn normalised(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("///"));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Every point of a *Behaviour* list, and every *Cancel safety* paragraph.
fn clauses() -> Vec<String> {
    let (mut clauses, mut inside) = (Vec::<String>::new(), false);
    for line in CONTRACT.lines().map(str::trim) {
        let Some(text) = line.strip_prefix("///").map(str::trim) else {
            inside = false;
            continue;
        };
        match text {
            "# Behaviour" => inside = true,
            "# Cancel safety" => {
                inside = true;
                clauses.push(String::new());
            }
            _ if text.starts_with('#') || text.is_empty() => inside = false,
            _ if !inside => {}
            _ => match (text.strip_prefix("- "), clauses.last_mut()) {
                (Some(point), _) => clauses.push(point.to_owned()),
                (None, Some(last)) => *last = format!("{last} {text}").trim().to_owned(),
                (None, None) => {}
            },
        }
    }
    clauses
}

#[test]
fn every_case_quotes_the_contract() {
    let contract = normalised(CONTRACT);
    let recipes: String = RECIPES.iter().map(|text| normalised(text)).collect();
    let known = |case: &Case| {
        if case.name.starts_with("recipes::") {
            recipes.contains(case.clause)
        } else {
            contract.contains(case.clause)
        }
    };
    let strangers: Vec<_> = super::cases().into_iter().filter(|case| !known(case)).collect();
    assert!(strangers.is_empty(), "these quote words that the contract does not have: {strangers:#?}");
}

#[test]
fn every_clause_has_a_case() {
    let cases = super::cases();
    let covered = |clause: &str| {
        cases.iter().any(|case| clause.contains(case.clause))
            || WITHOUT_A_CASE.iter().any(|(known, _)| *known == clause)
    };
    let clauses = clauses();
    assert!(clauses.len() > 40, "the contract's lists were not found");
    let missing: Vec<_> = clauses.iter().filter(|clause| !covered(clause)).collect();
    assert!(missing.is_empty(), "no case quotes these clauses: {missing:#?}");
}

#[test]
fn names_are_unique() {
    let names: Vec<_> = super::cases().into_iter().map(|case| case.name).collect();
    let unique: BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
}
