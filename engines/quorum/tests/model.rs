//! The protocol as a small machine, every run of which is looked at.
//!
//! Two clients, three nodes, one register. Grants end at any moment, so that every pause of a client
//! and every jump of a clock is among the runs. One node may restart, with its data, before its
//! answer is out. No hints: each client asks with a clock that is far behind, which is the worst case
//! for tokens.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

const NODES: usize = 3;
const CLIENTS: usize = 2;
const MAJORITY: usize = 2;
/// A claim that must write back to more nodes than this is given up.
const ROUNDS: u8 = 1;

/// Which protocol to look at.
#[derive(Debug, Clone, Copy)]
struct Redlock {
    /// The register checks tokens.
    fenced: bool,
    /// A token is handed out only once a majority stores it.
    writes_back: bool,
    /// A client that counts its votes still has them: the assumption about clocks.
    clocks_agree: bool,
    /// How many claims each client makes.
    claims: [u8; CLIENTS],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    nodes: [Server; NODES],
    clients: [Client; CLIENTS],
    register: Register,
    restarts: u8,
    /// The greatest token handed out so far.
    greatest: u8,
    /// How many tokens were handed out so far.
    turns: u8,
    /// A token was not greater than one handed out before its claim was made.
    fell: bool,
    /// A token was not greater than one handed out before it.
    out_of_turn: bool,
    /// A write was taken after that of a later holder.
    stale: bool,
}

/// A node: who holds its vote, and the last token that it gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Server {
    holder: Option<u8>,
    counter: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Client {
    claims: u8,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum State {
    #[default]
    Idle,
    Asking {
        votes: [Option<u8>; NODES],
        asked: [bool; NODES],
        /// How often it wrote back.
        rounds: u8,
        /// The greatest token handed out before the claim was made.
        after: u8,
    },
    /// It believes that it holds, until it has written; nothing makes it look at a clock again.
    Holding { token: u8, turn: u8 },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Register {
    /// The greatest token seen.
    mark: u8,
    /// The turn of whoever wrote last.
    turn: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Begin(usize),
    Ask(usize, usize),
    /// As `Ask`, but the node restarts, with its data, before its answer is out.
    AskInVain(usize, usize),
    WriteBack(usize, usize),
    HandOut(usize),
    GiveUp(usize),
    Write(usize),
    /// A grant ends on a node: its TTL has passed, or it was withdrawn.
    End(usize),
}

impl Redlock {
    /// The token that may be handed out for these votes, or the one to write back: as in `token.rs`.
    fn choose(self, votes: [Option<u8>; NODES]) -> Option<Result<u8, u8>> {
        let mut given: Vec<u8> = votes.iter().flatten().copied().collect();
        given.sort_unstable();
        let (least, greatest) = (*given.get(MAJORITY - 1)?, *given.last()?);
        let stored = given.iter().filter(|vote| **vote >= least).count();
        Some(match (self.writes_back, stored >= MAJORITY) {
            (true, true) => Ok(least),
            (true, false) => Err(greatest),
            // Without the rule: the largest, whoever stores it.
            (false, _) => Ok(greatest),
        })
    }
}

/// Asks a node for its vote; `None` if another has it.
fn ask(server: &mut Server, client: u8, floor: u8) -> Option<u8> {
    if server.holder.is_some_and(|holder| holder != client) {
        return None;
    }
    server.holder = Some(client);
    server.counter = server.counter.max(floor) + 1;
    Some(server.counter)
}

impl Model for Redlock {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            nodes: Default::default(),
            clients: Default::default(),
            register: Register::default(),
            restarts: 0,
            greatest: 0,
            turns: 0,
            fell: false,
            out_of_turn: false,
            stale: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, client) in world.clients.iter().enumerate() {
            match &client.state {
                State::Idle if client.claims < self.claims[at] => actions.push(Action::Begin(at)),
                State::Idle => {}
                State::Holding { .. } => actions.push(Action::Write(at)),
                State::Asking { votes, asked, rounds, .. } => {
                    actions.push(Action::GiveUp(at));
                    for node in (0..NODES).filter(|node| !asked[*node]) {
                        actions.push(Action::Ask(at, node));
                        if world.restarts == 0 {
                            actions.push(Action::AskInVain(at, node));
                        }
                    }
                    match self.choose(*votes) {
                        Some(Ok(_)) => actions.push(Action::HandOut(at)),
                        Some(Err(target)) if *rounds < ROUNDS => {
                            let below =
                                (0..NODES).filter(|node| votes[*node].is_some_and(|vote| vote < target));
                            actions.extend(below.map(|node| Action::WriteBack(at, node)));
                        }
                        Some(Err(_)) | None => {}
                    }
                }
            }
        }
        let held = (0..NODES).filter(|node| world.nodes[*node].holder.is_some());
        actions.extend(held.map(Action::End));
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::End(node) => next.nodes[node].holder = None,
            Action::Begin(at) => next.begin(at),
            Action::GiveUp(at) => next.clients[at].state = State::Idle,
            Action::Ask(at, node) => next.ask(at, node, true),
            Action::AskInVain(at, node) => {
                next.ask(at, node, false);
                next.restarts += 1;
            }
            Action::WriteBack(at, node) => next.write_back(*self, at, node),
            Action::HandOut(at) => next.hand_out(*self, at)?,
            Action::Write(at) => next.write(*self, at),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(STALE, |_, world: &World| !world.stale),
            Property::always(FALLS, |_, world: &World| !world.fell),
            Property::always("tokens rise from turn to turn", |_, world: &World| !world.out_of_turn),
            // That the above is not true for want of anything happening.
            Property::sometimes("both write", |_, world: &World| {
                world.turns >= 2 && world.register.turn >= 2
            }),
        ]
    }
}

