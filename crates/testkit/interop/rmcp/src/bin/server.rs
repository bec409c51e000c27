//! A server on the Rust SDK: the same tools, resources and prompts as `servers/python.py`, and also levels and subscriptions. It
//! speaks stdio, or HTTP if `INTEROP_PORT` is set. Over HTTP it reports on stderr which sessions it has opened and closed.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::transport::stdio;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Context = RequestContext<RoleServer>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Ok(port) = std::env::var("INTEROP_PORT") {
        return over_http(port.parse()?).await;
    }
    Interop.serve(stdio()).await?.waiting().await?;
    Ok(())
}

async fn over_http(port: u16) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let sessions = Arc::new(LocalSessionManager::default());
    let service = TowerToHyperService::new(StreamableHttpService::new(
        || Ok(Interop),
        Arc::clone(&sessions),
        StreamableHttpServerConfig::default(),
    ));
    let known = Arc::new(Mutex::new(HashSet::new()));
    loop {
        let (socket, _) = listener.accept().await?;
        let (service, sessions, known) = (service.clone(), sessions.clone(), known.clone());
        let answer = service_fn(move |request| {
            let (service, sessions, known) = (service.clone(), sessions.clone(), known.clone());
            async move {
                let answered = service.call(request).await;
                // The SDK's own session is noted before the client can know the answer.
                let open: HashSet<_> = sessions.sessions.read().await.keys().cloned().collect();
                let before = std::mem::replace(&mut *known.lock().unwrap(), open.clone());
                for new in open.difference(&before) {
                    eprintln!("opened {new}");
                }
                for gone in before.difference(&open) {
                    eprintln!("closed {gone}");
                }
                Ok::<_, Infallible>(answered?)
            }
        });
        // A client that drops its connection does not concern the server.
        tokio::spawn(async move {
            drop(
                http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), answer)
                    .await,
            )
        });
    }
}

struct Interop;

impl ServerHandler for Interop {
    fn get_info(&self) -> ServerConfig {
        typed(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "logging": {},
                "prompts": {},
                "resources": { "subscribe": true },
                "tools": { "listChanged": true },
            },
            "serverInfo": { "name": "interop", "version": "1.0.0" },
            "instructions": "Say something.",
        }))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name: &str, input: Value, annotations: Value| json!({ "name": name, "annotations": annotations, "inputSchema": { "type": "object", "properties": input } });
        let read_only = json!({ "readOnlyHint": true });
        Ok(complete(json!({ "tools": [
            tool("echo", json!({ "message": { "type": "string" } }), read_only),
            tool("big", json!({ "bytes": { "type": "integer" } }), json!({})),
            tool("slow", json!({ "seconds": { "type": "number" }, "steps": { "type": "integer" } }), json!({})),
            tool("fail", json!({ "why": { "type": "string" } }), json!({})),
        ] })))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let input = Value::from(request.arguments.unwrap_or_default());
        let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
        let result = match &*request.name {
            "echo" => text(input["message"].as_str().unwrap_or_default()),
            "big" => text(&"m".repeat(number(&input["bytes"]) as usize)),
            "slow" => {
                let steps = number(&input["steps"]);
                let pause = Duration::from_secs_f64(number(&input["seconds"]) / steps);
                for step in 0..steps as u32 {
                    progress(&context, f64::from(step), steps).await;
                    tokio::time::sleep(pause).await;
                }
                text(&format!("done in {steps} steps"))
            }
            "fail" => {
                let mut failed = text(input["why"].as_str().unwrap_or_default());
                failed["isError"] = true.into();
                failed
            }
            other => {
                let message = format!("unknown tool: {other}");
                return Err(ErrorData::invalid_params(message, None));
            }
        };
        Ok(complete::<CallToolResult>(result).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(complete(
            json!({ "resources": [{ "uri": "memo://greeting", "name": "greeting" }] }),
        ))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = json!({ "uriTemplate": "memo://greeting/{name}", "name": "greeting_for" });
        Ok(complete(json!({ "resourceTemplates": [template] })))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = match request.uri.strip_prefix("memo://greeting") {
            Some("") => "hello, wörld".to_owned(),
            Some(name) if name.starts_with('/') => format!("hello, {}", &name[1..]),
            _ => {
                let about = Some(json!({ "uri": request.uri }));
                return Err(ErrorData::resource_not_found("no such memo", about));
            }
        };
        let contents = json!([{ "uri": request.uri, "mimeType": "text/plain", "text": text }]);
        Ok(complete::<ReadResourceResult>(json!({ "contents": contents })).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        let arguments = json!([{ "name": "name", "required": true }]);
        let prompt =
            json!({ "name": "introduce", "description": "Who is it?", "arguments": arguments });
        Ok(complete(json!({ "prompts": [prompt] })))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let input = Value::from(request.arguments.unwrap_or_default());
        let text = format!("This is {}.", input["name"].as_str().unwrap_or("unknown"));
        let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
        Ok(complete::<GetPromptResult>(json!({ "messages": [message] })).into())
    }

    fn accepted_subscription_filter(
        &self,
        wanted: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(wanted.clone())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }
}

/// Reports the progress of a call if the caller asked for it.
async fn progress(context: &Context, done: f64, total: f64) {
    let Some(token) = context.meta.get_progress_token() else {
        return;
    };
    let told = ProgressNotificationParam::new(token, done)
        .with_total(total)
        .with_message(format!("step {done}"));
    // A client that disconnected meanwhile does not concern the call.
    drop(context.peer.notify_progress(told).await);
}

/// A result. For a client of the legacy era, the SDK does not mark it as complete.
fn complete<T: DeserializeOwned>(mut result: Value) -> T {
    result["resultType"] = "complete".into();
    typed(result)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("what is written here is what the SDK takes")
}
