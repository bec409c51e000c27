//! A client on the Rust SDK, in the era that it is told: `legacy` or `auto`. Steps in, answers out, as in `clients/play.mjs`.

use std::sync::Arc;

use rmcp::model::{
    ClientConfig, CreateMessageRequestParams, CreateMessageResult, ProgressNotificationParam,
    ProtocolVersion, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService, ServiceError};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::process::Command;

type Fault = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Fault> {
    let told: Value = serde_json::from_str(&std::env::args().nth(1).ok_or("nothing was told")?)?;
    let mut held = Vec::new();
    let session = match connect(&told).await {
        Ok(session) => session,
        Err(fault) => {
            say(&json!({ "error": { "message": fault.to_string() } }));
            return Ok(());
        }
    };
    say(&json!({ "answer": session.peer_info().map(Arc::unwrap_or_clone) }));
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let mut step: Value = serde_json::from_str(&line)?;
        let params = step["params"].take();
        let method = step["method"].as_str().ok_or("a step has a method")?;
        let answer = if method == "subscriptions/listen" {
            listen(&session, params, &mut held).await
        } else {
            ask(&session, method, params).await
        };
        say(&match answer {
            Ok(answer) => json!({ "answer": answer }),
            Err(ServiceError::McpError(error)) => json!({ "error": error }),
            Err(fault) => json!({ "error": { "message": fault.to_string() } }),
        });
    }
    drop(held);
    session.cancel().await?;
    Ok(())
}

async fn connect(told: &Value) -> Result<RunningService<RoleClient, Model>, Fault> {
    let lifecycle = match told["era"].as_str() {
        Some("auto") => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        },
        _ => ClientLifecycleMode::Initialize,
    };
    if let Some(url) = told["url"].as_str() {
        let server = StreamableHttpClientTransport::from_uri(url);
        return Ok(Model.serve_with_lifecycle(server, lifecycle).await?);
    }
    let mut command = Command::new(told["command"].as_str().ok_or("no command")?);
    for argument in told["args"].as_array().into_iter().flatten() {
        command.arg(argument.as_str().ok_or("an argument is text")?);
    }
    for (name, value) in told["env"].as_object().into_iter().flatten() {
        command.env(name, value.as_str().ok_or("a variable is text")?);
    }
    let server = TokioChildProcess::new(command)?;
    Ok(Model.serve_with_lifecycle(server, lifecycle).await?)
}

async fn ask(
    session: &RunningService<RoleClient, Model>,
    method: &str,
    params: Value,
) -> Result<Value, ServiceError> {
    match method {
        "tools/list" => session.list_tools(None).await.map(plain),
        "tools/call" => session.call_tool(typed(params)).await.map(plain),
        "resources/list" => session.list_resources(None).await.map(plain),
        "resources/templates/list" => session.list_resource_templates(None).await.map(plain),
        "resources/read" => session.read_resource(typed(params)).await.map(plain),
        "resources/subscribe" => session.subscribe(typed(params)).await.map(plain),
        "resources/unsubscribe" => session.unsubscribe(typed(params)).await.map(plain),
        "prompts/list" => session.list_prompts(None).await.map(plain),
        "prompts/get" => session.get_prompt(typed(params)).await.map(plain),
        "completion/complete" => session.complete(typed(params)).await.map(plain),
        "logging/setLevel" => session.set_level(typed(params)).await.map(plain),
        other => panic!("{other} is not asked for here"),
    }
}

async fn listen(
    session: &RunningService<RoleClient, Model>,
    mut params: Value,
    held: &mut Vec<rmcp::service::Subscription>,
) -> Result<Value, ServiceError> {
    let filter: SubscriptionFilter = typed(params["notifications"].take());
    let subscription = session.listen(filter).await?;
    let acknowledged = plain(subscription.acknowledged());
    held.push(subscription);
    Ok(acknowledged)
}

/// The callbacks that the SDK requires of a client.
struct Model;

impl ClientHandler for Model {
    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Ok(typed(json!({
            "model": "none", "role": "assistant", "content": { "type": "text", "text": "a sample" },
        })))
    }

    async fn on_progress(
        &self,
        heard: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let (progress, total, message) = (heard.progress, heard.total, heard.message);
        say(&json!({ "progress": { "progress": progress, "total": total, "message": message } }));
    }

    fn get_info(&self) -> ClientConfig {
        typed(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "sampling": {} },
            "clientInfo": { "name": "interop", "version": "1.0.0" },
        }))
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a step is what its method takes")
}

fn plain(value: impl Serialize) -> Value {
    serde_json::to_value(value).expect("a result is JSON")
}

fn say(line: &Value) {
    println!("{line}");
}
