use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use palisade_core::Name;
use tower_layer::Layer;
use tower_service::Service;

use super::{Fences, TOKEN_HEADER, TokenHeader};
use crate::FenceError;

/// Refuses requests of whoever lost its lock, before the handler runs.
///
/// The token comes in the header [`palisade-token`](TokenHeader). What the layer answers by itself:
///
/// | status | meaning |
/// |---|---|
/// | 400 | the header is no token's, is there twice, is of another resource than the request is about, or of a slot that cannot be |
/// | 409 | strict and spent already, or of another engine than the fence follows |
/// | 412 | stale: a later holder's request has been here; the token that counts is in the answer's `palisade-token-current` |
/// | 428 | the header is missing |
/// | 503 | the fence could not be asked |
///
/// The body says the same as JSON: `{"error":"stale","yours":"33","current":"34"}`; tokens are text, because other languages round
/// such numbers.
///
/// A request that is let in carries its [`TokenHeader`] among its extensions. A handler can still be overtaken while it runs: if it
/// writes to a database, let it [`admit`](crate::Fence::admit) the same token in its transaction. And the layer believes the
/// header: who may send which requests is for others to check.
///
/// ```
/// use palisade_fence::http::{FenceLayer, MemoryFences};
/// use palisade_core::Name;
/// // axum: Router::new().route("/cards/7/charge", post(charge)).layer(layer)
/// let layer = FenceLayer::new(MemoryFences::default())
///     .resource(|request| Name::new(format!("card:{}", request.uri.path().split('/').nth(2)?)).ok());
/// ```
#[derive(Clone)]
pub struct FenceLayer<F> {
    fences: F,
    resource: Option<Which>,
    strict: bool,
    optional: bool,
    slots: u32,
}

type Which = Arc<dyn Fn(&Parts) -> Option<Name> + Send + Sync>;

impl<F: Fences> FenceLayer<F> {
    /// Checks by what `fences` has seen. The resource is the one that the header names, unless [`FenceLayer::resource`] says which.
    pub fn new(fences: F) -> Self {
        Self { fences, resource: None, strict: false, optional: false, slots: 1024 }
    }

    /// Says from a request which resource it is about: then a token of any other is refused. Without it, whoever holds *some* lock
    /// could pass.
    #[must_use]
    pub fn resource(mut self, which: impl Fn(&Parts) -> Option<Name> + Send + Sync + 'static) -> Self {
        self.resource = Some(Arc::new(which));
        self
    }

    /// Lets each token pass once.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Lets requests without a token pass, such as those that only read.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// For semaphores of so many slots at most, instead of 1024: a token of a further one is refused. Each slot that was seen is
    /// remembered, so that a client which invents them would fill the memory, or the row.
    #[must_use]
    pub fn slots(mut self, most: u32) -> Self {
        self.slots = most;
        self
    }

    async fn check(&self, parts: &mut Parts) -> Result<(), Refused> {
        let Some(header) = sent(&parts.headers)? else {
            return if self.optional { Ok(()) } else { Err(Refused::missing()) };
        };
        if let Some(which) = &self.resource
            && which(parts).as_ref() != Some(header.resource())
        {
            return Err(Refused::malformed("the token is of another resource"));
        }
        if header.token().slot.is_some_and(|slot| slot >= self.slots) {
            return Err(Refused::malformed("no semaphore here has such a slot"));
        }
        let admitted = self.fences.admit(header.resource(), header.token(), self.strict).await;
        admitted.map_err(|error| Refused::by(&error))?;
        parts.extensions.insert(header);
        Ok(())
    }
}

fn sent(headers: &HeaderMap) -> Result<Option<TokenHeader>, Refused> {
    let mut all = headers.get_all(TOKEN_HEADER).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Refused::malformed("palisade-token is there twice")),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| Refused::malformed("palisade-token is no text"))?;
            text.parse().map(Some).map_err(|problem| Refused::malformed(&format!("{problem}")))
        }
    }
}

/// What is answered instead of the handler.
struct Refused {
    status: StatusCode,
    body: String,
    current: Option<HeaderValue>,
}

impl Refused {
    fn missing() -> Self {
        Self::new(StatusCode::PRECONDITION_REQUIRED, "missing", &[("header", TOKEN_HEADER.as_str())])
    }

    fn malformed(why: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", &[("why", why)])
    }

    fn by(error: &FenceError) -> Self {
        match error {
            FenceError::Stale { yours, current } => {
                let (yours, current) = (yours.to_string(), current.to_string());
                let fields = [("yours", &*yours), ("current", &*current)];
                let refused = Self::new(StatusCode::PRECONDITION_FAILED, "stale", &fields);
                Self { current: HeaderValue::try_from(current).ok(), ..refused }
            }
            FenceError::Spent { yours, current } => {
                let (yours, current) = (yours.to_string(), current.to_string());
                let fields = [("yours", &*yours), ("current", &*current)];
                let refused = Self::new(StatusCode::CONFLICT, "spent", &fields);
                Self { current: HeaderValue::try_from(current).ok(), ..refused }
            }
            FenceError::OtherSource { yours, current } => {
                let fields = [("yours", yours.as_str()), ("current", current.as_str())];
                Self::new(StatusCode::CONFLICT, "other-source", &fields)
            }
            // What the database said is not for whoever asks.
            FenceError::Db(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &[]),
        }
    }

    fn new(status: StatusCode, error: &str, fields: &[(&str, &str)]) -> Self {
        let pairs = std::iter::once(("error", error)).chain(fields.iter().copied());
        let pairs: Vec<String> =
            pairs.map(|(name, value)| format!("{}:{}", quoted(name), quoted(value))).collect();
        Self { status, body: format!("{{{}}}", pairs.join(",")), current: None }
    }

    fn answer<R: From<String>>(self) -> Response<R> {
        let mut response = Response::new(R::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(current) = self.current {
            headers.insert("palisade-token-current", current);
        }
        response
    }
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let letters = text.chars().map(|letter| match letter {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        control if control.is_control() => format!("\\u{:04x}", u32::from(control)),
        other => other.to_string(),
    });
    format!("\"{}\"", letters.collect::<String>())
}

impl<F: fmt::Debug> fmt::Debug for FenceLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fences, strict, optional, slots, .. } = self;
        let mut shown = f.debug_struct("FenceLayer");
        shown
            .field("fences", fences)
            .field("strict", strict)
            .field("optional", optional)
            .field("slots", slots)
            .finish_non_exhaustive()
    }
}

impl<S, F: Clone> Layer<S> for FenceLayer<F> {
    type Service = FenceService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        FenceService { inner, layer: self.clone() }
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Debug, Clone)]
pub struct FenceService<S, F> {
    inner: S,
    layer: FenceLayer<F>,
}

impl<S, F, B, R> Service<Request<B>> for FenceService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fences,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was asked whether it is ready is the one to be called; its clone may not be.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            match layer.check(&mut parts).await {
                Ok(()) => inner.call(Request::from_parts(parts, body)).await,
                Err(refused) => Ok(refused.answer()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_source_is_called_cannot_break_the_answer() {
        assert_eq!(quoted("a\"b\\c\nd ü"), r#""a\"b\\c\u000ad ü""#);
    }
}