impl World {
    /// The same world with its nodes in a certain order: they differ in nothing but their number.
    fn in_order(&self) -> Self {
        let mut order: [usize; NODES] = std::array::from_fn(|node| node);
        order.sort_by_key(|node| {
            let seen = self.clients.each_ref().map(|client| match &client.state {
                State::Asking { votes, asked, .. } => Some((votes[*node], asked[*node])),
                _ => None,
            });
            (self.nodes[*node].holder, self.nodes[*node].counter, seen)
        });
        let mut sorted = self.clone();
        sorted.nodes = order.map(|node| self.nodes[node]);
        for client in &mut sorted.clients {
            if let State::Asking { votes, asked, .. } = &mut client.state {
                (*votes, *asked) = (order.map(|node| votes[node]), order.map(|node| asked[node]));
            }
        }
        sorted
    }

    fn begin(&mut self, at: usize) {
        let after = self.greatest;
        self.clients[at].claims += 1;
        self.clients[at].state =
            State::Asking { votes: [None; NODES], asked: [false; NODES], rounds: 0, after };
    }

    fn ask(&mut self, at: usize, node: usize, heard: bool) {
        let vote = ask(&mut self.nodes[node], at as u8, 0);
        if let State::Asking { votes, asked, .. } = &mut self.clients[at].state {
            asked[node] = true;
            votes[node] = vote.filter(|_| heard);
        }
    }

    fn write_back(&mut self, redlock: Redlock, at: usize, node: usize) {
        let State::Asking { votes, rounds, .. } = &mut self.clients[at].state else { return };
        *rounds += 1;
        if let Some(Err(target)) = redlock.choose(*votes) {
            votes[node] = ask(&mut self.nodes[node], at as u8, target - 1);
        }
    }

    /// `None` if the client sees in time that its votes have ended.
    fn hand_out(&mut self, redlock: Redlock, at: usize) -> Option<()> {
        let State::Asking { votes, after, .. } = &self.clients[at].state else { return None };
        let Some(Ok(token)) = redlock.choose(*votes) else { return None };
        let ended = |node: usize| votes[node].is_some() && self.nodes[node].holder != Some(at as u8);
        if redlock.clocks_agree && (0..NODES).any(ended) {
            return None;
        }
        self.fell |= token <= *after;
        self.out_of_turn |= token <= self.greatest;
        self.greatest = self.greatest.max(token);
        // Without the assumption about clocks only tokens are looked at: fewer worlds.
        self.turns += u8::from(redlock.clocks_agree);
        self.clients[at].state = State::Holding { token, turn: self.turns };
        Some(())
    }

    fn write(&mut self, redlock: Redlock, at: usize) {
        let State::Holding { token, turn } = self.clients[at].state else { return };
        self.clients[at].state = State::Idle;
        if !redlock.clocks_agree || (redlock.fenced && token < self.register.mark) {
            return;
        }
        self.stale |= turn < self.register.turn;
        self.register = Register { mark: self.register.mark.max(token), turn: self.register.turn.max(turn) };
    }
}

const FENCED: Redlock = Redlock { fenced: true, writes_back: true, clocks_agree: true, claims: [1, 2] };

const STALE: &str = "no write of a former holder is taken";
const FALLS: &str = "tokens rise over claims made later";

/// Runs until a counterexample to `property` is found; the shortest one.
fn counterexample(redlock: Redlock, property: &'static str) -> Vec<Action> {
    let found = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = redlock.checker().threads(2).finish_when(found).spawn_bfs().join();
    let path = checker.assert_any_discovery(property).into_actions();
    println!("{property}: not so after {path:?}");
    path
}

#[test]
fn the_unfenced_protocol_takes_a_write_of_a_former_holder() {
    // Kleppmann's run: one holds and pauses, its grants end, another holds and writes, the first
    // goes on and writes.
    let path = counterexample(Redlock { fenced: false, ..FENCED }, STALE);
    assert!(path.iter().any(|action| matches!(action, Action::End(_))), "nothing ended in {path:?}");
    assert_eq!(path.iter().filter(|action| matches!(action, Action::Write(_))).count(), 2);
}

#[test]
fn the_fenced_protocol_takes_none() {
    let checker = FENCED.checker().threads(2).symmetry_fn(World::in_order).spawn_dfs().join();
    println!("{} states, {} of them unique", checker.state_count(), checker.unique_state_count());
    assert!(checker.is_done());
    checker.assert_properties();
}

#[test]
fn tokens_rise_over_claims_made_later_whatever_clocks_do() {
    let redlock = Redlock { clocks_agree: false, ..FENCED };
    let failed = HasDiscoveries::AnyOf(BTreeSet::from([FALLS]));
    let checker =
        redlock.checker().threads(2).symmetry_fn(World::in_order).finish_when(failed).spawn_dfs().join();
    println!("{} states, {} of them unique", checker.state_count(), checker.unique_state_count());
    checker.assert_no_discovery(FALLS);
}

#[test]
fn a_token_that_one_node_stores_can_fall() {
    counterexample(Redlock { writes_back: false, ..FENCED }, FALLS);
}
