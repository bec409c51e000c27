//! Refusals of the machine as HTTP replies.

use hyper::StatusCode;
use mainstay_http_core::serve::front::Refused;
use mainstay_http_core::serve::words::Code;

use super::super::reply::Refusal;
use super::bad;

/// The answer to a request that the machine refuses.
pub fn refusal(refused: Refused) -> Refusal {
    let params = |message| Refusal::new(StatusCode::BAD_REQUEST, Code::Params, message);
    let later = |message| Refusal::later(StatusCode::SERVICE_UNAVAILABLE, message);
    let too_many = |message| Refusal::later(StatusCode::TOO_MANY_REQUESTS, message);
    match refused {
        Refused::Stopping => Refusal::later(StatusCode::SERVICE_UNAVAILABLE, "serve is stopping"),
        Refused::NoSession => Refusal::new(
            StatusCode::NOT_FOUND,
            Code::Request,
            "there is no such session (any more): begin one with initialize",
        ),
        Refused::SessionMissing => {
            bad("the header Mcp-Session-Id is missing: a session begins with initialize")
        }
        Refused::OtherVersion => {
            bad("the header MCP-Protocol-Version names a version that this session does not speak")
        }
        Refused::OnlyPost => Refusal::method("POST"),
        Refused::NoId => bad("initialize is a request and needs an id"),
        Refused::Retired => Refusal::new(
            StatusCode::NOT_FOUND,
            Code::Request,
            "this server is not in the config file any more",
        ),
        Refused::Full => {
            let message = "every session is in use; end one, or raise --session-cap";
            Refusal::later(StatusCode::SERVICE_UNAVAILABLE, message)
        }
        Refused::CannotStart(why) => later(format!("the server could not be started: {why}")),
        Refused::IdInFlight => bad("a request with this id is in flight"),
        Refused::Requests => too_many("too many requests are in flight (--requests-max)"),
        Refused::Streams => too_many("too many streams are open (--streams-max)"),
        Refused::UnknownEvent => bad("the header Last-Event-ID names no event of this session"),
        Refused::VersionMissing => {
            params("params._meta lacks io.modelcontextprotocol/protocolVersion")
        }
        Refused::CapabilitiesMissing => {
            params("params._meta lacks io.modelcontextprotocol/clientCapabilities")
        }
        Refused::Mismatch(mismatch) => {
            let message = mismatch.to_string();
            Refusal::new(StatusCode::BAD_REQUEST, Code::HeaderMismatch, message)
        }
        Refused::LegacyOnly { discover: true } => Refusal::new(
            StatusCode::NOT_FOUND,
            Code::Method,
            "this server does not have server/discover: it is of the legacy era",
        ),
        Refused::LegacyOnly { discover: false } => {
            bad("this server is of the legacy era: begin with initialize")
        }
        Refused::Version {
            supported,
            requested,
        } => {
            let data = serde_json::json!({"supported": supported, "requested": requested});
            let message = "this server does not speak that version";
            Refusal::new(StatusCode::BAD_REQUEST, Code::Version, message)
                .with(data.to_string().into_bytes())
        }
        Refused::NoInitialize => Refusal::new(
            StatusCode::NOT_FOUND,
            Code::Method,
            "the modern era does not have this method",
        ),
        Refused::Unreadable => bad("the request could not be read"),
    }
}
