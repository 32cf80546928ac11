use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::proto::{LeaseRequest, LeaseResponse, path};
use crate::wire::Wire;

/// The keep-alives of all leases of a connection, over one stream.
#[derive(Debug)]
pub(crate) struct Beats {
    /// Holds at most a message per call that is under way.
    asks: UnboundedSender<LeaseRequest>,
    asked: Arc<Asked>,
    task: Mutex<Option<Task>>,
    wire: Wire,
}

/// Who waits for an answer, by lease, in the order asked.
type Asked = Mutex<HashMap<i64, VecDeque<oneshot::Sender<LeaseResponse>>>>;

#[derive(Debug)]
enum Task {
    /// The stream is opened with the first message: the server says nothing before.
    Waiting(UnboundedReceiver<LeaseRequest>),
    Running(AbortHandle),
}

impl Beats {
    pub(crate) fn new(wire: Wire) -> Self {
        let (asks, queue) = unbounded();
        Self { asks, asked: Arc::default(), task: Mutex::new(Some(Task::Waiting(queue))), wire }
    }

    /// Keeps a lease alive. `None` if the stream ended.
    pub(crate) async fn beat(&self, id: i64) -> Option<LeaseResponse> {
        let (said, answer) = oneshot::channel();
        self.asked.lock().entry(id).or_default().push_back(said);
        self.asks.unbounded_send(LeaseRequest { id }).ok()?;
        self.open();
        answer.await.ok()
    }

    fn open(&self) {
        let mut task = self.task.lock();
        match task.take() {
            Some(Task::Waiting(queue)) => {
                let reading = read(self.wire.clone(), queue, Arc::clone(&self.asked));
                *task = Some(Task::Running(tokio::spawn(reading).abort_handle()));
            }
            other => *task = other,
        }
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        if let Some(Task::Running(task)) = &*self.task.lock() {
            task.abort();
        }
    }
}

async fn read(wire: Wire, queue: UnboundedReceiver<LeaseRequest>, asked: Arc<Asked>) {
    let ended = async {
        let mut answers = wire.stream::<_, LeaseResponse>(path::LEASE_KEEP_ALIVE, queue).await?;
        while let Some(answer) = answers.message().await? {
            let first = asked.lock().get_mut(&answer.id).and_then(VecDeque::pop_front);
            if let Some(waiting) = first {
                let _ = waiting.send(answer);
            }
        }
        Ok::<_, tonic::Status>(())
    };
    if let Err(status) = ended.await {
        tracing::debug!(%status, "the keep-alive stream ended");
    }
    // Whoever still waits hears that no answer will come.
    asked.lock().clear();
}
