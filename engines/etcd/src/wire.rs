use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tonic::codegen::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, TE};
use tonic::codegen::http::uri::{Authority, PathAndQuery, Scheme};
use tonic::codegen::http::{self, Method, Uri, Version};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// What requests are sent over.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    over: Over,
    /// Proof of who we are, where the server asks for it.
    token: Option<HeaderValue>,
}

#[derive(Debug, Clone)]
enum Over {
    /// The library's, for connections that are encrypted.
    Library(Channel),
    /// Our own, for those that are not: the library hands every request to three tasks, which write it to the
    /// socket in as many parts. That is a tenth of what a lock takes.
    Plain(Plain),
}

#[derive(Debug, Clone)]
struct Plain {
    requests: SendRequest<Bytes>,
    authority: Authority,
    /// Ends the connection with the last who could use it.
    _task: Arc<Task>,
}

/// Ends a task when dropped.
#[derive(Debug)]
pub(crate) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How much a server may send ahead of our reading it.
pub(crate) const WINDOW: u32 = 4 << 20;

impl Wire {
    pub(crate) fn library(channel: Channel) -> Self {
        Self { over: Over::Library(channel), token: None }
    }

    /// Connects to `host:port` without encryption.
    pub(crate) async fn plain(server: &str) -> io::Result<Self> {
        let authority = server.parse().map_err(io::Error::other)?;
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut settings = h2::client::Builder::new();
        settings.enable_push(false).initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (requests, connection) = settings.handshake(stream).await.map_err(io::Error::other)?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection ended");
            }
        });
        let task = Arc::new(Task(task.abort_handle()));
        Ok(Self { over: Over::Plain(Plain { requests, authority, _task: task }), token: None })
    }

    /// Proves who we are from now on.
    pub(crate) fn log_in(&mut self, token: &str) -> Result<(), Status> {
        let token = HeaderValue::from_str(token).map_err(|error| Status::from_error(error.into()))?;
        self.token = Some(token);
        Ok(())
    }

    /// Sends a request, and waits for its answer.
    pub(crate) async fn unary<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let channel = match &self.over {
            Over::Library(channel) => channel,
            Over::Plain(plain) => return plain.unary(path, &message, self.token.as_ref()).await,
        };
        let mut grpc = grpc(channel);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(self.request(message), PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }

    /// Opens a stream. The server says nothing before the first message.
    pub(crate) async fn stream<Q, A>(
        &self,
        path: &'static str,
        messages: UnboundedReceiver<Q>,
    ) -> Result<Incoming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let channel = match &self.over {
            Over::Library(channel) => channel,
            Over::Plain(plain) => return plain.stream(path, messages, self.token.as_ref()).await,
        };
        let mut grpc = grpc(channel);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let mut request = self.request(messages);
        request.metadata_mut().insert(HAS_LEADER, MetadataValue::from_static("true"));
        let codec = ProstCodec::<Q, A>::default();
        let answers = grpc.streaming(request, PathAndQuery::from_static(path), codec).await?;
        Ok(Incoming::Library(answers.into_inner()))
    }

    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        if let Some(token) =
            self.token.as_ref().and_then(|token| MetadataValue::try_from(token.as_bytes()).ok())
        {
            request.metadata_mut().insert(TOKEN, token);
        }
        request
    }
}

const TOKEN: &str = "token";

/// With it a server that is cut off from the others ends a stream, instead of staying silent.
const HAS_LEADER: &str = "hasleader";

fn grpc(channel: &Channel) -> tonic::client::Grpc<Channel> {
    // The server bounds what it sends by what it stores.
    tonic::client::Grpc::new(channel.clone())
        .max_decoding_message_size(usize::MAX)
        .max_encoding_message_size(usize::MAX)
}

impl Plain {
    fn head(&self, path: &'static str, token: Option<&HeaderValue>) -> Result<http::Request<()>, Status> {
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(PathAndQuery::from_static(path))
            .build()
            .map_err(|error| Status::from_error(error.into()))?;
        let mut head = http::Request::new(());
        *head.method_mut() = Method::POST;
        *head.uri_mut() = uri;
        *head.version_mut() = Version::HTTP_2;
        head.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        if let Some(token) = token {
            head.headers_mut().insert(HeaderName::from_static(TOKEN), token.clone());
        }
        Ok(head)
    }

