/// Operations in an order, from which any can be taken out and put back where it was, in reverse.
#[derive(Debug)]
pub(super) struct Chain {
    next: Vec<u32>,
    prev: Vec<u32>,
}

impl Chain {
    /// A chain of `order`, out of `count` operations.
    pub(super) fn new(order: impl Iterator<Item = u32>, count: usize) -> Self {
        // Both ends meet in one place that is no operation. Whoever is not in the chain is one of
        // its own, so that taking it out changes nothing.
        let end = count as u32;
        let alone: Vec<u32> = (0..=end).collect();
        let mut chain = Self { next: alone.clone(), prev: alone };
        let mut last = end;
        for op in order {
            chain.next[last as usize] = op;
            chain.prev[op as usize] = last;
            last = op;
        }
        chain.next[last as usize] = end;
        chain.prev[count] = last;
        chain
    }

    fn some(&self, op: u32) -> Option<u32> {
        (op as usize + 1 != self.next.len()).then_some(op)
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.some(self.next[self.next.len() - 1])
    }

    /// What follows `op`, also while `op` itself is out.
    pub(super) fn after(&self, op: u32) -> Option<u32> {
        self.some(self.next[op as usize])
    }

    pub(super) fn take(&mut self, op: u32) {
        let (prev, next) = (self.prev[op as usize], self.next[op as usize]);
        self.next[prev as usize] = next;
        self.prev[next as usize] = prev;
    }

    /// Puts back what was taken last.
    pub(super) fn put_back(&mut self, op: u32) {
        let (prev, next) = (self.prev[op as usize], self.next[op as usize]);
        self.next[prev as usize] = op;
        self.prev[next as usize] = op;
    }
}
