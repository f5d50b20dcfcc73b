//! Routes the calls of the protocol to functions. The gRPC services are written by hand, because
//! the repository has no protobuf file to generate from.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::Message;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::messages::Empty;
use crate::provider::Provider;

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// Maximum message size in bytes, equal to Terraform's own limit. The plan of a large fleet is a
/// single message.
const LARGEST_MESSAGE: usize = 256 << 20;

/// Answers a unary call with a function of the decoded message.
fn unary<I, O, F>(
    request: http::Request<Body>,
    call: impl Fn(I) -> F + Clone + Send + Sync + 'static,
) -> Answer
where
    I: Message + Default + 'static,
    O: Message + Default + 'static,
    F: Future<Output = Result<O, Status>> + Send + 'static,
{
    Box::pin(async move {
        let service = tower::service_fn(move |request: Request<I>| {
            let answer = call(request.into_inner());
            async move { answer.await.map(Response::new) }
        });
        let codec = ProstCodec::<O, I>::default();
        let mut grpc = Grpc::new(codec).max_decoding_message_size(LARGEST_MESSAGE);
        Ok(grpc.unary(service, request).await)
    })
}

fn unimplemented() -> Answer {
    Box::pin(async { Ok(Status::unimplemented("not part of this provider").into_http()) })
}

impl NamedService for Provider {
    const NAME: &'static str = "tfplugin6.Provider";
}

impl tower::Service<http::Request<Body>> for Provider {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        let provider = self.clone();
        match request.uri().path().rsplit('/').next().unwrap_or_default() {
            "GetProviderSchema" => unary(request, move |_: Empty| provider.clone().schema()),
            "ValidateProviderConfig" => unary(request, move |_: Empty| {
                provider.clone().validate_provider()
            }),
            "ConfigureProvider" => unary(request, move |call| provider.clone().configure(call)),
            "ValidateResourceConfig" | "ValidateDataResourceConfig" => {
                unary(request, move |call| provider.clone().validate(call))
            }
            "UpgradeResourceState" => unary(request, move |call| provider.clone().upgrade(call)),
            "ReadResource" => unary(request, move |call| provider.clone().read(call)),
            "PlanResourceChange" => unary(request, move |call| provider.clone().plan(call)),
            "ApplyResourceChange" => unary(request, move |call| provider.clone().apply(call)),
            "ImportResourceState" => unary(request, move |call| provider.clone().import(call)),
            "ReadDataSource" => unary(request, move |call| provider.clone().read_data(call)),
            "StopProvider" => unary(request, move |_: Empty| provider.clone().stop()),
            _ => unimplemented(),
        }
    }
}

/// go-plugin's own service. The only call of the service asks the process to end.
#[derive(Clone, Debug)]
pub(crate) struct Controller(pub(crate) Arc<tokio::sync::Notify>);

impl NamedService for Controller {
    const NAME: &'static str = "plugin.GRPCController";
}

impl tower::Service<http::Request<Body>> for Controller {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        let end = Arc::clone(&self.0);
        unary(request, move |_: Empty| {
            end.notify_one();
            async { Ok(Empty {}) }
        })
    }
}
