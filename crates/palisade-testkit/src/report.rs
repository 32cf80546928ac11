use std::fmt;
use std::time::Duration;

/// What became of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The engine does what the clause says.
    Passed,
    /// It does not, or not in time.
    Failed(String),
    /// Its profile does not promise it; this is why.
    NotApplicable(String),
}

/// One case that was run, or not.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The case.
    pub case: String,
    /// What became of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// All cases of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The fixture's name.
    pub engine: String,
    /// By name of the case.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// The names of the cases that failed, with their reasons.
    pub fn failed(&self) -> Vec<(&str, &str)> {
        self.pick(|verdict| match verdict {
            Verdict::Failed(why) => Some(why.as_str()),
            Verdict::Passed | Verdict::NotApplicable(_) => None,
        })
    }

    /// The names of the cases that did not apply, with their reasons.
    pub fn not_applicable(&self) -> Vec<(&str, &str)> {
        self.pick(|verdict| match verdict {
            Verdict::NotApplicable(why) => Some(why.as_str()),
            Verdict::Passed | Verdict::Failed(_) => None,
        })
    }

    /// How many cases passed.
    pub fn passed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Passed).count()
    }

    fn pick<'a>(&'a self, why: impl Fn(&'a Verdict) -> Option<&'a str>) -> Vec<(&'a str, &'a str)> {
        let picked = self.outcomes.iter();
        picked.filter_map(|outcome| Some((outcome.case.as_str(), why(&outcome.verdict)?))).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, why) in self.failed() {
            writeln!(f, "failed: {case}: {why}")?;
        }
        for (case, why) in self.not_applicable() {
            writeln!(f, "not applicable: {case}: {why}")?;
        }
        let (failed, other) = (self.failed().len(), self.not_applicable().len());
        write!(f, "{}: {} passed, {failed} failed, {other} not applicable", self.engine, self.passed())
    }
}