    /// Head and message are handed over before the connection's task can run: it sends both at once.
    async fn unary<Q, A>(
        &self,
        path: &'static str,
        message: &Q,
        token: Option<&HeaderValue>,
    ) -> Result<A, Status>
    where
        Q: Message,
        A: Message + Default,
    {
        let head = self.head(path, token)?;
        let mut requests = self.requests.clone().ready().await.map_err(lost)?;
        let (answer, mut body) = requests.send_request(head, false).map_err(lost)?;
        body.send_data(framed(message), true).map_err(lost)?;
        let mut incoming = Reply::of(answer).await?;
        let Some(message) = incoming.message().await? else {
            return Err(Status::internal("the server answered nothing"));
        };
        match incoming.message::<A>().await? {
            None => Ok(message),
            Some(_) => Err(Status::internal("the server answered twice")),
        }
    }

    async fn stream<Q, A>(
        &self,
        path: &'static str,
        messages: UnboundedReceiver<Q>,
        token: Option<&HeaderValue>,
    ) -> Result<Incoming<A>, Status>
    where
        Q: Message + 'static,
    {
        let mut head = self.head(path, token)?;
        head.headers_mut().insert(HeaderName::from_static(HAS_LEADER), HeaderValue::from_static("true"));
        let mut requests = self.requests.clone().ready().await.map_err(lost)?;
        let (answer, body) = requests.send_request(head, false).map_err(lost)?;
        let sender = Task(tokio::spawn(send_all(body, messages)).abort_handle());
        let reply = Reply::of(answer).await?;
        Ok(Incoming::Plain { reply, _sender: sender, of: PhantomData })
    }
}

async fn send_all<Q: Message>(mut body: SendStream<Bytes>, mut messages: UnboundedReceiver<Q>) {
    while let Some(message) = messages.next().await {
        // Whoever reads the answers hears why.
        if body.send_data(framed(&message), false).is_err() {
            return;
        }
    }
    let _ = body.send_data(Bytes::new(), true);
}

/// A message as gRPC has it: not compressed, its length, itself.
fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(HEAD + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode(&mut frame).expect("a buffer grows as needed");
    frame.freeze()
}

const HEAD: usize = 5;

/// What a server says over a stream.
#[derive(Debug)]
pub(crate) enum Incoming<A> {
    Library(tonic::Streaming<A>),
    Plain { reply: Reply, _sender: Task, of: PhantomData<fn() -> A> },
}

impl<A: Message + Default + 'static> Incoming<A> {
    /// The next message; none once the server has no more to say.
    pub(crate) async fn message(&mut self) -> Result<Option<A>, Status> {
        match self {
            Self::Library(answers) => answers.message().await,
            Self::Plain { reply, .. } => reply.message().await,
        }
    }
}

/// The answer to one request, as it comes in.
#[derive(Debug)]
pub(crate) struct Reply {
    body: RecvStream,
    /// What has come, and is no whole message yet.
    part: BytesMut,
}

impl Reply {
    async fn of(answer: h2::client::ResponseFuture) -> Result<Self, Status> {
        let (head, body) = answer.await.map_err(lost)?.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(Status::from_error(io::Error::other(format!("it answers {}", head.status)).into()));
        }
        // An error may come without a body.
        match Status::from_header_map(&head.headers) {
            Some(status) if status.code() != Code::Ok => Err(status),
            _ => Ok(Self { body, part: BytesMut::new() }),
        }
    }

    async fn message<A: Message + Default>(&mut self) -> Result<Option<A>, Status> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
            let Some(chunk) = self.body.data().await else { return self.end().await.map(|()| None) };
            let chunk = chunk.map_err(lost)?;
            self.body.flow_control().release_capacity(chunk.len()).map_err(lost)?;
            self.part.extend_from_slice(&chunk);
        }
    }

    /// The first message, if all of it has come.
    fn whole<A: Message + Default>(&mut self) -> Result<Option<A>, Status> {
        let Some(mut head) = self.part.get(..HEAD) else { return Ok(None) };
        if head.get_u8() != 0 {
            return Err(Status::internal("the answer is compressed, which was not asked for"));
        }
        let length = head.get_u32() as usize;
        if self.part.len() - HEAD < length {
            return Ok(None);
        }
        self.part.advance(HEAD);
        let message = self.part.split_to(length).freeze();
        A::decode(message).map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    async fn end(&mut self) -> Result<(), Status> {
        let trailers = self.body.trailers().await.map_err(lost)?;
        match trailers.as_ref().and_then(Status::from_header_map) {
            Some(status) if status.code() == Code::Ok => Ok(()),
            Some(status) => Err(status),
            None => Err(Status::internal("the answer has no end")),
        }
    }
}

fn lost(error: h2::Error) -> Status {
    Status::from_error(error.into())
}
